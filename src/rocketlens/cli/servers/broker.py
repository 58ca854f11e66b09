"""``rocketlens broker``: a broker, registered with name servers that run elsewhere."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import add_log_options, add_metrics_port, port_number
from rocketlens.cli.servers.servers import (
    add_broker_options,
    add_index_builder,
    broker_settings,
    home_directory,
    index_command,
    log_broker_start,
    print_configuration,
    status_port,
)
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import name_servers_of_environment
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import print_ready

if TYPE_CHECKING:
    from rocketlens.broker.config import BrokerSettings

EXAMPLES: Final = (
    ("rocketlens broker -n 127.0.0.1:9876", "register at a name server"),
    ("rocketlens broker -c broker.conf", "with RocketMQ's keys"),
    (
        "rocketlens broker -n 'ns1:9876;ns2:9876' --index-builder inline",
        "at two, and without Spark",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    add_index_builder(parser, "inline")
    add_log_options(parser)
    add_metrics_port(parser)
    add_broker_options(parser)
    parser.add_argument(
        "-p",
        "--port",
        metavar="N",
        type=port_number,
        help="default: listenPort of broker.conf, else 10911; 0: any free port. The port two below "
        "is used, too",
    )
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="the name servers to register with, separated by semicolons (default: namesrvAddr of "
        "broker.conf, else $NAMESRV_ADDR)",
    )


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from rocketlens.broker.life.service import run as run_broker
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.client.connect.cluster import name_server_addresses
    from rocketlens.net.event_loop import run as run_loop

    log_to_stderr(arguments)
    port = arguments.port
    settings = broker_settings(arguments, **({} if port is None else {"listenPort": port}))
    _refuse_default_store_of_others(arguments, settings)
    given = arguments.namesrv or settings.broker.namesrvAddr or name_servers_of_environment()
    # Without name servers this fails: no client would find the broker.
    addresses = name_server_addresses(given)
    settings = settings.with_broker(namesrvAddr=";".join(addresses))
    if arguments.print_config:
        print_configuration(settings.properties_in_effect(settings.broker.listenPort))
        return ExitCode.OK
    log_broker_start(arguments.config, settings)
    builder = index_command(arguments, settings)
    store = printable(str(settings.store_path))

    def ready(address: str) -> None:
        print_ready(f"broker {address}, store {store}")

    with status_port(arguments) as status:
        run_loop(run_broker(settings, ready=ready, index_command=builder, status=status))
    return ExitCode.OK


def _refuse_default_store_of_others(arguments: Namespace, settings: "BrokerSettings") -> None:
    """Refuse to begin a new store beside one in RocketMQ's own default directory.

    :raises BadInput: if neither was chosen.
    """
    theirs = Path.home() / "store"
    is_default = settings.store_path == home_directory(arguments) / "store"
    if (
        is_default
        and arguments.home is None
        and (theirs / "commitlog").is_dir()
        and not (settings.store_path / "commitlog").is_dir()
    ):
        raise BadInput(
            f"there is a store in {theirs}, RocketMQ's default, and none in {settings.store_path}: "
            f"choose with --home {theirs.parent} or with storePathRootDir in broker.conf"
        )

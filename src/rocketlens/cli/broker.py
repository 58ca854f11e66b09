"""``rocketlens broker``: a broker, registered with name servers that run elsewhere."""

from argparse import ArgumentParser, Namespace

from rocketlens.cli.servers import (
    add_configuration,
    add_index_builder,
    configuration_text,
    index_command,
)
from rocketlens.terminal.exit_code import ExitCode


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    add_index_builder(parser, "inline")
    add_configuration(parser, "broker.conf")
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="the name servers to register with, separated by semicolons (default: namesrvAddr of "
        "broker.conf, else $NAMESRV_ADDR)",
    )


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from rocketlens.broker.config import parse_settings
    from rocketlens.broker.service import run as run_broker
    from rocketlens.cli.log_lines import log_to_stderr
    from rocketlens.client.name_servers import name_server_addresses
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.terminal.cluster_access import name_servers_of_environment

    log_to_stderr()
    settings = parse_settings(configuration_text(arguments.config))
    given = arguments.namesrv or settings.broker.namesrvAddr or name_servers_of_environment()
    # Without name servers this fails: no client would find the broker.
    addresses = name_server_addresses(given)
    settings = settings.with_broker(namesrvAddr=";".join(addresses))
    builder = index_command(arguments, settings)
    run_loop(run_broker(settings, ready=_print_ready, index_command=builder))
    return ExitCode.OK


def _print_ready(address: str) -> None:
    print(f"ready: broker {address}", flush=True)

"""``rocketlens serve``: a name server and a broker in one process."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
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
from rocketlens.model.message import Host
from rocketlens.model.text.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import print_ready

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rocketlens.broker.config import BrokerSettings
    from rocketlens.namesrv.config import NameServerConfig
    from rocketlens.namesrv.service import NameServer
    from rocketlens.net.status_port import StatusPort

NAME_SERVER_SHARE: Final = 4
"""The name server may have a quarter of the connections that the process may have."""
_CONSOLE_PORT: Final = "8088"
_KV_CONFIG: Final = "namesrv/kvConfig.json"
EXAMPLES: Final = (
    ("rocketlens serve", "a name server on port 9876 and a broker on port 10911"),
    (
        "rocketlens serve --home /data/rocketlens --index-builder inline",
        "elsewhere, and without Spark",
    ),
    ("rocketlens serve --console", "with the web console on port 8088"),
    ("rocketlens serve -c broker.conf", "with RocketMQ's keys"),
    ("rocketlens serve --bind 0.0.0.0 --advertise 10.0.0.5", "for clients of other machines"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "Prints one line when both servers are ready. SIGTERM or Ctrl-C stops them cleanly. Both "
        "listen\non the loopback interface unless --bind, or broker.conf, names another address."
    )
    parser.add_argument(
        "--namesrv-port", metavar="N", type=port_number, help="default: 9876; 0: any free port"
    )
    parser.add_argument(
        "--broker-port",
        "--port",
        metavar="N",
        type=port_number,
        help="default: listenPort of broker.conf, else 10911; 0: any free port. The port two below "
        "is used, too",
    )
    parser.add_argument(
        "--console",
        metavar="[IP:]PORT",
        nargs="?",
        const=_CONSOLE_PORT,
        help="serve the web console, too, in a process of its own: on the loopback interface "
        f"unless --console-users names its users (port {_CONSOLE_PORT} where none is given)",
    )
    parser.add_argument(
        "--console-users", metavar="FILE", help="the users of the console: --users of `console`"
    )
    add_index_builder(parser, "auto")
    add_log_options(parser)
    add_metrics_port(parser)
    add_broker_options(parser)


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from rocketlens.broker.life.service import max_connections
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.namesrv.config import NameServerConfig
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.store.fs import raise_open_file_limit

    log_to_stderr(arguments)
    home = home_directory(arguments)
    port = arguments.broker_port
    settings = broker_settings(arguments, **({} if port is None else {"listenPort": port}))
    names = NameServerConfig(
        # A client that can reach the broker must be able to reach the name server, too.
        bindAddress=settings.broker.listen_address,
        kvConfigPath=str(home / _KV_CONFIG),
        tls=settings.tls.server,
        max_connections=max_connections(raise_open_file_limit()) // NAME_SERVER_SHARE,
    )
    if arguments.namesrv_port is not None:
        names = replace(names, listenPort=arguments.namesrv_port)
    if arguments.print_config:
        print("# the broker")
        print_configuration(settings.properties_in_effect(settings.broker.listenPort))
        print("# the name server")
        print_configuration(names.properties_in_effect())
        return ExitCode.OK
    if arguments.console_users is not None and arguments.console is None:
        raise BadInput("--console-users: there is no console without --console")
    log_broker_start(arguments.config, settings)
    builder = index_command(arguments, settings)
    with status_port(arguments) as status:
        run_loop(_serve(names, settings, builder, status, arguments))
    return ExitCode.OK


async def _serve(
    names: "NameServerConfig",
    settings: "BrokerSettings",
    index_builder: Sequence[str],
    status: "StatusPort | None",
    arguments: Namespace,
) -> None:
    from asyncio import gather, wrap_future

    from rocketlens.broker.life.service import BrokerService, max_connections
    from rocketlens.cli.servers.console_process import ConsoleProcess
    from rocketlens.net.event_loop import end_on_signals, within
    from rocketlens.net.sync import LoopThread
    from rocketlens.store.fs import raise_open_file_limit

    # Before anything is opened: a signal that comes meanwhile stops it cleanly, too.
    ending = end_on_signals()
    # In a thread of its own: what keeps one of them busy does not keep the other from answering.
    with LoopThread("rocketlens-namesrv") as thread:
        name_server, bound = await wrap_future(thread.submit(_start(names, status)))
        # Announced as the broker is, which may listen on all addresses.
        bound = bound._replace(address=settings.broker.brokerIP1)
        others = settings.broker.namesrv_addresses
        registered = ";".join(dict.fromkeys((str(bound), *others)))
        settings = settings.with_broker(namesrvAddr=registered)
        service = BrokerService(
            settings,
            index_command=index_builder,
            max_connections=max_connections(raise_open_file_limit()) - (names.max_connections or 0),
        )
        if status is not None:
            status.add(service.status_source())

        async def stop_name_server() -> None:
            await service.is_unregistered.wait()
            await within(_wait_for(thread.submit(name_server.stop())), None, ending.hurried)

        name = settings.broker.brokerName
        name_server.reserve(name, service.registering_addresses)
        console = ConsoleProcess(arguments.console, arguments.console_users)
        shown = None
        try:
            if arguments.console is not None:
                # First: what is wrong with it is an error before the store is opened.
                shown = await within(console.start(str(bound)), None, ending.ended)
            if not ending.ended.is_set():
                await within(service.start(), None, ending.ended)
            if not ending.ended.is_set():
                name_server.reserve(name, service.registering_addresses, service.address)
                _print_ready(bound, service.core.store.store_host, settings, shown)
                await ending.ended.wait()
        finally:
            await gather(
                service.stop(ending.hurried), stop_name_server(), console.stop(ending.hurried)
            )


async def _start(
    names: "NameServerConfig", status: "StatusPort | None"
) -> "tuple[NameServer, Host]":
    from rocketlens.namesrv.service import NameServer

    server = NameServer(names)
    bound = server.start()
    if status is not None:
        status.add(server.status_source())
    return server, bound


async def _wait_for(future: "Future[None]") -> None:
    from asyncio import wrap_future

    await wrap_future(future)


def _print_ready(
    name_server: Host, broker: Host, settings: "BrokerSettings", console: str | None
) -> None:
    from rocketlens.broker.config import VIP_DISTANCE

    store = printable(str(settings.store_path))
    vip = broker.port - VIP_DISTANCE
    shown = "" if console is None else f", console {console}"
    print_ready(f"name server {name_server}, broker {broker} and port {vip}, store {store}{shown}")

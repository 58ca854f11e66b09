"""``rocketlens serve``: a name server and a broker in one process."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import port_number
from rocketlens.cli.servers import (
    add_configuration,
    add_index_builder,
    configuration_text,
    index_command,
)
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.terminal.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from rocketlens.broker.config import BrokerSettings
    from rocketlens.model.message import Host
    from rocketlens.namesrv.config import NameServerConfig
    from rocketlens.namesrv.service import NameServer

HOME_VARIABLE: Final = "ROCKETLENS_HOME"
NAME_SERVER_SHARE: Final = 4
"""The name server may have a quarter of the connections that the process may have."""
_STORE: Final = "store"
_KV_CONFIG: Final = "namesrv/kvConfig.json"


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "Prints one line when both servers are ready. SIGTERM or Ctrl-C stops them cleanly. Both "
        "listen\non the loopback interface unless broker.conf has brokerIP1 or bindAddress."
    )
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=os.environ.get(HOME_VARIABLE) or None,
        help=f"where the store is kept (default: ${HOME_VARIABLE}, else ~/rocketlens)",
    )
    parser.add_argument(
        "--namesrv-port", metavar="N", type=port_number, help="default: 9876; 0: any free port"
    )
    parser.add_argument(
        "--broker-port",
        metavar="N",
        type=port_number,
        help="default: listenPort of broker.conf, else 10911; 0: any free port. The port two below "
        "is used, too",
    )
    add_index_builder(parser, "auto")
    add_configuration(parser, "broker.conf")


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from dataclasses import replace

    from rocketlens.broker.config import parse_settings
    from rocketlens.broker.service import max_connections
    from rocketlens.cli.log_lines import log_to_stderr
    from rocketlens.namesrv.config import NameServerConfig
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.store.fs import raise_open_file_limit

    log_to_stderr()
    home = _home(arguments.home)
    settings = parse_settings(configuration_text(arguments.config))
    if not settings.broker.storePathRootDir:
        settings = settings.with_broker(storePathRootDir=str(home / _STORE))
    if arguments.broker_port is not None:
        settings = settings.with_broker(listenPort=arguments.broker_port)
    names = NameServerConfig(
        # A client that can reach the broker must be able to reach the name server, too.
        bindAddress=settings.broker.listen_address,
        kvConfigPath=str(home / _KV_CONFIG),
        tls=settings.tls.server,
        max_connections=max_connections(raise_open_file_limit()) // NAME_SERVER_SHARE,
    )
    if arguments.namesrv_port is not None:
        names = replace(names, listenPort=arguments.namesrv_port)
    run_loop(_serve(names, settings, index_command(arguments, settings)))
    return ExitCode.OK


async def _serve(
    names: "NameServerConfig", settings: "BrokerSettings", index_builder: "Sequence[str]"
) -> None:
    from asyncio import gather, wrap_future

    from rocketlens.broker.service import LOAD_KERNELS_AFTER_S, BrokerService, max_connections
    from rocketlens.net.event_loop import end_on_signals, within
    from rocketlens.net.sync import LoopThread
    from rocketlens.store.fs import raise_open_file_limit

    # Before anything is opened: a signal that comes meanwhile stops it cleanly, too.
    ending = end_on_signals()
    # In a thread of its own: what keeps one of them busy does not keep the other from answering.
    with LoopThread("rocketlens-namesrv") as thread:
        name_server, bound = await wrap_future(thread.submit(_start(names)))
        # Announced as the broker is, which may listen on all addresses.
        bound = bound._replace(address=settings.broker.brokerIP1)
        others = settings.broker.namesrv_addresses
        registered = ";".join(dict.fromkeys((str(bound), *others)))
        settings = settings.with_broker(namesrvAddr=registered)
        service = BrokerService(
            settings,
            index_command=index_builder,
            load_kernels_after_s=LOAD_KERNELS_AFTER_S,
            max_connections=max_connections(raise_open_file_limit()) - (names.max_connections or 0),
        )

        async def stop_name_server() -> None:
            await service.has_left.wait()
            await within(_wait_for(thread.submit(name_server.stop())), None, ending.hurried)

        name = settings.broker.brokerName
        name_server.reserve(name, service.registering_addresses)
        try:
            await within(service.start(), None, ending.ended)
            if not ending.ended.is_set():
                name_server.reserve(name, service.registering_addresses, service.address)
                _print_ready(bound, service.core.store.store_host, settings)
                await ending.ended.wait()
        finally:
            await gather(service.stop(ending.hurried), stop_name_server())


async def _start(names: "NameServerConfig") -> "tuple[NameServer, Host]":
    from rocketlens.namesrv.service import NameServer

    server = NameServer(names)
    return server, server.start()


async def _wait_for(future: "Future[None]") -> None:
    from asyncio import wrap_future

    await wrap_future(future)


def _print_ready(name_server: "Host", broker: "Host", settings: "BrokerSettings") -> None:
    from rocketlens.broker.config import VIP_DISTANCE

    store = printable(str(settings.store_path))
    vip = broker.port - VIP_DISTANCE
    print(
        f"ready: name server {name_server}, broker {broker} and port {vip}, store {store}",
        flush=True,
    )


def _home(given: str | None) -> Path:
    if given is not None and "\0" in given:
        raise BadInput("--home has a zero character in it")
    return (Path(given) if given else Path.home() / "rocketlens").absolute()

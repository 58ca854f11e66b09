"""``rocketlens broker``, ``namesrv``, and ``serve``, which runs both in one process."""

import os
import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens import __version__, limits
from rocketlens.cli.options import (
    add_advertise,
    add_bind,
    add_log_options,
    add_master,
    add_metrics_port,
    add_print_config,
    option,
    port_number,
)
from rocketlens.errors import BadInput, SparkUnavailable
from rocketlens.model.message import Host
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import name_servers_of_environment
from rocketlens.terminal.output import ExitCode, print_ready

if TYPE_CHECKING:
    from concurrent.futures import Future
    from logging import Logger

    from rocketlens.broker.config import BrokerSettings
    from rocketlens.namesrv.config import NameServerConfig
    from rocketlens.namesrv.service import NameServer
    from rocketlens.net.status_port import StatusPort

HOME_VARIABLE: Final = "ROCKETLENS_HOME"
_STORE: Final = "store"


def add_configuration(parser: ArgumentParser, name: str) -> None:
    option(parser, "-c --config FILE", f"a {name} with RocketMQ's keys")


def add_index_builder(parser: ArgumentParser, default: str) -> None:
    option(
        parser,
        "--index-builder",
        "build index files in a Spark process (spark) or in the broker (inline); auto: Spark if "
        f"a JDK and PySpark are installed (default: {default})",
        choices=("auto", "spark", "inline"),
        default=default,
    )
    add_master(parser)


def configuration_text(file: str | None) -> str:
    """Return the text of a configuration file; empty if `file` is None.

    :raises BadInput: if it is too long, or not UTF-8.
    :raises OSError: if it cannot be read.
    """
    if file is None:
        return ""
    if "\0" in file:
        raise BadInput("--config has a zero character in it")
    with Path(file).open("rb") as opened:
        content = opened.read(limits.MAX_SERVER_CONFIG_BYTES + 1)
    if len(content) > limits.MAX_SERVER_CONFIG_BYTES:
        raise BadInput(
            f"{file} is not a configuration file: it has over "
            f"{limits.MAX_SERVER_CONFIG_BYTES} bytes"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 ({error.reason} at byte {error.start})") from None


@contextmanager
def errors_name_lines(
    file: str | None, text: str, name: str, overridden: Collection[str] = ()
) -> Iterator[None]:
    """Add file and line to an error about a key of a configuration file.

    `text` is the file's content, `name` RocketMQ's name of it. Keys in `overridden` have a value
    from elsewhere.
    """
    from rocketlens.formats.java_properties import key_lines

    try:
        yield
    except BadInput as error:
        problem = str(error).removeprefix(f"{name}: ")
        key = re.split("[ =:]", problem, maxsplit=1)[0]
        line = key_lines(text).get(key)
        if file is None or line is None or key in overridden:
            raise
        raise BadInput(f"{file}, line {line}: {problem}") from None


def add_broker_options(parser: ArgumentParser) -> None:
    option(
        parser,
        "--home DIR",
        "keep the store in DIR/store, unless broker.conf has storePathRootDir "
        f"(default: ${HOME_VARIABLE}, else ~/rocketlens)",
        default=os.environ.get(HOME_VARIABLE) or None,
    )
    add_bind(parser, "bindAddress of broker.conf, else brokerIP1, else 127.0.0.1")
    add_advertise(parser)
    add_print_config(parser)
    add_configuration(parser, "broker.conf")


def home_directory(arguments: Namespace) -> Path:
    given = arguments.home
    if given is not None and "\0" in given:
        raise BadInput("--home has a zero character in it")
    return (Path(given) if given else Path.home() / "rocketlens").absolute()


def broker_settings(arguments: Namespace, **changes: Any) -> "BrokerSettings":
    """Return the settings of the options and broker.conf, overridden by `changes`.

    Raises the errors of `parse_settings`.
    """
    from rocketlens.broker.config import parse_settings, properties_of

    text = configuration_text(arguments.config)
    values = properties_of(text)
    if not values.get("storePathRootDir"):
        changes["storePathRootDir"] = str(home_directory(arguments) / _STORE)
    if arguments.bind is not None:
        changes["bindAddress"] = arguments.bind
    if arguments.advertise is not None:
        changes["brokerIP1"] = arguments.advertise
    elif arguments.bind is not None and "brokerIP1" not in values:
        # parse_settings refuses 0.0.0.0, which clients cannot connect to.
        changes["brokerIP1"] = arguments.bind
    with errors_name_lines(arguments.config, text, "broker.conf", changes):
        return parse_settings(text, **changes)


def print_configuration(values: Mapping[str, str]) -> None:
    for name, text in values.items():
        print(f"{name}={printable(text)}")


def status_port(arguments: Namespace) -> AbstractContextManager["StatusPort | None"]:
    """:raises BadInput: if the address of --metrics-port cannot be bound."""
    if arguments.metrics_port is None:
        return nullcontext()
    from rocketlens.net.status_port import StatusPort

    return StatusPort(*arguments.metrics_port)


def _logger() -> "Logger":
    # Imported late, because --help does not need it.
    import logging

    return logging.getLogger("rocketlens.server")


def log_start(file: str | None, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Log the version, and the settings that differ from the defaults."""
    log = _logger()
    log.info(
        "RocketLens %s, Python %s on %s, process %d, configuration %s",
        *(__version__, platform.python_version(), platform.platform(terse=True), os.getpid()),
        "file: none" if file is None else Path(file).absolute(),
    )
    changed = [f"{name}={text}" for name, text in values.items() if defaults.get(name) != text]
    log.info("settings that differ from the defaults: %s", ", ".join(changed) or "nothing")


def log_broker_start(file: str | None, settings: "BrokerSettings") -> None:
    from rocketlens.broker.config import BrokerConfig, BrokerSettings
    from rocketlens.store.write.config import StoreConfig

    bare = BrokerSettings(BrokerConfig(), StoreConfig())
    defaults = bare.properties_in_effect(bare.broker.listenPort)
    log_start(file, settings.properties_in_effect(settings.broker.listenPort), defaults)


def index_command(arguments: Namespace, settings: "BrokerSettings") -> tuple[str, ...]:
    """Return the command that builds index files beside a broker; empty if the broker does it.

    :raises SparkUnavailable: if Spark was requested and is not installed.
    """
    from rocketlens.pipeline.session import check_available

    if not settings.store.messageIndexEnable:
        _logger().info("no index files are built: messageIndexEnable=false")
        return ()
    if arguments.index_builder == "inline":
        _logger().info("the broker itself builds index files")
        return ()
    try:
        check_available(with_sql=True)
    except SparkUnavailable as error:
        if arguments.index_builder == "spark":
            raise
        _logger().warning("the broker itself builds index files: %s", error)
        return ()
    _logger().info("Spark builds index files, on %s", arguments.master)
    geometry = settings.store.geometry
    return (
        *(sys.executable, "-P", "-m", "rocketlens.main", "index", "follow"),
        *("--store", str(settings.store_path), "--master", arguments.master),
        *("--slots", str(geometry.slot_count), "--entries", str(geometry.entry_count)),
        "--until-stdin-ends",
    )


BROKER_EXAMPLES: Final = """
rocketlens broker -n 127.0.0.1:9876  # register at a name server
rocketlens broker -c broker.conf  # with RocketMQ's keys
rocketlens broker -n 'ns1:9876;ns2:9876' --index-builder inline  # at two, without Spark
"""


def broker_options(parser: ArgumentParser) -> None:
    add_index_builder(parser, "inline")
    add_log_options(parser)
    add_metrics_port(parser)
    add_broker_options(parser)
    add = partial(option, parser)
    add(
        "-p --port N",
        "default: listenPort of broker.conf, else 10911; 0: any free port. The port two below "
        "is used, too",
        type=port_number,
    )
    add(
        "-n --namesrv ADDR",
        "the name servers to register with, separated by semicolons (default: namesrvAddr of "
        "broker.conf, else $NAMESRV_ADDR)",
    )


def run_broker(arguments: Namespace) -> ExitCode:
    from rocketlens.broker.life.service import run as run_service
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.client.connect.cluster import name_server_addresses
    from rocketlens.net.event_loop import run as run_loop

    log_to_stderr(arguments)
    port = arguments.port
    settings = broker_settings(arguments, **({} if port is None else {"listenPort": port}))
    _refuse_default_store_of_others(arguments, settings)
    given = arguments.namesrv or settings.broker.namesrvAddr or name_servers_of_environment()
    # Fails without name servers, because clients could not find the broker.
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
        run_loop(run_service(settings, ready=ready, index_command=builder, status=status))
    return ExitCode.OK


def _refuse_default_store_of_others(arguments: Namespace, settings: "BrokerSettings") -> None:
    """:raises BadInput: for a new default store if RocketMQ's default store exists."""
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


NAMESRV_EXAMPLES: Final = """
rocketlens namesrv  # on port 9876
rocketlens namesrv -p 19876  # on another port
rocketlens namesrv -c namesrv.conf  # with RocketMQ's keys
"""


def namesrv_options(parser: ArgumentParser) -> None:
    option(parser, "-p --port N", "default: 9876; 0: any free port", type=port_number)
    add_bind(parser, "bindAddress of namesrv.conf, else 127.0.0.1")
    add_print_config(parser)
    add_log_options(parser)
    add_metrics_port(parser)
    add_configuration(parser, "namesrv.conf")


def run_namesrv(arguments: Namespace) -> ExitCode:
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.namesrv.config import NameServerConfig, parse_config
    from rocketlens.namesrv.service import run as run_name_server
    from rocketlens.net.event_loop import run as run_loop

    log_to_stderr(arguments)
    text = configuration_text(arguments.config)
    with errors_name_lines(arguments.config, text, "namesrv.conf"):
        config = parse_config(text, arguments.port, arguments.bind)
    values = config.properties_in_effect()
    if arguments.print_config:
        print_configuration(values)
        return ExitCode.OK
    log_start(arguments.config, values, NameServerConfig().properties_in_effect())
    with status_port(arguments) as status:
        run_loop(
            run_name_server(
                config, ready=lambda bound: print_ready(f"name server {bound}"), status=status
            )
        )
    return ExitCode.OK


NAME_SERVER_SHARE: Final = 4
"""The name server gets a quarter of the connections of the process."""
_CONSOLE_PORT: Final = "8088"
_KV_CONFIG: Final = "namesrv/kvConfig.json"
SERVE_EXAMPLES: Final = """
rocketlens serve  # a name server on port 9876 and a broker on port 10911
rocketlens serve --home /data/rocketlens --index-builder inline  # without Spark
rocketlens serve --console  # with the web console on port 8088
rocketlens serve -c broker.conf  # with RocketMQ's keys
rocketlens serve --bind 0.0.0.0 --advertise 10.0.0.5  # for clients on other machines
"""


def serve_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Prints one line when both servers are ready. SIGTERM or Ctrl-C stops them cleanly. Both "
        "listen\non the loopback interface unless --bind, or broker.conf, names another address."
    )
    add = partial(option, parser)
    add("--namesrv-port N", "default: 9876; 0: any free port", type=port_number)
    add(
        "--broker-port --port N",
        "default: listenPort of broker.conf, else 10911; 0: any free port. The port two below "
        "is used, too",
        type=port_number,
    )
    add(
        "--console [IP:]PORT",
        "also start the web console, as a separate process; it listens on the loopback "
        f"interface unless --console-users is given (default port: {_CONSOLE_PORT})",
        nargs="?",
        const=_CONSOLE_PORT,
    )
    add("--console-users FILE", "the users file of the console, as for `console --users`")
    add_index_builder(parser, "auto")
    add_log_options(parser)
    add_metrics_port(parser)
    add_broker_options(parser)


def run_serve(arguments: Namespace) -> ExitCode:
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
        # Clients that reach the broker must reach the name server.
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
        raise BadInput("--console-users needs --console")
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

    # Before anything is opened, so that a signal during the start stops it cleanly, too.
    ending = end_on_signals()
    # In its own thread, so that neither server blocks the other.
    with LoopThread("rocketlens-namesrv") as thread:
        name_server, bound = await wrap_future(thread.submit(_start(names, status)))
        # Advertised like the broker, which may listen on all addresses.
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
                # Started first, so that its errors come before the store is opened.
                shown = await within(console.start(str(bound)), None, ending.ended)
            if not ending.ended.is_set():
                await within(service.start(), None, ending.ended)
            if not ending.ended.is_set():
                name_server.reserve(name, service.registering_addresses, service.address)
                _print_servers(bound, service.core.store.store_host, settings, shown)
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


def _print_servers(
    name_server: Host, broker: Host, settings: "BrokerSettings", console: str | None
) -> None:
    from rocketlens.broker.config import VIP_DISTANCE

    store = printable(str(settings.store_path))
    vip = broker.port - VIP_DISTANCE
    shown = "" if console is None else f", console {console}"
    print_ready(f"name server {name_server}, broker {broker} and port {vip}, store {store}{shown}")

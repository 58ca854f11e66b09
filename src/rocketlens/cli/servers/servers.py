"""What the commands that run servers share: their configuration, and what builds the index."""

import os
import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens import __version__, limits
from rocketlens.cli.options import add_advertise, add_bind, add_master, add_print_config
from rocketlens.errors import BadInput, SparkUnavailable
from rocketlens.model.text.escape import printable

if TYPE_CHECKING:
    from logging import Logger

    from rocketlens.broker.config import BrokerSettings
    from rocketlens.net.status_port import StatusPort


HOME_VARIABLE: Final = "ROCKETLENS_HOME"
_STORE: Final = "store"


def add_configuration(parser: ArgumentParser, name: str) -> None:
    """Add ``--config``, whose file `configuration_text` reads; RocketMQ calls it ``name``."""
    parser.add_argument("-c", "--config", metavar="FILE", help=f"a {name} with RocketMQ's keys")


def add_index_builder(parser: ArgumentParser, default: str) -> None:
    """Add the options that `index_command` reads."""
    parser.add_argument(
        "--index-builder",
        choices=("auto", "spark", "inline"),
        default=default,
        help="what builds index files: Spark, in a process of its own, or the broker itself "
        f"(inline); auto means Spark if a JDK and PySpark are installed (default: {default})",
    )
    add_master(parser)


def configuration_text(file: str | None) -> str:
    """Return the text of a configuration file; empty if ``file`` is None.

    :raises BadInput: when it is too long, or not UTF-8.
    :raises OSError: when it cannot be read.
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
    """Add the file and the line to an error about a key of a configuration file.

    ``text`` is its content, ``name`` what RocketMQ calls it. Keys that are ``overridden`` have
    another value than that of the file.
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
    """Add the options of a broker that `broker_settings` reads, and ``--print-config``."""
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=os.environ.get(HOME_VARIABLE) or None,
        help="the store is kept in DIR/store, unless broker.conf has storePathRootDir "
        f"(default: ${HOME_VARIABLE}, else ~/rocketlens)",
    )
    add_bind(parser, "bindAddress of broker.conf, else brokerIP1, else 127.0.0.1")
    add_advertise(parser)
    add_print_config(parser)
    add_configuration(parser, "broker.conf")


def home_directory(arguments: Namespace) -> Path:
    """Return the directory of ``--home``.

    :raises BadInput: if it has a zero character.
    """
    given = arguments.home
    if given is not None and "\0" in given:
        raise BadInput("--home has a zero character in it")
    return (Path(given) if given else Path.home() / "rocketlens").absolute()


def broker_settings(arguments: Namespace, **changes: Any) -> "BrokerSettings":
    """Return the settings of the options and of broker.conf; ``changes`` override both.

    Raises what `parse_settings` does.
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
        # All addresses are none that clients could use: parse_settings refuses that.
        changes["brokerIP1"] = arguments.bind
    with errors_name_lines(arguments.config, text, "broker.conf", changes):
        return parse_settings(text, **changes)


def print_configuration(values: Mapping[str, str]) -> None:
    """Print keys and values as a configuration file has them."""
    for name, text in values.items():
        print(f"{name}={printable(text)}")


def status_port(arguments: Namespace) -> AbstractContextManager["StatusPort | None"]:
    """Return the port of ``--metrics-port``; None as a context if there is none.

    :raises BadInput: if the address cannot be bound.
    """
    if arguments.metrics_port is None:
        return nullcontext()
    from rocketlens.net.status_port import StatusPort

    return StatusPort(*arguments.metrics_port)


def _logger() -> "Logger":
    # Late: the help of a command needs none.
    import logging

    return logging.getLogger("rocketlens.server")


def log_start(file: str | None, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Log the version, and the configuration in effect as far as it is not the default."""
    log = _logger()
    log.info(
        "RocketLens %s, Python %s on %s, process %d, configuration %s",
        *(__version__, platform.python_version(), platform.platform(terse=True), os.getpid()),
        "file: none" if file is None else Path(file).absolute(),
    )
    changed = [f"{name}={text}" for name, text in values.items() if defaults.get(name) != text]
    log.info("configured, where it is not the default: %s", ", ".join(changed) or "nothing")


def log_broker_start(file: str | None, settings: "BrokerSettings") -> None:
    """Log version and configuration of a broker."""
    from rocketlens.broker.config import BrokerConfig, BrokerSettings
    from rocketlens.store.write.config import StoreConfig

    bare = BrokerSettings(BrokerConfig(), StoreConfig())
    defaults = bare.properties_in_effect(bare.broker.listenPort)
    log_start(file, settings.properties_in_effect(settings.broker.listenPort), defaults)


def index_command(arguments: Namespace, settings: "BrokerSettings") -> tuple[str, ...]:
    """Return the command line that builds index files beside a broker; empty if the broker does it.

    :raises SparkUnavailable: when Spark was asked for and is not installed.
    """
    from rocketlens.pipeline.session import check_available

    if not settings.store.messageIndexEnable:
        _logger().info("no index files are built: messageIndexEnable=false")
        return ()
    if arguments.index_builder == "inline":
        _logger().info("the broker itself builds index files")
        return ()
    try:
        check_available()
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

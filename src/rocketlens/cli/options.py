"""Options that several commands share, and the types of their values."""

import os
import sys
import time
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
    _ArgumentGroup,
)
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, BadInput, RemotingError
from rocketlens.model.config_keys import is_ip_address
from rocketlens.model.text.escape import printable
from rocketlens.terminal.contexts import (
    STORE_VARIABLE,
    Context,
    add_connection_options,
    default_context,
    named_context,
)
from rocketlens.terminal.output import ExitCode, note, parse_time

if TYPE_CHECKING:
    from rocketlens.query.options import ContentOptions

LOG_VARIABLE: Final = "ROCKETLENS_LOG"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
_WATCH_SECONDS: Final = 5
_WATCH_HELP: Final = "repeat every SECONDS seconds (default: {}) until Ctrl-C: exit code 130"
_CLEAR: Final = "\x1b[H\x1b[2J"
"""Clears a terminal."""
_MAX_SHOWN: Final = 60
_MAX_DIGITS: Final = 20
"""Bound of the digits of a number, because converting very many is slow."""
_STORE_HELP: Final = f"the directory that holds commitlog/ (default: ${STORE_VARIABLE})"
_BROKER_CONF_HELP: Final = "the broker.conf with the paths of a store and its log"
_READER_OPTIONS: Final = {
    "access_key": "accessKey",
    "secret_key_file": "secretKeyFile",
    "ca": "ca",
    "cert": "cert",
    "cert_key": "certKey",
    "tls": "tls",
    "check_hostname": "checkHostname",
    "insecure": "insecure",
}
"""Connection options, and their names for the data source ``rocketmq``."""


def option(
    container: ArgumentParser | _ArgumentGroup, words: str, help_text: str, **more: Any
) -> None:
    """Add an option. `words` are its names and the word for its value, as --help prints them.

    Without choices and such a word it is a switch. `more` is passed to ``add_argument``.
    """
    *names, value = words.split()
    if value.startswith("-"):
        names.append(value)
        if "choices" not in more:
            more["action"] = "store_true"
    else:
        more["metavar"] = value
    container.add_argument(*names, help=help_text, **more)


def add_watch(
    parser: ArgumentParser, seconds: int = _WATCH_SECONDS, help_text: str = _WATCH_HELP
) -> None:
    """Add --watch; `seconds` is the interval if none is given."""
    option(
        parser,
        "--watch SECONDS",
        help_text.format(seconds),
        nargs="?",
        type=positive_number,
        const=seconds,
    )


def watch(print_once: Callable[[], ExitCode], seconds: int | None) -> ExitCode:
    """Print once, or every `seconds` seconds on a cleared terminal.

    After the first print, an unreachable broker is only noted.
    """
    if seconds is None:
        return print_once()
    has_printed = False
    while True:
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        try:
            print_once()
            has_printed = True
        except (AnswerIncomplete, RemotingError) as error:
            if not has_printed:
                raise
            note(f"{error}: tried again in {seconds} s")
        time.sleep(seconds)


def add_list_output(
    container: ArgumentParser | _ArgumentGroup,
    help_text: str = "table (default; tab-separated when piped), CSV, or one JSON object",
    more: tuple[str, ...] = (),
) -> None:
    choices = ("table", "csv", "json", *more)
    option(container, "-o --output", help_text, choices=choices, default="table")


def add_text_output(parser: ArgumentParser, help_text: str) -> None:
    option(parser, "-o --output", help_text, choices=("text", "json"), default="text")


def add_log_options(parser: ArgumentParser) -> None:
    add = partial(option, parser)
    add(
        "--log-level",
        f"the lowest level logged to stderr (default: ${LOG_VARIABLE}, else info)",
        choices=LOG_LEVELS,
    )
    add(
        "--log-format",
        f"lines of text, or of JSON (default: ${LOG_VARIABLE}, else text)",
        choices=LOG_FORMATS,
    )


def add_bind(parser: ArgumentParser, default: str) -> None:
    option(
        parser,
        "--bind IP",
        f"address to listen on; 0.0.0.0: all addresses (default: {default})",
        type=ip_address_text,
    )


def ip_address_text(text: str) -> str:
    if not is_ip_address(text):
        raise ArgumentTypeError(f"{printable(text[:_MAX_SHOWN])} is not an IP address")
    return text


def resolved_address(text: str) -> str:
    """Return an IP address, or the first address of a host name, preferring IPv4."""
    import socket

    if is_ip_address(text):
        return text
    try:
        addresses = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArgumentTypeError(f"{printable(text[:_MAX_SHOWN])}: {reason}") from None
    addresses.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(addresses[0][4][0])


def listen_address(text: str) -> tuple[str, int]:
    """Return address and port of ``PORT``, ``IP:PORT`` or ``[IPv6]:PORT``."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    return ip_address_text(host), port_number(port)


def add_store(parser: ArgumentParser) -> None:
    _add_store(parser)
    option(parser, "--context NAME", "the store of a named context (rocketlens context list)")


def _add_store(parser: ArgumentParser) -> None:
    named = parser.add_mutually_exclusive_group()
    # Without a default, so that an option counts more than the environment.
    add = partial(option, named)
    add("--store DIR", _STORE_HELP)
    add("--broker-conf FILE", _BROKER_CONF_HELP, dest="store")


def store_directory(arguments: Namespace) -> Path:
    """Return the store that an option, the environment or the default context names.

    :raises BadInput: if none of them does, or the context does not exist or names another source.
    """
    store, name = arguments.store, getattr(arguments, "context", None)
    if store and name:
        raise BadInput("--store and --context both name a source: give only one")
    if not store and name is None:
        store = os.environ.get(STORE_VARIABLE) or None
    if not store:
        context = default_context() if name is None else named_context(name)
        store = context.store
        if store is None and context.names_source:
            kind = "a cluster" if context.archive is None else "an archive"
            raise BadInput(f"this command needs a store, but the context names {kind}")
    if not store:
        raise BadInput(
            "no store is named: give --store DIR, the directory that holds commitlog/, or "
            f"--context NAME, or set {STORE_VARIABLE}"
        )
    return store_path(store)


def store_path(text: str) -> Path:
    if "\0" in text:
        raise BadInput("--store has a zero character in it")
    return Path(text)


def add_source(parser: ArgumentParser) -> None:
    _add_store(parser)
    add_cluster(parser, "$NAMESRV_ADDR, unless a store is given")


def add_max(parser: ArgumentParser, default: int | None = None) -> None:
    option(
        parser,
        "--max --newest N",
        "only the newest N messages" + ("" if default is None else f" (default: {default})"),
        type=positive_number,
        default=default,
    )


def add_archive(parser: ArgumentParser, *, with_others: bool = True) -> None:
    beside = "; with --store, --namesrv or --context both are searched, for one answer"
    option(
        parser,
        "--archive DIR",
        f"search an archive, a directory or s3://BUCKET/PREFIX{beside if with_others else ''}",
    )


def refuse_archive(parser: ArgumentParser, why: str) -> None:
    """Add a hidden --archive option that fails with `why`."""

    def refuse(_: str) -> None:
        raise ArgumentTypeError(why)

    parser.add_argument("--archive", dest="refused_archive", type=refuse, help=SUPPRESS)


def add_cluster(parser: ArgumentParser, default: str) -> None:
    option(
        parser,
        "-n --namesrv ADDR",
        "a running cluster: host:port of its name server, several separated by semicolons "
        f"(default: {default})",
    )
    add_connection_options(parser)


def reader_options(given: Namespace | Context) -> dict[str, str]:
    """Return connection options as options of the data source ``rocketmq``."""
    values = {option: getattr(given, name) for name, option in _READER_OPTIONS.items()}
    return {
        option: str(value).lower() if isinstance(value, bool) else value
        for option, value in values.items()
        if value or (value is False and option == "checkHostname")
    }


def add_message(parser: ArgumentParser) -> None:
    parser.add_argument(
        "text", metavar="ID", help="a message id of either kind, TOPIC/QUEUE/OFFSET, or a key"
    )
    add_source(parser)
    add_archive(parser)
    option(parser, "-t --topic T", "search only this topic; repeat for several", action="append")
    add_verbose(parser)


def add_content(parser: ArgumentParser | _ArgumentGroup) -> None:
    add = partial(option, parser)
    add(
        "--where EXPRESSION",
        "only messages for which this is true: RocketMQ's SQL92 over properties, topic, tag, "
        "key, time and the decoded body, such as \"body.$.amount > 100 AND tag = 'paid'\"",
    )
    add(
        "--grep PATTERN",
        "only messages whose decoded body matches this text or regular expression (RE2)",
    )
    add(
        "--grep-in PARTS",
        "where --grep searches: body (default), keys, properties, or several, separated by commas",
    )
    add_body_rules(parser)


def content_of(arguments: Namespace) -> "ContentOptions":
    """Return the options of `add_content` as keyword arguments; empty if none is given.

    :raises BadInput: for --grep-in without --grep.
    """
    if arguments.grep_in is not None and arguments.grep is None:
        raise BadInput("--grep-in needs --grep")
    if arguments.where is None and arguments.grep is None:
        return {}
    parts = [each.strip() for each in (arguments.grep_in or "body").split(",")]
    return {
        "where": arguments.where,
        "grep": arguments.grep,
        "grep_in": parts,
        "body_rules": arguments.body_rules,
    }


def add_index_geometry(parser: ArgumentParser) -> None:
    add = partial(option, parser)
    add("--slots N", "hash slots per index file (maxHashSlotNum)", type=positive_number)
    add("--entries N", "entries per index file (maxIndexNum)", type=positive_number)
    parser.add_argument(
        "--tag-index",
        action=BooleanOptionalAction,
        default=None,
        help="with or without entries for tags, which RocketMQ 5.5 and later write",
    )


def add_topics(parser: ArgumentParser, use: str, *, default: str = "") -> None:
    option(
        parser,
        "-t --topic T",
        f"{use}; repeat it, or separate several by commas; patterns with * are allowed"
        + (f" (default: {default})" if default else ""),
        action="append",
    )


def add_times(parser: ArgumentParser | _ArgumentGroup) -> None:
    add = partial(option, parser)
    add("--since T", "only messages stored at or after this time")
    add("--until T", "only messages stored at or before this time")


def time_range(arguments: Namespace) -> tuple[int | None, int | None]:
    """Return the store times of --since and --until, None for those not given.

    :raises BadInput: if a time is invalid, or --since is after --until.
    """
    begin = parse_time(arguments.since, "--since", is_end=False) if arguments.since else None
    end = parse_time(arguments.until, "--until", is_end=True) if arguments.until else None
    if begin is not None and end is not None and begin > end:
        raise BadInput("--since is after --until")
    return begin, end


def positive_number(text: str) -> int:
    return _number(text, 1, limits.MAX_INT, "number")


def count(text: str) -> int:
    return _number(text, 0, limits.MAX_INT, "number")


def seconds(text: str) -> int:
    return _number(text, 0, 86_400, "number of seconds")


def port_number(text: str) -> int:
    """Return a port; 0 means any free port."""
    return _number(text, 0, 65_535, "port")


def _number(text: str, minimum: int, maximum: int, what: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or not minimum <= int(text) <= maximum:
        shown = printable(text)[:40]
        raise ArgumentTypeError(f"invalid {what} {shown!r}: expected {minimum} to {maximum}")
    return int(text)


def _adder(
    words: str, help_text: str, **more: Any
) -> Callable[[ArgumentParser | _ArgumentGroup], None]:
    return lambda parser: option(parser, words, help_text, **more)


add_advertise = _adder(
    "--advertise ADDR",
    "IP address to advertise to clients, or a host name, which is resolved at the start "
    "(default: brokerIP1 of broker.conf, else the address of --bind, else 127.0.0.1)",
    type=resolved_address,
)
add_all_topics = _adder(
    "--all",
    "if no topic is named, also search RocketMQ's own topics, such as the trace topic "
    "(default: they are left out and counted)",
)
add_body_rules = _adder(
    "--body-rules FILE",
    "TOML file with rules for decoding bodies by topic: formats, schemas, charsets",
)
add_dry_run = _adder(
    "--dry-run", "check what can be checked without Spark, print what would be done, and exit"
)
add_master = _adder(
    "--master M",
    "the Spark master (default: local[*], all cores of this machine)",
    default="local[*]",
)
add_metrics_port = _adder(
    "--metrics-port [IP:]N",
    "serve /metrics (Prometheus), /livez and /readyz on this port, on 127.0.0.1 unless "
    "an address is given; 0: any free port (default: none)",
    type=listen_address,
)
add_overwrite = _adder("--overwrite", "replace FILE if it exists")
add_print_config = _adder(
    "--print-config", "print the effective configuration as a configuration file and exit"
)
add_verbose = _adder(
    "-v --verbose", "print all notes on an answer: hints, and assumptions that were not checked"
)

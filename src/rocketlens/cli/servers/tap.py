"""``rocketlens tap``: keeps copies of the stores of running brokers, for longer than they do."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import (
    add_cluster,
    add_log_options,
    add_metrics_port,
    option,
    positive_number,
)
from rocketlens.cli.servers.servers import status_port
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import choose_context, cluster_access
from rocketlens.terminal.output import ExitCode, print_ready

if TYPE_CHECKING:
    from rocketlens.tap.follower import Follower
    from rocketlens.tap.service import Tap, TapOptions

_MAX_HOURS: Final = 876_000

EXAMPLES: Final = """
rocketlens tap -n 10.0.0.1:9876 --home /data/tap  # follow every broker of the cluster
# one broker, from its last log file on
rocketlens tap -n 10.0.0.1:9876 --broker broker-a --home /data/tap --from latest
rocketlens tap -n 10.0.0.1:9876 --home /data/tap --retention-hours 2160  # keep messages for 90 days
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Each broker's copy is a store directory DIR/BROKER, which every command reads, also\n"
        "while the tap runs. It follows masters of RocketMQ 4.9 and 5 like a slave, without\n"
        "changes there. Sends to a SYNC_MASTER wait for it, unless --no-ack is given."
    )
    add = partial(option, parser)
    add("--home DIR", "the directory of the copies; existing copies are continued", required=True)
    add(
        "--broker NAME",
        "a broker to follow; repeat for several (default: all, also those registered later)",
        action="append",
        default=[],
    )
    add(
        "--from WHERE",
        "the begin of a new copy: earliest, the broker's first log file; latest, its last one; "
        "or the log file with this physical offset (default: earliest)",
        dest="begin",
        type=_begin,
        default="earliest",
    )
    add("--no-ack", "never acknowledge: sends to a SYNC_MASTER do not count this copy")
    add(
        "--retention-hours N",
        "delete log files N hours after they were copied (default: keep all)",
        type=positive_number,
    )
    add(
        "--retention-gib N",
        "delete the oldest log files of a copy larger than N GiB",
        type=positive_number,
    )
    add_cluster(parser, "$NAMESRV_ADDR, or the default context")
    add_log_options(parser)
    add_metrics_port(parser)


def _begin(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    shown = printable(text)[:40]
    raise ArgumentTypeError(f"invalid offset {shown!r}: expected earliest, latest or a number")


def run(arguments: Namespace) -> ExitCode:
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.store.fs import raise_open_file_limit
    from rocketlens.tap.service import run as run_tap

    options = _options(arguments)
    log_to_stderr(arguments)
    access = cluster_access(choose_context(arguments, takes_store=False))
    raise_open_file_limit()
    given = {"credentials": access.credentials, "tls": access.tls}
    with status_port(arguments) as status:
        run_loop(
            run_tap(access.name_servers, options, client_options=given, ready=_ready, status=status)
        )
    return ExitCode.OK


def _options(arguments: Namespace) -> "TapOptions":
    from rocketlens.tap.service import TapOptions

    if "\0" in arguments.home:
        raise BadInput("--home has a zero character in it")
    if (arguments.retention_hours or 0) > _MAX_HOURS:
        raise BadInput(f"--retention-hours: at most {_MAX_HOURS}, a hundred years")
    return TapOptions(
        Path(arguments.home).absolute(),
        tuple(arguments.broker),
        arguments.begin,
        not arguments.no_ack,
        arguments.retention_hours,
        (arguments.retention_gib or 0) << 30,
    )


def _ready(tap: "Tap") -> None:
    followed = [*map(_describe, tap.followers)] or tap.problems()
    print_ready(f"tap of {'; '.join(followed)}")


def _describe(follower: "Follower") -> str:
    copy = follower.copy
    directory = printable(str(copy.layout.root))
    if copy.store is None:
        return f"{copy.broker_name}, store {directory}: {printable(follower.problem)}"
    return f"{copy.broker_name} from {copy.store.position} on, store {directory}"

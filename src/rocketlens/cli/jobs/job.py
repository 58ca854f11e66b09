"""``rocketlens job``: lists jobs that sent messages again, and shows their outcome."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens.cli.options import add_cluster, add_list_output, option, seconds
from rocketlens.cli.printing import print_list
from rocketlens.cli.resend import follow_job
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError, StoreLocked
from rocketlens.terminal.cluster_access import (
    ask_cluster,
    choose_context,
    cluster_access,
    jobs_directory,
)
from rocketlens.terminal.contexts import Context
from rocketlens.terminal.output import ExitCode, note

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.resend.resend_journal import JobContents

_SHOWN_ROWS: Final = 100
_EXIT_CODES: Final = "exit codes: 0 done, 1 there is no such job, 2 wrong usage or an error."
LIST_EXAMPLES: Final = """
rocketlens job list  # the jobs of this user, the newest first
"""


def list_options(parser: ArgumentParser) -> None:
    parser.epilog = _EXIT_CODES
    add_list_output(parser, "table (default), CSV, or one JSON line per job")


def run_list(arguments: Namespace) -> ExitCode:
    from rocketlens.client.resend.follow import describe_states
    from rocketlens.client.resend.resend_journal import JOB_SUFFIX, read_job

    rows: list[dict[str, Any]] = []
    for path in sorted(jobs_directory().glob(f"*{JOB_SUFFIX}"), reverse=True):
        try:
            read = read_job(path)
        except (BadInput, OSError) as error:
            note(str(error))
            continue
        header = read.header
        rows.append(
            {
                "job": path.stem,
                **read.counts(),
                "came": describe_states(read).partition(": ")[2],
                "user": header.user,
                "reason": header.reason,
                "selection": header.selection,
                "target": header.target,
            }
        )
    if rows:
        print_list(arguments.output, list(rows[0]), [tuple(row.values()) for row in rows])
    elif arguments.output != "json":
        note(f"there are no jobs in {jobs_directory()}")
    return ExitCode.OK if rows else ExitCode.NO


SHOW_EXAMPLES: Final = """
rocketlens job show 20261120T101500-0a1b2c3d4e5f  # its messages and their outcome
rocketlens job show 20261120T101500-0a1b2c3d4e5f --follow 60  # wait up to a minute
"""


def show_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "came_of_it: for each group that gets the message: consumed, in retry, a dead letter, or\n"
        f"not consumed yet, as the job's cluster reports it now.\n{_EXIT_CODES}"
    )
    parser.add_argument(
        "job", metavar="JOB", help="the name of a job (rocketlens job list), or its file"
    )
    add_cluster(parser, "the job's")
    option(
        parser,
        "--follow S",
        "wait until each message is consumed, in retry or a dead letter, up to S seconds "
        "(default: look once)",
        type=seconds,
        default=0,
    )
    add_list_output(parser, "table (default), CSV, or one JSON line per message")


def run_show(arguments: Namespace) -> ExitCode:
    from rocketlens.client.resend.resend_journal import JOB_SUFFIX, read_job

    path = Path(arguments.job)
    if not path.suffix and len(path.parts) == 1:
        path = jobs_directory() / f"{arguments.job}{JOB_SUFFIX}"
    if not path.is_file():
        raise MessageNotFound(f"there is no job {arguments.job[:200]} (rocketlens job list)")
    read = read_job(path)
    header = read.header
    if arguments.output == "table":
        for name in ("selection", "target", "cluster", "origin", "reason", "user", "time"):
            if getattr(header, name):
                value = getattr(header, name)
                note(f"{name} {value.replace('T', ' ') if name == 'time' else value}")
        note(", ".join(f"{count} {name}" for name, count in read.counts().items()))
    if read.counts()["sent"]:
        _look_up_outcome(arguments, path, read)
        read = read_job(path)
    _print(arguments, read)
    return ExitCode.OK


def _look_up_outcome(arguments: Namespace, path: Path, read: "JobContents") -> None:
    """Look up the consumption of a job's messages, and record it in the job's file."""
    from rocketlens.client.resend.follow import describe_states
    from rocketlens.client.resend.resend_journal import ResendJournal

    header = read.header
    own = Context(namesrv=header.cluster, namespace=header.namespace or None)

    async def look(admin: "MQAdmin") -> None:
        if (admin.source.name, admin.namespace) != (header.cluster, header.namespace):
            raise BadInput(f"it is a job of another cluster: give --namesrv {header.cluster[:200]}")
        with ResendJournal.resume(path) as journal:
            await follow_job(journal, admin, arguments.follow)

    try:
        access = cluster_access(choose_context(arguments, takes_store=False, last=own))
        ask_cluster(access, look)
    except StoreLocked:
        note(f"another process runs it: {describe_states(read) or 'nothing was sent yet'}")
    except (RocketLensError, OSError) as error:
        words = describe_states(read)
        note(f"its outcome was not looked up: {error}" + (f"; last: {words}" if words else ""))


def _print(arguments: Namespace, read: "JobContents") -> None:
    from rocketlens.client.resend.follow import describe_state

    titles = ("n", "state", "came_of_it", "id", "from", "to", "detail")
    rows = []
    for number, each in enumerate(read.messages, 1):
        outcome = read.outcomes.get(number)
        rows.append(
            (
                number,
                "left" if outcome is None else outcome.state,
                describe_state(read, number),
                each.unique_key or each.offset_msg_id,
                f"{each.topic}/{each.queue_id}/{each.queue_offset}",
                each.target,
                "" if outcome is None else outcome.offset_msg_id or outcome.value,
            )
        )
    is_table = arguments.output == "table"
    print_list(arguments.output, titles, rows[:_SHOWN_ROWS] if is_table else rows)
    if is_table and rows[_SHOWN_ROWS:]:
        print(f"... and {len(rows) - _SHOWN_ROWS} more (-o csv and -o json show all)")
    sys.stdout.flush()

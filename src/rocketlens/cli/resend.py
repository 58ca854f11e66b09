"""``rocketlens resend``: sends stored messages again, as a job; shared with ``dlq redrive``."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from rocketlens import limits
from rocketlens.cli.options import add_cluster, add_list_output, option, positive_number, seconds
from rocketlens.cli.printing import NO_VALUE, Moment, print_rows
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, RocketLensError
from rocketlens.model.answer import Answer, first_failure
from rocketlens.model.life import life_of
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    ask_cluster,
    choose_context,
    cluster_access,
    jobs_directory,
    user_name,
    writable_cluster_access,
)
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.message_values import BodyView, csv_row, safe_cell
from rocketlens.terminal.output import ExitCode, note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketlens.archive.archive import Archive
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.resend.resend_job import Target
    from rocketlens.client.resend.resend_journal import JobHeader, PlannedMessage, ResendJournal
    from rocketlens.query.options import Kind

    MakePlan = Callable[["ResendOrigin", Target], Awaitable[list[PlannedMessage]]]

JOB_EXIT_CODES: Final = (
    "Without --send the command only shows what would be sent, and creates no file.\n"
    "The same command with --job FILE resumes a job that ended early.\n"
    "exit codes: 0 all were sent (or would be), 1 some were not sent, or there are none,\n"
    "2 wrong usage or an error, 3 incomplete: some may or may not be stored."
)
_SHOWN_ROWS: Final = 10
"""Messages in the table of a dry run."""
_PREVIEW_CHARACTERS: Final = 60
_DEFAULT_RATE: Final = 20
_DEFAULT_FOLLOW_S: Final = 30
_MAX_GROUP_SEARCHES: Final = 20
"""Bound of the messages for --to-group without a group."""
_COLUMNS: Final = ("n", "state", "id", "from", "to", "detail")
_PREVIEW_COLUMNS: Final = ("n", "state", "id", "from", "to", "time", "keys", "body", "last_failure")
"""The last column is for dead letters."""
EXAMPLES: Final = """
rocketlens resend order-paid/3/881204  # a dry run: shows what would be sent
rocketlens resend -t order-paid AC1400020001A3B4C5D6123456780000  # the same, by its message id
# send it, and record the reason
rocketlens resend -t order-paid --key ORDER-42 --send --reason 'ticket 7'
rocketlens resend order-paid/3/881204 --to-group  # only to the group that failed with it
# messages that the cluster has deleted
rocketlens resend -t order-paid --key ORDER-42 --archive /lake/rocketmq
"""


class ResendOrigin:
    """Finds the messages of a job, in its cluster or in an archive."""

    def __init__(self, admin: "MQAdmin", archive: "Archive | None" = None) -> None:
        self.admin: Final = admin
        self._archive: Final = archive

    @property
    def name(self) -> str:
        """The archive, as in a job's header; empty for the cluster."""
        return "" if self._archive is None else self._archive.source.name

    async def message(self, topic: str | None, text: str) -> MessageExt:
        """Return the message at a queue position or with an id.

        :raises MessageNotFound: if it does not exist.
        :raises AnswerIncomplete: if something could not be searched.
        """
        from rocketlens.query.request import FindRequest

        if FindRequest.parse(text).queue_position is None:
            named = (topic, text) if topic else (text,)
            if self._archive is not None:
                return self._archive.view_message(*named)
            return await self.admin.view_message(*named)
        answer = await self.find(text, kind="queue-offset")
        if not answer.complete:
            raise AnswerIncomplete(f"{text}: {first_failure(answer.coverage)}", answer)
        if not answer.messages:
            raise MessageNotFound(f"there is no message {text}")
        return answer.messages[0]

    async def planned(self, message: "PlannedMessage") -> MessageExt:
        """Return the message of a plan.

        :raises MessageNotFound: if it no longer exists.
        """
        if self._archive is None:
            return await self.admin.view_message(message.offset_msg_id)
        position = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
        for each in await self.find(position, kind="queue-offset"):
            # Each broker has a queue of this number.
            if each.offset_msg_id == message.offset_msg_id:
                return each
        raise MessageNotFound(f"{position} is no longer in {self.name}")

    async def find(self, text: str, topic: str | None = None, *, kind: "Kind") -> Answer:
        if self._archive is not None:
            return self._archive.find(text, topic, kind=kind)
        return await self.admin.find(text, topic, kind=kind)


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = JOB_EXIT_CODES
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="TOPIC/QUEUE/OFFSET as find prints it, an offset message id, or with --topic a unique "
        "key; of several records with one unique key the oldest is sent",
    )
    add_cluster(parser, "$NAMESRV_ADDR")
    add = partial(option, parser)
    add("--archive DIR", "send messages of this archive, which the cluster may have deleted")
    add("-t --topic T", "the topic of the ids, or of --key")
    add("--key K", "all messages of --topic with this key")
    add("--to-topic T2", "send to this topic (default: its own)")
    add(
        "--to-group G",
        "send only to this consumer group, through its retry topic; without G to the group that "
        "failed with the messages",
        nargs="?",
        const="",
    )
    add_job_options(parser)


def add_job_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the job")
    add = partial(option, group)
    add("--send", "send the messages, not only show them")
    add("--reason TEXT", "the reason, recorded in the job's file; --send needs it")
    add(
        "--job FILE",
        "the job's file; an existing job is resumed (default: a new file in the user's state "
        "directory)",
    )
    add(
        "--rate N",
        f"messages a second (default: {_DEFAULT_RATE})",
        type=positive_number,
        default=_DEFAULT_RATE,
    )
    add(
        "--max N",
        f"only the newest N messages (default: {limits.MAX_RESEND_MESSAGES})",
        type=positive_number,
        default=limits.MAX_RESEND_MESSAGES,
    )
    add(
        "--follow S",
        "report the consumption of the messages once each is consumed, in retry or a dead letter, "
        f"or after S seconds; 0: do not look (default: {_DEFAULT_FOLLOW_S}); `rocketlens job show` "
        "looks again",
        type=seconds,
        default=_DEFAULT_FOLLOW_S,
    )
    add("--resend-unknown", "also send messages that may already be stored if a look-up fails")
    add_list_output(group, "table (default), CSV, or one JSON line per message")


def run(arguments: Namespace) -> ExitCode:
    from rocketlens.client.resend.resend_job import Target

    if arguments.to_topic and arguments.to_group is not None:
        raise BadInput("--to-topic and --to-group both name a target: give only one")
    if arguments.key is not None and (arguments.ids or not arguments.topic):
        raise BadInput("--key needs --topic, and excludes ids")
    is_selected = bool(arguments.ids or arguments.key is not None)
    if not is_selected and not arguments.job:
        raise BadInput(
            "no messages are chosen: give ids, --key and --topic, or the --job to resume"
        )
    if arguments.key is not None:
        selection = f"key {arguments.key} of topic {arguments.topic}"
    else:
        selection = f"ids {' '.join(arguments.ids)}"
        selection += f" of topic {arguments.topic}" if arguments.topic else ""

    async def plan(origin: ResendOrigin, target: "Target") -> "list[PlannedMessage]":
        return await _plan(arguments, origin, target)

    group = arguments.to_group
    if group == "":
        access = cluster_access(choose_context(arguments, takes_store=False))
        group = ask_cluster(
            access, lambda admin: _find_failed_group(arguments, ResendOrigin(admin))
        )
        note(f"group {group} failed with it: only this group gets it again")
    target = Target(topic=arguments.to_topic, group=group)
    return run_job(arguments, selection if is_selected else None, target, plan)


def run_job(
    arguments: Namespace, selection: str | None, target: "Target", make_plan: "MakePlan"
) -> ExitCode:
    """Show what a job would send, or run it; without a `selection` the job of --job is resumed."""
    is_there = bool(arguments.job) and Path(arguments.job).exists()
    if selection is None and not is_there:
        raise BadInput(f"--job {arguments.job[:200]}: there is no such file")
    context = choose_context(arguments, takes_store=False)
    access = writable_cluster_access(context) if arguments.send else cluster_access(context)

    with ExitStack() as opened:
        archive = None
        if getattr(arguments, "archive", None):
            from rocketlens.archive.archive import open_archive

            archive = opened.enter_context(open_archive(arguments.archive))

        async def work(admin: "MQAdmin") -> ExitCode:
            origin = ResendOrigin(admin, archive)
            if is_there or selection is None:
                return await _resume(arguments, selection, target, origin, access)
            messages = await make_plan(origin, target)
            if not messages:
                raise MessageNotFound("there is nothing to send")
            return await _start(arguments, selection, target, messages, origin, access)

        return ask_cluster(access, work)


async def _start(  # noqa: PLR0917 - the parts of a new job
    arguments: Namespace,
    selection: str,
    target: "Target",
    messages: "list[PlannedMessage]",
    origin: ResendOrigin,
    access: ClusterAccess,
) -> ExitCode:
    """Show a new job, or create its file and run it."""
    from rocketlens.client.resend.resend_job import check_targets
    from rocketlens.client.resend.resend_journal import ResendJournal

    await check_targets(origin.admin, messages)
    if not arguments.send:
        states = dict.fromkeys(range(1, len(messages) + 1), "would send")
        await _show(arguments, messages, states, origin)
        topics = ", ".join(sorted({each.topic for each in messages})[:_SHOWN_ROWS])
        note(
            f"dry run: {counted(len(messages), 'message')} of {topics} would go to "
            f"{target.words(len(messages))}; "
            "nothing was sent: give --send and --reason TEXT"
        )
        return ExitCode.OK
    if not (arguments.reason or "").strip():
        raise BadInput("--send needs --reason TEXT: it is recorded with what was sent")
    header = _header(arguments, selection, target, len(messages), origin)
    path = Path(arguments.job) if arguments.job else jobs_directory() / f"{header.job}.job"
    with ResendJournal.create(path, header, messages) as journal:
        note(f"the job's file is {path}")
        return await _run(arguments, journal, origin, access)


async def _resume(
    arguments: Namespace,
    selection: str | None,
    target: "Target",
    origin: ResendOrigin,
    access: ClusterAccess,
) -> ExitCode:
    """Show what a job has left, or continue it.

    :raises BadInput: if it is the job of another request, cluster or archive.
    """
    from rocketlens.client.resend.resend_journal import ResendJournal

    with ResendJournal.resume(Path(arguments.job)) as journal:
        header = journal.header
        question = (selection or header.selection, str(target) if selection else header.target)
        if question != (header.selection, header.target):
            raise BadInput(
                f"{journal.path} is the job of another request ({header.selection[:200]}, to "
                f"{header.target[:200]}): give another --job"
            )
        if (header.cluster, header.namespace) != (origin.admin.source.name, origin.admin.namespace):
            raise BadInput(f"{journal.path} is a job of another cluster, {header.cluster[:200]}")
        if header.origin != origin.name:
            raise BadInput(
                f"{journal.path} reads its messages from {header.origin[:200] or 'the cluster'}: "
                "give --archive for an archive, leave it out for the cluster, or resume a job of a "
                "store in the console"
            )
        if arguments.send:
            return await _run(arguments, journal, origin, access)
        states = {}
        for number in range(1, header.count + 1):
            outcome = journal.outcome(number)
            states[number] = "would send" if outcome is None else outcome.state
        await _show(arguments, journal.messages, states, origin)
        note(f"dry run of {journal.path}: {_totals(journal)}; nothing was sent: give --send")
        return ExitCode.OK


async def _run(
    arguments: Namespace, journal: "ResendJournal", origin: ResendOrigin, access: ClusterAccess
) -> ExitCode:
    """Run a job and print the outcome of each message."""
    from rocketlens.client.resend.resend_job import ResendJob, producer_options
    from rocketlens.client.send.producer import Producer

    # The topics of a plan contain the namespace.
    options = {**access.client_options, "namespace": ""}
    async with Producer(access.name_servers, **options, **producer_options()) as producer:
        job = ResendJob(
            journal,
            origin.admin,
            producer,
            rate=arguments.rate,
            resend_unknown=arguments.resend_unknown,
            read=origin.planned,
        )
        has_titles = False
        async for number, planned, outcome in job.run():
            if not has_titles:
                _print_titles(arguments)
                has_titles = True
            detail = outcome.offset_msg_id or outcome.value
            _print_row(arguments, number, planned, outcome.state, detail)
            sys.stdout.flush()
    counts = journal.counts()
    note(f"{_totals(journal)} of {counted(journal.header.count, 'message')}")
    if counts["sent"] and arguments.follow:
        await follow_job(journal, origin.admin, arguments.follow)
    if counts["unknown"]:
        note(f"to look up unknown outcomes again: --job {journal.path} --send")
        return ExitCode.INCOMPLETE
    return ExitCode.NO if counts["failed"] or counts["left"] else ExitCode.OK


async def follow_job(journal: "ResendJournal", admin: "MQAdmin", limit_s: float) -> None:
    """Print the consumption of a job's messages, once it is known or after `limit_s` seconds."""
    from rocketlens.client.resend.follow import CopyFollower, describe_states, follow

    follower = CopyFollower(admin, journal.contents)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    is_noted = False
    try:
        async for _ in follow(follower, lambda came: journal.came(came, now), limit_s):
            if not is_noted and limit_s and not follower.is_over:
                note(f"waiting up to {limit_s:g} s for its consumption (--follow S)")
                is_noted = True
    except RocketLensError as error:
        follower.problem = str(error)
    words = describe_states(journal.contents)
    if words:
        note(words)
    for group in sorted(follower.offline):
        note(f"group {group} has no member online: nothing is consumed now")
    if follower.problem:
        note(f"the consumption of some is unknown: {follower.problem}")


def _totals(journal: "ResendJournal") -> str:
    return ", ".join(f"{count} {name}" for name, count in journal.counts().items())


async def _find_failed_group(arguments: Namespace, origin: ResendOrigin) -> str:
    """Return the group that failed with the messages: their retries or dead letters exist.

    :raises BadInput: if no group failed, or several.
    """
    from rocketlens.client.connect.namespace import without_namespace
    from rocketlens.query.facts.group_state import FAILED_STATES
    from rocketlens.query.request import name_of

    messages = await _find_messages(arguments, origin)
    if len(messages) > _MAX_GROUP_SEARCHES or arguments.archive:
        raise BadInput(
            "--to-group G: the group that failed is found for a few messages of a cluster"
        )
    failed: set[str] = set()
    for each in messages:
        own = life_of(each).group
        if own is None:
            text, kind = name_of(each)
            story = await origin.admin.story(text, each.topic, kind=kind, one=True)
            failed |= {one.group for one in story.groups if one.state in FAILED_STATES}
        else:
            failed.add(own)
    if len(failed) != 1:
        found = f"{', '.join(sorted(failed))} did" if failed else "none did"
        raise BadInput(f"--to-group G: which group failed with them is not clear: {found}")
    return without_namespace(origin.admin.namespace, failed.pop())


async def _plan(
    arguments: Namespace, origin: ResendOrigin, target: "Target"
) -> "list[PlannedMessage]":
    from rocketlens.client.resend.resend_job import plan_message

    chosen = await _find_messages(arguments, origin)
    newest = sorted(chosen, key=lambda each: each.store_timestamp_ms)[-arguments.max :]
    if len(chosen) > arguments.max:
        note(f"{len(chosen)} messages match: only the newest {arguments.max} are taken")
    full_topic = origin.admin.source.full_topic
    taken = {each.offset_msg_id for each in newest}
    return [
        plan_message(each, target, full_topic) for each in chosen if each.offset_msg_id in taken
    ]


async def _find_messages(arguments: Namespace, origin: ResendOrigin) -> list[MessageExt]:
    """:raises MessageNotFound: if an id is not found.
    :raises AnswerIncomplete: if something could not be searched.
    """
    messages = [await origin.message(arguments.topic, each) for each in arguments.ids]
    if arguments.key is not None:
        answer = await origin.find(arguments.key, arguments.topic, kind="key")
        if not answer.complete or answer.truncated:
            why = first_failure(answer.coverage) or "more than an answer can hold"
            raise AnswerIncomplete(f"not all messages with the key were found: {why}", answer)
        # Messages are in order of time: a copy that was sent again comes after the original.
        first: dict[str, MessageExt] = {}
        for message in answer.messages:
            first.setdefault(message.msg_id, message)
        messages = list(first.values())
    return list({each.offset_msg_id: each for each in messages}.values())


def _header(
    arguments: Namespace, selection: str, target: "Target", count: int, origin: ResendOrigin
) -> "JobHeader":
    from secrets import token_hex

    from rocketlens.client.resend.resend_journal import JobHeader

    now = datetime.now(UTC)
    return JobHeader(
        job=f"{now:%Y%m%dT%H%M%S}-{token_hex(6)}",
        count=count,
        selection=selection,
        target=str(target),
        cluster=origin.admin.source.name,
        namespace=origin.admin.namespace,
        reason=arguments.reason,
        user=user_name(),
        time=now.isoformat(timespec="seconds"),
        origin=origin.name,
    )


async def _show(
    arguments: Namespace, messages: Any, states: dict[int, str], origin: ResendOrigin
) -> None:
    """Print a dry run: as a table the first messages with their contents, else all."""
    if arguments.output != "table":
        _print_titles(arguments)
        for number, message in enumerate(messages, 1):
            _print_row(arguments, number, message, states[number], "")
        sys.stdout.flush()
        return

    first = list(islice(messages, _SHOWN_ROWS))
    rows = [
        (number, states[number], *_id_and_positions(message), *await _preview(message, origin))
        for number, message in enumerate(first, 1)
    ]
    has_failures = any(each.topic.startswith(DEAD_LETTER_PREFIX) for each in first)
    columns = _PREVIEW_COLUMNS if has_failures else _PREVIEW_COLUMNS[:-1]
    print_rows(columns, [row[: len(columns)] for row in rows])
    if len(messages) > _SHOWN_ROWS:
        print(f"... and {len(messages) - _SHOWN_ROWS} more (-o csv and -o json show all)")
    sys.stdout.flush()


async def _preview(planned: "PlannedMessage", origin: ResendOrigin) -> tuple[object, str, str, str]:
    """Return time, keys, start of body and last failure of a message.

    They are ``?`` if the message cannot be read; an unknown failure is a dash.
    """
    from rocketlens.cli.last_failures import last_failures

    try:
        message = await origin.planned(planned)
    except RocketLensError:
        return None, "?", "?", "?"
    preview = BodyView().preview(message)[:_PREVIEW_CHARACTERS]
    failures = {}
    if message.topic.startswith(DEAD_LETTER_PREFIX):
        failures = await last_failures(origin.admin, [message])
    failure = failures.get(message.offset_msg_id, NO_VALUE)
    return Moment(message.store_timestamp_ms), " ".join(message.keys), preview, failure


def _id_and_positions(planned: "PlannedMessage") -> tuple[str, str, str]:
    """Return the id of a message, its position, and its target topic."""
    origin = f"{planned.topic}/{planned.queue_id}/{planned.queue_offset}"
    return planned.unique_key or planned.offset_msg_id, origin, planned.target


def _print_titles(arguments: Namespace) -> None:
    if arguments.output == "table":
        print("\t".join(_COLUMNS))
    elif arguments.output == "csv":
        sys.stdout.write(csv_row(_COLUMNS))


def _print_row(
    arguments: Namespace, number: int, planned: "PlannedMessage", state: str, detail: str
) -> None:
    """Print one message; `detail` is the new offset message id, or why it was not sent."""
    if arguments.output == "json":
        print(json_line({"n": number, "state": state, **asdict(planned), "detail": detail}))
        return
    cells = (state, *_id_and_positions(planned), detail)
    if arguments.output == "csv":
        sys.stdout.write(csv_row([str(number), *map(safe_cell, cells)]))
    else:
        print("\t".join((str(number), *map(printable, cells))))

"""``rocketlens dlq``: lists, shows and redrives the dead letters of consumer groups."""

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from rocketlens.cli.find import exit_code, print_answer
from rocketlens.cli.options import (
    add_cluster,
    add_content,
    add_list_output,
    add_max,
    add_source,
    add_times,
    add_verbose,
    content_of,
    option,
    refuse_archive,
    time_range,
)
from rocketlens.cli.printing import MessageOutput, Moment, add_output, print_list
from rocketlens.cli.resend import JOB_EXIT_CODES, ResendOrigin, add_job_options, run_job
from rocketlens.cli.source import choose_source
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError, TopicNotFound
from rocketlens.model.life import dead_letter_topic
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.cluster_access import (
    ask_cluster,
    choose_context,
    cluster_access,
    jobs_directory,
)
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.resend.dead_letters import LetterFilter
    from rocketlens.client.resend.resend_job import Target
    from rocketlens.client.resend.resend_journal import PlannedMessage
    from rocketlens.query.facts.letter_causes import LetterCause

_MAX_CAUSES: Final = 100
"""Causes listed per group. The others are one row."""
_PROMETHEUS: Final = "prometheus"
LIST_EXAMPLES: Final = """
rocketlens dlq list  # the groups that have dead letters, and the causes
rocketlens dlq list billing --since 1h  # one group, the last hour
rocketlens dlq list -n 127.0.0.1:9876 -o json  # a cluster, as JSON
rocketlens dlq list -o prometheus  # causes as metrics, for the textfile collector of node_exporter
"""


def _add_filter(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("dead letters to choose (all conditions must hold)")
    add = partial(option, group)
    add("--key K", "only those with this key or unique key")
    add("--cause TEXT", "only those whose cause has this text: dlq list prints causes")
    add_times(group)
    add_content(group)


def _letter_filter(arguments: Namespace) -> "LetterFilter":
    from rocketlens.client.resend.dead_letters import LetterFilter

    begin, end = time_range(arguments)
    words = {name: getattr(arguments, name) for name in ("key", "cause", "since", "until")}
    content = content_of(arguments)
    asked = LetterFilter.of({**words, **content})
    return replace(asked, options={**content, "begin": begin, "end": end})


def list_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "cause: the exception that RocketLens's consumer recorded, with # for each number, else\n"
        "the topic that the messages were sent to. Without filters the newest 1,000 of a group\n"
        "are read for it; the older ones are one row. last_hour: stored in the last hour.\n"
        "sent_again: those that jobs of this user have sent again, or may have (dlq redrive).\n"
        f"{SEARCH_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", nargs="?", help="only this consumer group")
    add_cluster(parser, "$NAMESRV_ADDR")
    _add_filter(parser)
    add_list_output(
        parser,
        "table (default), CSV, one JSON line per group, or values for Prometheus (up to 20 causes "
        "per group)",
        more=(_PROMETHEUS,),
    )


def run_list(arguments: Namespace) -> ExitCode:
    asked = _letter_filter(arguments)
    access = cluster_access(choose_context(arguments, takes_store=False))
    return ask_cluster(access, lambda admin: _list(arguments, admin, asked))


async def _list(arguments: Namespace, admin: "MQAdmin", asked: "LetterFilter") -> ExitCode:
    from rocketlens.client.connect.namespace import is_in_namespace
    from rocketlens.query.facts.letter_causes import MAX_CAUSE_LABELS, cause_metrics

    listed, failed = await admin.source.topology.topics()
    # A missing broker may have dead letters, too.
    _, surveyed = await admin.source.topology.brokers()
    failed = tuple(each for each in (*failed, *surveyed) if each.is_failure)
    only = None
    if arguments.group:
        only = admin.source.full_topic(dead_letter_topic(arguments.group))
    topics = [
        topic
        for topic in listed
        if topic.startswith(DEAD_LETTER_PREFIX)
        and is_in_namespace(admin.namespace, topic)
        and only in {None, topic}
    ]
    for each in failed:
        note(f"INCOMPLETE: {each.source}: {each.error}")
    is_complete = not failed
    most = MAX_CAUSE_LABELS if arguments.output == _PROMETHEUS else _MAX_CAUSES
    groups = []
    for topic in topics:
        fields, causes = await _letters_of_group(admin, topic, asked, most)
        is_complete &= fields["error"] is None
        if fields["messages"] or fields["error"]:
            groups.append((fields, causes))
    if arguments.output == _PROMETHEUS:
        from rocketlens.net.status_port import exposition

        metrics = cause_metrics((fields["group"], causes) for fields, causes in groups)
        print(exposition([metrics], of_process=False).decode(), end="")
    else:
        _print(arguments.output, [fields for fields, _ in groups])
    if not is_complete:
        return ExitCode.INCOMPLETE
    if not groups:
        note(
            str(no_dead_letters(arguments.group, listed))
            if arguments.group
            else "no group has dead letters"
        )
    return ExitCode.OK if groups else ExitCode.NO


async def _letters_of_group(
    admin: "MQAdmin", topic: str, asked: "LetterFilter", max_causes: int
) -> "tuple[dict[str, Any], list[LetterCause]]":
    """Return the fields of a group for JSON, and its causes."""
    from rocketlens.client.connect.namespace import without_namespace
    from rocketlens.client.resend.dead_letters import find_causes

    sent = _sent_again(admin, topic)
    causes: list[LetterCause] = []
    count, problem = 0, None
    try:
        queues = await admin.message_queues(topic)
        if not queues:
            problem = "its topic cannot be read: give it permission 6"
        for queue in queues if asked.is_all else ():
            first = await admin.min_offset(queue)
            count += max(await admin.max_offset(queue) - first, 0)
        if queues:
            causes = (await find_causes(admin, topic, asked, sent or ())).most(max_causes)
    except RocketLensError as error:
        problem = str(error)
    read = sum(each.messages for each in causes)
    listed = [asdict(each) | ({"sent_again": None} if sent is None else {}) for each in causes]
    if count > read and problem is None:
        unread = dict.fromkeys(("last_hour", "sent_again", "oldest_ms", "newest_ms"))
        listed.append({"cause": "older ones, not read", "messages": count - read, **unread})
    sent_again = None if sent is None else len(sent)
    if sent is not None and not asked.is_all:
        sent_again = sum(each.sent_again for each in causes)
    fields = {
        "group": without_namespace(admin.namespace, topic).removeprefix(DEAD_LETTER_PREFIX),
        "messages": max(count, read),
        "sent_again": sent_again,
        "newest_ms": max((each.newest_ms for each in causes), default=None),
        "causes": listed,
        "error": problem,
    }
    return fields, causes


def _sent_again(admin: "MQAdmin", topic: str) -> Collection[str] | None:
    """Return the messages of a topic that jobs have sent; None if a job's file is damaged."""
    from rocketlens.client.resend.resend_journal import earlier_jobs

    try:
        return earlier_jobs(jobs_directory(), topic, admin.source.name).sent
    except (BadInput, OSError) as error:
        note(f"sent_again is not known: {error}")
        return None


def _print(output: str, groups: Sequence[dict[str, Any]]) -> None:
    if output == "json":
        for fields in groups:
            print(json_line(fields))
        return

    titles = ["group", "messages", "last_hour", "sent_again", "oldest", "newest", "cause"]
    # Most lists have no error.
    titles += ["error"] if any(fields["error"] for fields in groups) else []
    rows = []
    for fields in groups:
        for each in fields["causes"] or [dict.fromkeys(("last_hour", "oldest_ms", "newest_ms"))]:
            times = (each["oldest_ms"], each["newest_ms"])
            row = (
                fields["group"],
                each.get("messages", fields["messages"]),
                each["last_hour"],
                each.get("sent_again", fields["sent_again"]),
                *("" if time_ms is None else Moment(time_ms) for time_ms in times),
                each.get("cause", ""),
                fields["error"] or "",
            )
            rows.append(row[: len(titles)])
    print_list(output, titles, rows)


_DEFAULT_MAX: Final = 50
SHOW_EXAMPLES: Final = """
rocketlens dlq show billing  # the newest dead letters: times, keys, start of bodies
rocketlens dlq show billing --max 500 -o jsonl --body decoded  # for programs, bodies as values
# with the original topic of each
rocketlens dlq show billing --fields time,keys,properties.RETRY_TOPIC,body
"""


def show_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"last_failure: why the group failed last, if its clients recorded it.\n{SEARCH_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_source(parser)
    refuse_archive(
        parser,
        "dead letters that were archived are messages of a topic: `rocketlens find --archive DIR "
        f"-t {DEAD_LETTER_PREFIX}GROUP`",
    )
    add_max(parser, _DEFAULT_MAX)
    _add_filter(parser)
    add_output(parser)
    add_verbose(parser)


def run_show(arguments: Namespace) -> ExitCode:
    from rocketlens.cli.last_failures import last_failures, last_failures_in
    from rocketlens.client.resend.dead_letters import newest_letters, newest_letters_in
    from rocketlens.query.request import FindRequest

    topic, asked = dead_letter_topic(arguments.group), _letter_filter(arguments)
    request = FindRequest.parse(topic=topic, max_num=arguments.max, **asked.options)
    failures: dict[str, str] = {}
    more = {"last_failure": lambda message: failures.get(message.offset_msg_id)}
    output = MessageOutput.of(arguments, more=more)
    source = choose_source(arguments)
    try:
        if asked.key is None and asked.cause is None:
            answer = source.find(request)
        else:
            answer = source.ask(
                lambda store: newest_letters_in(store, topic, asked, arguments.max),
                lambda admin: newest_letters(admin, topic, asked, arguments.max),
            )
    except TopicNotFound as error:
        listed = source.ask(lambda store: store.topics(), lambda admin: admin.topics())
        raise no_dead_letters(arguments.group, [each.name for each in listed]) from error
    failures |= source.ask(
        lambda store: last_failures_in(store, answer.messages),
        lambda admin: last_failures(admin, answer.messages),
    )
    print_answer(answer, output, is_object=arguments.output == "json", verbose=arguments.verbose)
    return exit_code(answer)


REDRIVE_EXAMPLES: Final = """
rocketlens dlq redrive billing  # a dry run: shows what would be sent
rocketlens dlq redrive billing --send --reason 'ticket 7' --rate 50  # send it, 50 messages a second
# to every group of the original topic, the newest ten of them
rocketlens dlq redrive billing --to original --max 10
# those of one cause, as dlq list prints it
rocketlens dlq redrive billing --cause TimeoutError --since yesterday
"""


def redrive_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Dead letters are copied, not removed. Of several records of one message the newest is\n"
        "sent. Messages that jobs (files in the same directory) have sent are left out, unless\n"
        f"they have become dead letters again.\n{JOB_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_cluster(parser, "$NAMESRV_ADDR")
    add = partial(option, parser)
    add(
        "--to",
        "retry (default): only this group gets them again; original: they go to their original "
        "topics, so every group of those topics gets them",
        choices=("retry", "original"),
        default="retry",
    )
    add("--again", "also send what earlier jobs have sent")
    _add_filter(parser)
    add_job_options(parser)


def run_redrive(arguments: Namespace) -> ExitCode:
    from rocketlens.client.resend.dead_letters import dead_letter_selection
    from rocketlens.client.resend.resend_job import Target

    asked = _letter_filter(arguments)
    is_original = arguments.to == "original"
    target = Target(group=None if is_original else arguments.group, original=is_original)
    selection = dead_letter_selection(arguments.group, asked)

    async def plan(origin: ResendOrigin, target: "Target") -> "list[PlannedMessage]":
        return await _plan(arguments, origin.admin, target, asked)

    return run_job(arguments, selection, target, plan)


async def _plan(
    arguments: Namespace, admin: "MQAdmin", target: "Target", asked: "LetterFilter"
) -> "list[PlannedMessage]":
    """:raises MessageNotFound: if the group has no dead letters.
    :raises AnswerIncomplete: if some of them could not be read.
    """
    from rocketlens.client.resend.dead_letters import plan_dead_letters
    from rocketlens.client.resend.resend_journal import EarlierSend, earlier_jobs, in_words

    earlier: dict[str, EarlierSend] = {}
    if not arguments.again:
        directory = Path(arguments.job).parent if arguments.job else jobs_directory()
        topic = admin.source.full_topic(dead_letter_topic(arguments.group))
        earlier, unfinished = earlier_jobs(directory, topic, admin.source.name)
        for path in unfinished:
            problem = f"{path} is a job of this group with messages left: resume it with --job"
            if arguments.send:
                raise BadInput(f"{problem}, or send all dead letters with --again")
            note(problem)
    try:
        plan = await plan_dead_letters(
            admin, arguments.group, target, earlier=earlier, max_num=arguments.max, asked=asked
        )
    except TopicNotFound as error:
        names = [each.name for each in await admin.topics()]
        raise no_dead_letters(arguments.group, names) from error
    if plan.older:
        note(f"{plan.older} older records of the same messages are left out")
    if plan.again:
        note(f"{len(plan.again)} were sent before, and failed again: {in_words(plan.again)}")
    if plan.skipped:
        note(
            f"{len(plan.skipped)} were sent by earlier jobs, or may have been (--again sends "
            f"those, too): {in_words(plan.skipped)}"
        )
    if plan.is_cut:
        note(f"there are more: only the newest {arguments.max} are taken")
    return plan.messages


def no_dead_letters(group: str, topics: Iterable[str]) -> MessageNotFound:
    """Return the error for a group without dead letters; it suggests groups that have some."""
    prefix = DEAD_LETTER_PREFIX
    groups = (each.removeprefix(prefix) for each in topics if each.startswith(prefix))
    return MessageNotFound(
        f"group {group[:100]} has no dead letters{suggestion(group, groups)} (rocketlens dlq list: "
        "the groups that have some)"
    )

"""``rocketlens topics``: lists the topics of a store, a cluster or an archive."""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from rocketlens.cli.find import exit_code
from rocketlens.cli.options import add_archive, add_list_output, add_source, option
from rocketlens.cli.printing import Moment, print_list, print_listing, print_rows
from rocketlens.cli.source import choose_source
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import lite_topic
from rocketlens.model.text.counted import counted
from rocketlens.model.topic import FoundTopic, TopicKind, TopicQueue, TopicsAnswer
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note, size_text
from rocketlens.terminal.waiting_messages import waiting_in_cluster, waiting_in_store

if TYPE_CHECKING:
    from rocketlens.archive.archive import Archive
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.facts.waiting import WaitingMessages
    from rocketlens.query.offline import Store

_TITLES: Final = ("topic", "queues", "messages", "waiting", "oldest", "newest", "size", "note")
_QUEUE_TITLES: Final = ("broker", "queue_id", "min_offset", "max_offset", "oldest", "newest")
EXAMPLES: Final = """
rocketlens topics --store /data/rocketmq/store  # the topics of a store
rocketlens topics 'order-*' -n 127.0.0.1:9876  # some topics of a cluster
rocketlens topics --archive /lake/rocketmq  # the topics of an archive
rocketlens topics --lite sessions 'alice-*'  # the lite topics of a parent topic
rocketlens topics --all -o json  # all topics, as JSON
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"{SEARCH_EXIT_CODES}\n"
        "?: not known, such as the queues of a deleted topic. Brokers do not report sizes. A\n"
        "topic of the broker was created by the broker, under its own name or its cluster's.\n"
        "waiting: delayed messages and timers for the topic that are not due yet."
    )
    parser.add_argument(
        "topic",
        metavar="TOPIC",
        nargs="*",
        help="list only these; *, ? and [ab] are wildcards; one topic is shown with its queues",
    )
    add = partial(option, parser)
    add("--all", "include RocketMQ's own topics, and those of groups: retries, dead letters")
    add(
        "--lite PARENT",
        "list the lite topics (RocketMQ 5.5) of this parent; TOPIC is then the name of one",
    )
    add_source(parser)
    add_archive(parser, with_others=False)
    add_list_output(parser)


def run(arguments: Namespace) -> ExitCode:
    listing, waiting = _find(arguments)
    kind = TopicKind.NORMAL if arguments.lite is None else TopicKind.LIGHT
    takes_all = arguments.lite is None and (arguments.all or arguments.topic)
    shown = [topic for topic in listing.topics if takes_all or topic.kind is kind]
    rows = _rows(shown, waiting, arguments.lite)
    if arguments.output == "json":
        # The parent has the settings that its lite topics share.
        _print_json(listing, listing.topics if arguments.lite else shown, waiting)
    else:
        print_list(arguments.output, _TITLES, rows)
        is_one = bool(arguments.topic) and len(shown) == 1 and arguments.output == "table"
        if is_one and shown[0].queues:
            print()
            print_rows(_QUEUE_TITLES, map(_queue_row, shown[0].queues))
    sys.stdout.flush()
    answer = Answer("topics", (), listing.coverage)
    if not answer.complete:
        print_notes(answer, len(shown), "topic")
    elif arguments.lite is None and not shown:
        note(
            "there are no topics"
            + (" but those of RocketMQ and of groups" if listing.topics else "")
        )
    hidden = Counter(topic.kind for topic in listing.topics if topic not in shown)
    if arguments.lite is not None:
        _note_parent(listing, arguments.lite)
    elif hidden:
        kinds = ", ".join(
            f"{count} {kind.replace('_', ' ')}" for kind in TopicKind if (count := hidden[kind])
        )
        note(f"not shown: {kinds} (--all shows them)")
    return exit_code(answer, len(shown))


def _find(arguments: Namespace) -> "tuple[TopicsAnswer, WaitingMessages | None]":
    """Return the topics and the number of messages that wait for each; None if unknown."""
    names = arguments.topic or None
    if arguments.lite is not None:
        names = [arguments.lite, *(lite_topic(arguments.lite, name) for name in names or ["*"])]

    async def in_cluster(admin: "MQAdmin") -> "tuple[TopicsAnswer, WaitingMessages | None]":
        return await admin.topics(names), await waiting_in_cluster(admin)

    def in_store(store: "Store") -> "tuple[TopicsAnswer, WaitingMessages | None]":
        answer = store.topics(names)
        return answer, waiting_in_store(store, answer)

    def in_archive(archive: "Archive") -> "tuple[TopicsAnswer, None]":
        if arguments.lite is not None:
            raise BadInput(
                f"an archive has no queues of lite topics: find their messages in {arguments.lite} "
                "by the property __LITE_TOPIC (--where)"
            )
        return archive.topics(names), None

    return choose_source(arguments).ask(in_store, in_cluster, in_archive)


def _note_parent(listing: TopicsAnswer, parent: str) -> None:
    """Print the settings that the lite topics of a parent share."""
    for lite in (topic.lite for topic in listing.topics if topic.name == parent):
        if lite is None:
            note(
                f"{parent} is no parent of lite topics: no broker of RocketMQ 5.5 or later has it "
                "as a topic whose message.type is LITE"
            )
            continue
        minutes, groups = lite.ttl_minutes, ", ".join(lite.groups) or "none"
        kept = f"{minutes} min after its last message" if minutes > 0 else "for ever"
        count = "?" if lite.count is None else lite.count
        note(f"{parent}: {count} lite topics, each kept {kept}; groups: {groups}")


def _rows(
    topics: Sequence[FoundTopic], waiting: "WaitingMessages | None", parent: str | None
) -> Iterator[tuple[object, ...]]:
    # Topics of a cluster have no size.
    unknown_size = None if any(topic.size_bytes is not None for topic in topics) else ""
    prefix = "" if parent is None else lite_topic(parent, "")
    for topic in topics:
        yield (
            topic.name.removeprefix(prefix),
            None if topic.queues is None else len(topic.queues),
            topic.messages,
            _waiting(topic, waiting),
            _time(topic.oldest_ms, topic.messages),
            _time(topic.newest_ms, topic.messages),
            unknown_size if topic.size_bytes is None else size_text(topic.size_bytes),
            _remark(topic),
        )


def _remark(topic: FoundTopic) -> str:
    if topic.lite is not None:
        count = topic.lite.count
        return "lite topics" if count is None else counted(count, "lite topic")
    return "deleted" if topic.is_deleted else "of the broker" if topic.is_of_broker else ""


def _waiting(topic: FoundTopic, waiting: "WaitingMessages | None") -> object:
    """Return the number of messages that wait for a topic; a plus marks a minimum."""
    if waiting is None:
        return None
    count = waiting.counts.get(topic.name, 0)
    return count if waiting.is_exact else f"{count}+"


def _queue_row(queue: TopicQueue) -> Sequence[object]:
    return (
        queue.broker_name,
        queue.queue_id,
        queue.min_offset,
        queue.max_offset,
        _time(queue.oldest_ms, queue.messages),
        _time(queue.newest_ms, queue.messages),
    )


def _time(epoch_ms: int | None, messages: int | None) -> Moment | str | None:
    if epoch_ms is None:
        return "" if messages == 0 else None
    return Moment(epoch_ms)


def _print_json(
    answer: TopicsAnswer, shown: Sequence[FoundTopic], waiting: "WaitingMessages | None"
) -> None:
    topics: list[dict[str, Any]] = [
        {
            **asdict(topic),
            "kind": topic.kind,
            "messages": topic.messages,
            "waiting": None if waiting is None else waiting.counts.get(topic.name, 0),
            "size_bytes": topic.size_bytes,
            "oldest_ms": topic.oldest_ms,
            "newest_ms": topic.newest_ms,
        }
        for topic in shown
    ]
    is_exact = waiting is not None and waiting.is_exact
    complete = answer.complete
    print_listing("topics", topics, answer.coverage, complete=complete, waiting_is_exact=is_exact)

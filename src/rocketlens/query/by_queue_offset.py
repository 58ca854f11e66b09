"""Finds the message at one place of one queue: by its consume queue, or by reading the log."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    RecordError,
)
from rocketlens.formats.commitlog_record import Record, has_queue_entry, message_of
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model import properties as props
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.java import decode_utf8
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import LMQ_PREFIX, is_topic_name
from rocketlens.query.by_time import QueuePlace, Scan
from rocketlens.query.source import CONSUME_QUEUE, StoreSource
from rocketlens.query.verify import Wanted
from rocketlens.store.read.consumequeue import ConsumeQueue
from rocketlens.store.read.former_topics import ends_of_former, runs_of


def query_by_queue_offset(
    source: StoreSource, topic: str, queue_id: int, queue_offset: int
) -> Answer:
    """Give the message at a queue offset, as an answer of one or none.

    A consume queue that has no entry there, or a wrong one, is not believed: the stretch of log
    that could hold the message is read.

    :raises BadInput: when the topic can be none, or a number is negative.
    """
    if not is_topic_name(topic):
        message = f"{topic[:80]!r} is no topic: RocketMQ allows letters, digits, % | _ and -"
        raise BadInput(message)
    if queue_id < 0 or queue_offset < 0:
        message = f"queue {queue_id}, offset {queue_offset}: both begin at 0"
        raise BadInput(message)
    query = f"{topic}/{queue_id}/{queue_offset}"
    name = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
    try:
        return _by_queue(source, (topic, queue_id, queue_offset), query, name)
    except OSError as error:
        # The queue says nothing, and the log decides.
        text = f"cannot be read: {error.strerror}"
        state = Coverage(name, SourceKind.CONSUME_QUEUE, SourceState.DAMAGED, None, text)
        stretch = (source.log.min_offset, None)
        return _read_log(source, query, state, QueuePlace(queue_id, queue_offset), stretch)


def _by_queue(source: StoreSource, place: tuple[str, int, int], query: str, name: str) -> Answer:
    """Ask the consume queue, and read the log where that does not lead to the message.

    :raises OSError: when the queue cannot be read.
    """
    topic, queue_id, queue_offset = place
    queue = source.queues.queue(topic, queue_id)
    entry = _entry(queue, queue_offset) if queue else None
    if entry is None:
        state = Coverage(name, SourceKind.CONSUME_QUEUE, SourceState.SEARCHED)
    elif queue and _is_deleted(source, queue, queue_offset, entry):
        return _deleted(source, query, name, entry)
    else:
        record, error = _record_of(source, entry, place)
        if record is not None:
            return _found(source, query, name, record)
        state = Coverage(name, SourceKind.CONSUME_QUEUE, SourceState.DAMAGED, None, error)
    stretch = _stretch(source, queue, queue_offset)
    return _read_log(source, query, state, QueuePlace(queue_id, queue_offset), stretch)


def message_of_answer(answer: Answer) -> MessageExt:
    """Give the one message of an answer.

    :raises MessageNotFound: when there is none, and everything was searched.
    :raises AnswerIncomplete: when there is none, and something could not be searched.
    """
    if answer.messages:
        return answer.messages[0]
    if answer.complete:
        reasons = [c.error for c in answer.coverage if c.error]
        detail = f": {reasons[0]}" if reasons else ""
        raise MessageNotFound(f"{answer.query} is not in this store{detail}")
    errors = "; ".join(str(c.error) for c in answer.failures[:3])
    raise AnswerIncomplete(f"{answer.query} was not found, but: {errors}", answer)


def _entry(queue: ConsumeQueue, queue_offset: int) -> QueueEntry | None:
    """Give the entry; files that a broker made since the queue was opened are looked for."""
    entry = queue.entry(queue_offset)
    if entry is None:
        queue.refresh()
        entry = queue.entry(queue_offset)
    return entry


def _is_deleted(
    source: StoreSource, queue: ConsumeQueue, queue_offset: int, entry: QueueEntry
) -> bool:
    """Say whether an entry leads to what the broker deleted, and its neighbours agree.

    Entries ascend: the one before is deleted, too. Of the newest deleted one, the next can still
    be there; then the little log before that is read to be sure.
    """
    if not 0 <= entry.physical_offset < source.log.min_offset:
        return False
    before, after = queue.entry(queue_offset - 1), queue.entry(queue_offset + 1)
    if before is not None and before.physical_offset >= entry.physical_offset:
        return False
    return after is None or entry.physical_offset < after.physical_offset < source.log.min_offset


def _deleted(source: StoreSource, query: str, name: str, entry: QueueEntry) -> Answer:
    error = (
        f"it was at physical offset {entry.physical_offset}; the log now begins at "
        f"{source.log.min_offset}"
    )
    queue = Coverage(name, SourceKind.CONSUME_QUEUE, SourceState.SEARCHED, None, error)
    return Answer(query, (), (queue, source.record_coverage(entry.physical_offset)))


def _record_of(
    source: StoreSource, entry: QueueEntry, place: tuple[str, int, int]
) -> tuple[Record | None, str | None]:
    """Read the record an entry points to, if it is the one of this place; else say why not."""
    try:
        record = source.log.record_at(entry.physical_offset)
    except RecordError as error:
        return None, f"its entry {place[2]} leads to a bad {error}"
    if place[0].startswith(LMQ_PREFIX):
        if place[0] not in _lite_places(props.parse(decode_utf8(record.properties))):
            return None, f"its entry {place[2]} leads to a message that was not sent there"
    elif (record.topic, record.queue_id, record.queue_offset) != place:
        return None, f"its entry {place[2]} leads to a message of {_place_of(record)}"
    if not source.is_record_start(record):
        return None, f"its entry {place[2]} leads to no record's start"
    return record, None


def _place_of(record: Record) -> str:
    return f"{record.topic}/{record.queue_id}/{record.queue_offset}"


def _lite_places(properties: Mapping[str, str]) -> dict[str, str]:
    """Give the lite queues that a message was also put in, each with its offset there as text.

    The broker counts these offsets apart from the queues' own, and can get them wrong, so an
    entry of such a queue is believed before them.
    """
    topics = properties.get(props.MULTI_DISPATCH, "").split(",")
    offsets = properties.get(props.MULTI_QUEUE_OFFSET, "").split(",")
    return dict(zip_longest(topics, offsets[: len(topics)], fillvalue=""))


def _found(source: StoreSource, query: str, name: str, record: Record) -> Answer:
    newest_ms = record.store_timestamp_ms
    queue = Coverage(name, SourceKind.CONSUME_QUEUE, SourceState.SEARCHED, newest_ms)
    log = source.record_coverage(record.physical_offset, record.total_size, newest_ms=newest_ms)
    messages = (message_of(record),)
    return Answer(query, messages, (queue, log), index_last_update_timestamp_ms=newest_ms)


def _read_log(
    source: StoreSource,
    query: str,
    queue: Coverage,
    place: QueuePlace,
    stretch: tuple[int, int | None],
) -> Answer:
    """Look for the message of a place in the stretch of log, and if need be behind it."""
    topic = query.rsplit("/", 2)[0]
    start, stop = stretch
    if topic.startswith(LMQ_PREFIX):
        scan = Scan(source, Wanted(), start=start, stop=stop)
        claimed = str(place.queue_offset)
        messages = [m for m in scan if _lite_places(m.properties).get(topic) == claimed]
        return _answer_of_scan(query, queue, scan, messages)
    scan = Scan(source, Wanted(topic=topic), place, start=start, stop=stop)
    messages = _of_queue(scan)
    if messages and stop is not None:
        return _answer_of_scan(query, queue, scan, messages)
    before: tuple[Coverage, ...] = ()
    if stop is not None:
        # The entry that bounds the stretch may be of a topic that was made again since.
        before = scan.coverage
        scan = Scan(source, Wanted(topic=topic), place, start=stop)
        messages = _of_queue(scan)
    current = messages
    if messages:
        begin = _begin_of_queue(source, topic, place.queue_id)
        current = [message for message in messages if message.physical_offset >= begin]
        if not current:
            detail = (
                f"physical offset {messages[-1].physical_offset} has one of topic {topic} before "
                "it was deleted and made again"
            )
            queue = replace(queue, error=queue.error or detail)
    return _answer_of_scan(query, queue, scan, current[-1:], before)


def _of_queue(scan: Scan) -> list[MessageExt]:
    """Return the messages of a scan that a consume queue has entries for."""
    return [message for message in scan if has_queue_entry(message.sys_flag)]


def _begin_of_queue(source: StoreSource, topic: str, queue_id: int) -> int:
    """Return the physical offset below which a queue's messages are of a former topic.

    That is one of the same name, deleted since: its messages stay in the log until they expire.
    O(log).
    """
    queue_offsets: defaultdict[int, list[int]] = defaultdict(list)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    for place, physical_offset in Scan(source, Wanted(topic=topic)).places():
        queue_offsets[place.queue_id].append(place.queue_offset)
        offsets[place.queue_id].append(physical_offset)
    runs = {
        each: list(runs_of([n for n, offset in enumerate(own) if not offset], own, offsets[each]))
        for each, own in queue_offsets.items()
    }
    return ends_of_former(runs).get(queue_id, 0)


def _answer_of_scan(
    query: str,
    queue: Coverage,
    scan: Scan,
    messages: list[MessageExt],
    before: tuple[Coverage, ...] = (),
) -> Answer:
    coverage = (*before, *scan.coverage)
    if messages:
        # One place of a queue has one message: what else is damaged was not asked for.
        coverage = tuple(
            replace(each, state=SourceState.DAMAGED) if each.state is SourceState.FAILED else each
            for each in coverage
        )
    return Answer(
        query,
        tuple(messages[:1]),
        (queue, *coverage),
        index_last_update_timestamp_ms=scan.last_timestamp_ms,
    )


def _stretch(
    source: StoreSource, queue: ConsumeQueue | None, queue_offset: int
) -> tuple[int, int | None]:
    """Give the part of the log that a queue's message must be in, by its readable neighbours."""
    start, stop = source.log.min_offset, None
    if queue is None:
        return start, stop
    before = _believed(source, queue, range(queue_offset - 1, queue_offset - 9, -1))
    after = _believed(source, queue, range(queue_offset + 1, queue_offset + 9))
    if before is None and queue_offset >= queue.max_offset:
        before = _believed(source, queue, range(queue.max_offset - 1, queue.max_offset - 9, -1))
    if before is not None and before.physical_offset >= start:
        start = before.physical_offset
    if after is not None:
        stop = after.physical_offset
    return start, stop


def _believed(source: StoreSource, queue: ConsumeQueue, queue_offsets: range) -> QueueEntry | None:
    """Give the first entry of some that its own record confirms."""
    for queue_offset in queue_offsets:
        entry = queue.entry(queue_offset) if queue_offset >= 0 else None
        if entry is None:
            continue
        try:
            record = source.log.record_at(entry.physical_offset, check_crc=False)
        except RecordError:
            continue
        topic, queue_id = queue.directory.parent.name, queue.directory.name
        if (record.topic, str(record.queue_id)) == (topic, queue_id) and (
            (record.queue_offset, record.total_size) == (queue_offset, entry.store_size)
        ):
            return entry
    return None

"""Finds the record of an offset message id."""

from msgspec.structs import replace

from rocketlens.errors import AnswerIncomplete, MessageNotFound, RecordError
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.model.answer import Answer
from rocketlens.model.message_id import OffsetMessageId, pack_address
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import QueuePosition
from rocketlens.query.store_reader import StoreReader, unfinished
from rocketlens.query.tiered import position_of
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.store.read.tiers import QueueLog


def find_by_offset_id(
    reader: StoreReader,
    offset_msg_id: OffsetMessageId,
    message_filter: MessageFilter,
    findings: Findings,
) -> None:
    offset = offset_msg_id.physical_offset
    try:
        record = record_of_offset_id(reader, offset_msg_id)
    except AnswerIncomplete as error:
        findings.cover(error.answer.coverage)
        return
    except MessageNotFound as error:
        findings.cover((reader.record_coverage(offset, detail=str(error)),))
        return
    newest_ms, detail = record.store_timestamp_ms, None
    if message_filter.matches(record):
        findings.take(record)
    elif not message_filter.is_of_topics(record):
        detail = f"{offset_msg_id.encode()} is a message of topic {record.topic}"
    size = record.total_size
    log = reader.record_coverage(offset, size, newest_ms=newest_ms, detail=detail)
    findings.cover((log,))
    findings.indexed_to_ms = max(findings.indexed_to_ms, newest_ms)


def record_of_offset_id(reader: StoreReader, offset_msg_id: OffsetMessageId) -> Record:
    """Return the record with this offset message id.

    The bytes must be a whole record with this offset that really starts there (a body can contain
    bytes that look like a record). Its store host must be that of the id, because other brokers
    have other messages at the same offset.

    :raises MessageNotFound: if this store does not have the message.
    :raises AnswerIncomplete: if the message is damaged or cannot be read at the moment.
    """
    offset = offset_msg_id.physical_offset
    log = reader.log
    if offset < log.min_offset:
        record = _in_tiered_storage(reader, offset_msg_id)
        if record is not None:
            return record
        elsewhere = reader.missing_older(None)
        if elsewhere:
            msg_id = offset_msg_id.encode()
            answer = Answer(msg_id, (), elsewhere)
            raise AnswerIncomplete(f"{msg_id}: {elsewhere[0].error}", answer)
        detail = f"the log begins at physical offset {log.min_offset}, earlier messages are deleted"
        raise MessageNotFound(f"{offset_msg_id.encode()}: {detail}")
    try:
        record = log.record_at(offset)
    except RecordError as error:
        if _is_unread(reader, offset, error) or _was_the_record(reader, offset_msg_id, error):
            raise _damaged(reader, offset_msg_id, str(error)) from error
        raise _no_record(offset_msg_id) from error
    is_there = record.physical_offset == offset
    if is_there and not _is_host(record, offset_msg_id):
        detail = f"physical offset {offset} holds a message of {record.store_host} here"
        raise MessageNotFound(f"{offset_msg_id.encode()}: {detail}")
    if not (is_there and reader.is_record_start(record)):
        raise _no_record(offset_msg_id)
    if not log.is_finished(record) and reader.is_indexed(record) is not True:
        raise _damaged(reader, offset_msg_id, unfinished(offset)[0])
    return record


def _no_record(offset_msg_id: OffsetMessageId) -> MessageNotFound:
    offset = offset_msg_id.physical_offset
    text = f"{offset_msg_id.encode()}: no record begins at physical offset {offset}"
    return MessageNotFound(text)


def _in_tiered_storage(reader: StoreReader, offset_msg_id: OffsetMessageId) -> Record | None:
    """Return the record of a message that only tiered storage has; None without tiered storage.

    Tiered storage does not keep the offset in the log. Only a consume queue that still has the
    message's entry reveals its queue offset.

    :raises AnswerIncomplete: if no queue has the entry.
    """
    if not reader.tiered.is_needed(None):
        return None
    logs, lost = reader.tiered.logs(lambda _: True)
    offset = offset_msg_id.physical_offset
    for queue, log in logs:
        queue_offset = _queue_offset_of(reader, queue, offset)
        if queue_offset is None:
            continue
        position = QueuePosition(queue.topic, queue.queue_id, queue_offset)
        start = position_of(log, queue, queue_offset)
        stop = None if start is None else start + 1
        scan = Scan(log, MessageFilter(topic=queue.topic), position, start=start, stop=stop)
        for record in scan.records():
            if _is_host(record, offset_msg_id):
                return replace(record, physical_offset=offset)
    msg_id = offset_msg_id.encode()
    error = (
        f"the log begins at physical offset {reader.log.min_offset}; older messages are in tiered "
        "storage, without the offsets that they had: look for a key, a unique key or a position "
        "TOPIC/QUEUE/OFFSET"
    )
    answer = Answer(msg_id, (), (*reader.log_failures([error]), *lost))
    raise AnswerIncomplete(f"{msg_id}: {error}", answer)


def _queue_offset_of(reader: StoreReader, name: QueueLog, physical_offset: int) -> int | None:
    """Return the queue offset of a message by its physical offset; None without its entry."""
    try:
        queue = reader.queues.queue(name.topic, name.queue_id)
        if queue is not None:
            queue_offset = queue.first_kept(physical_offset)
            entry = queue.entry(queue_offset)
            if entry is not None and entry.physical_offset == physical_offset:
                return queue_offset
    except OSError:
        pass
    return None


def _is_unread(reader: StoreReader, offset: int, error: RecordError) -> bool:
    """Return whether the bytes at an offset of the log are lost, or unreadable at the moment."""
    if offset < reader.log.min_offset:
        return False
    if offset >= reader.least_end() and reader.lost_end() is not None:
        return True
    is_hole = reader.log.segment_of(offset) is None and offset < reader.log.max_offset
    return is_hole or isinstance(error, SegmentLost) or reader.log.unlisted is not None


def _is_host(record: Record, offset_msg_id: OffsetMessageId) -> bool:
    if record.store_host == offset_msg_id.store_host:
        return True
    # An IPv6 address has several text forms.
    return (pack_address(record.store_host.address), record.store_host.port) == (
        pack_address(offset_msg_id.store_host.address),
        offset_msg_id.store_host.port,
    )


def _was_the_record(
    reader: StoreReader, offset_msg_id: OffsetMessageId, error: RecordError
) -> bool:
    if error.reason == Reason.CRC:
        record = reader.log.record_at(offset_msg_id.physical_offset, check_crc=False)
        return _is_host(record, offset_msg_id) and reader.is_record_start(record)
    return reader.starts.is_damaged_at(offset_msg_id.physical_offset)


def _damaged(reader: StoreReader, offset_msg_id: OffsetMessageId, error: str) -> AnswerIncomplete:
    msg_id = offset_msg_id.encode()
    answer = Answer(msg_id, (), tuple(reader.log_failures([error])))
    return AnswerIncomplete(f"{msg_id} cannot be read: {error}", answer)

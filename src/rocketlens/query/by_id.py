"""Finds the one record that an offset message id names."""

from rocketlens.errors import AnswerIncomplete, MessageNotFound, RecordError
from rocketlens.formats.commitlog_record import Reason, Record, message_of
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId, pack_address
from rocketlens.query.source import StoreSource, unfinished
from rocketlens.store.read.commitlog import SegmentLost


def view_by_offset_id(source: StoreSource, offset_msg_id: str) -> MessageExt:
    """Give the message that the broker gave this id to.

    The bytes there must be a whole record that belongs at this offset, really begins there (bytes
    inside a body can look like one) and carries the host that the id names: another broker has
    other messages at the same offsets.

    :raises BadInput: when the text is no offset message id.
    :raises MessageNotFound: when this store has no such message.
    :raises AnswerIncomplete: when it had one, which is damaged, or it cannot be looked at now.
    """
    asked = OffsetMessageId.decode(offset_msg_id)
    offset = asked.physical_offset
    log = source.log
    if offset < log.min_offset:
        detail = f"the log begins at physical offset {log.min_offset}, what was before is deleted"
        raise MessageNotFound(f"{offset_msg_id}: {detail}")
    try:
        record = log.record_at(offset)
    except RecordError as error:
        if _is_unread(source, offset, error):
            raise _damaged(source, offset_msg_id, str(error)) from error
        if _was_the_record(source, asked, error):
            raise _damaged(source, offset_msg_id, str(error)) from error
        detail = f"no record begins at physical offset {offset}"
        raise MessageNotFound(f"{offset_msg_id}: {detail}") from error
    if not _is_host(record, asked):
        detail = f"physical offset {offset} holds a message of {record.store_host} here"
        raise MessageNotFound(f"{offset_msg_id}: {detail}")
    if not source.is_record_start(record):
        detail = f"no record begins at physical offset {offset}"
        raise MessageNotFound(f"{offset_msg_id}: {detail}")
    if not log.is_finished(record) and source.knows(record) is not True:
        raise _damaged(source, offset_msg_id, unfinished(offset)[0])
    return message_of(record)


def _is_unread(source: StoreSource, offset: int, error: RecordError) -> bool:
    """Say whether the bytes at an offset that the log has, or had, cannot be looked at."""
    if offset < source.log.min_offset:
        return False
    is_hole = source.log.segment_of(offset) is None and offset < source.log.max_offset
    return is_hole or isinstance(error, SegmentLost) or source.log.unlisted is not None


def _is_host(record: Record, asked: OffsetMessageId) -> bool:
    return (pack_address(record.store_host.address), record.store_host.port) == (
        pack_address(asked.store_host.address),
        asked.store_host.port,
    )


def _was_the_record(source: StoreSource, asked: OffsetMessageId, error: RecordError) -> bool:
    """Say whether unreadable bytes are those of the record that was asked for."""
    if error.reason == Reason.CRC:
        record = source.log.record_at(asked.physical_offset, check_crc=False)
        return _is_host(record, asked) and source.is_record_start(record)
    return source.begins_here(asked.physical_offset)


def _damaged(source: StoreSource, offset_msg_id: str, error: str) -> AnswerIncomplete:
    coverage = tuple(source.log_failures([error]))
    answer = Answer(offset_msg_id, (), coverage)
    return AnswerIncomplete(f"{offset_msg_id} cannot be read: {error}", answer)

"""The end of a transaction (37).

A commit stores the half message again, in its real topic, with the half's physical offset in
``prepared_transaction_offset``; a rollback stores nothing. Both leave a mark in
RMQ_SYS_TRANS_OP_HALF_TOPIC: tag ``d``, and the half's queue offset as text. Source:
``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.ended import EndedHalves
from rocketlens.errors import RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import Record, pack_host
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8
from rocketlens.model.rocketmq import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.store.write.queue_append import QueueWriter
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import transaction as commands
from rocketlens.wire.commands.transaction import COMMIT, ROLLBACK, EndTransactionRequest
from rocketlens.wire.declare import read_i32

_MARK_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d\x02"


class TransactionProcessor:
    """Ends transactions."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._highest_level: Final = len(core.settings.store.messageDelayLevel.split())
        self._ended: Final = EndedHalves(core.store, core.search)

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {RequestCode.END_TRANSACTION: self.end}

    def end(self, command: RemotingCommand, _: Channel) -> Response | Awaitable[Response | None]:
        """Commit or roll back; unknown leaves it open."""
        asked = commands.END_TRANSACTION.request.decode(command.ext_fields)
        if asked.commit_or_rollback not in (COMMIT, ROLLBACK):
            return Response()
        half = self._half(asked.commit_log_offset)
        refused = _refusal(half, asked)
        if half is None or refused is not None:
            return Response(ResponseCode.SYSTEM_ERROR, remark=refused)
        is_commit = asked.commit_or_rollback == COMMIT
        if not self._ended.knows(half):
            return self._end_later(half, is_commit=is_commit)
        return self._end(half, is_commit=is_commit)

    async def _end_later(self, half: Record, *, is_commit: bool) -> Response | None:
        await self._ended.read_back(half)
        return self._end(half, is_commit=is_commit)

    def _end(self, half: Record, *, is_commit: bool) -> Response:
        """End a transaction; one that was ended is not ended again."""
        if not self._ended.is_ended(half):
            if is_commit:
                self._commit(half)
            self._mark(half)
        return Response()

    def _half(self, physical_offset: int) -> Record | None:
        """Return the half message at an offset; None when there is none."""
        content = self.core.store.record(physical_offset, 0)
        if content is None:
            return None
        try:
            record = commitlog_record.decode(content, physical_offset=physical_offset)
        except RecordError:
            return None
        queue = self._queue(HALF_TOPIC)
        if record.topic != HALF_TOPIC or record.queue_id or queue is None:
            return None
        entry = queue.entry(record.queue_offset) if record.queue_offset >= 0 else None
        return record if entry and entry.physical_offset == physical_offset else None

    def _queue(self, topic: str) -> QueueWriter | None:
        return self.core.store.queues.get(topic, 0)

    def _commit(self, half: Record) -> None:
        properties = props.parse(decode_utf8(half.properties))
        topic = properties.pop(props.REAL_TOPIC)
        queue_id = read_i32(properties.pop(props.REAL_QUEUE_ID), props.REAL_QUEUE_ID)
        level = min(read_i32(properties.get(props.DELAY, "0"), props.DELAY), self._highest_level)
        if level > 0:
            properties[props.REAL_TOPIC] = topic
            properties[props.REAL_QUEUE_ID] = str(queue_id)
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        self.core.store.append(
            topic,
            queue_id,
            half.body,
            props.format_properties(props.java_order(properties)).encode(),
            pack_host(half.born_host),
            born_timestamp_ms=half.born_timestamp_ms,
            flag=half.flag,
            sys_flag=half.sys_flag & ~SYS_FLAG_TRANSACTION_MASK | SYS_FLAG_COMMIT,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.physical_offset,
        )
        self.core.figures.put += 1

    def _mark(self, half: Record) -> None:
        """Note durably that a half message needs nothing any more."""
        self.core.store.append(
            OP_HALF_TOPIC,
            0,
            f"{half.queue_offset},".encode(),
            _MARK_PROPERTIES,
            self.core.store_host,
            born_timestamp_ms=self.core.clock(),
        )
        self._ended.add(half)


def _refusal(half: Record | None, asked: EndTransactionRequest) -> str | None:
    """Return in RocketMQ's words why a transaction cannot be ended; None when it can."""
    if half is None:
        return "Find prepared transaction message failed"
    properties = props.parse(decode_utf8(half.properties))
    if properties.get(props.PRODUCER_GROUP) != asked.producer_group:
        return "The producer group wrong"
    if half.queue_offset != asked.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if asked.transaction_id and properties.get(props.TRANSACTION_ID) not in (
        None,
        asked.transaction_id,
    ):
        return "The commit log offset wrong"
    return None

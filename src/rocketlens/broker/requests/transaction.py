"""Commits and rolls back transactions (37).

A commit stores the half message again in its real topic, with the half message's physical offset in
``prepared_transaction_offset``. A rollback stores no message. Both store a mark in
OP_MESSAGE_TOPIC, with tag ``d`` and the queue offset of the half message as body. Source:
``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``.
"""

from contextlib import suppress
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.ended_halves import EndedHalves
from rocketlens.broker.requests.answers import system_error
from rocketlens.broker.requests.send import wait_for_level
from rocketlens.broker.requests.transaction_checks import TransactionChecks
from rocketlens.errors import MessageIllegal, RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    HALF_MESSAGE_TOPIC,
    OP_MESSAGE_TOPIC,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.model.text.java import decode_utf8
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import messages as commands
from rocketlens.wire.declare import read_i32

_MARK_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d\x02"


class TransactionProcessor:
    """Commits and rolls back transactions (37)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._halves: Final = EndedHalves(core.store, core.search)
        self.checks: Final = TransactionChecks(core, self._halves)

    async def end(self, command: RemotingCommand, channel: Channel) -> Response:
        """Commit or roll back a transaction; no effect if the request says neither."""
        request = commands.END_TRANSACTION.request.decode(command.ext_fields)
        if request.commit_or_rollback not in (commands.COMMIT, commands.ROLLBACK):
            return Response()
        half = self._half(request.commit_log_offset)
        refusal = _refusal(half, request)
        if half is None or refusal is not None:
            return system_error(refusal or "")
        if self.core.access is not None:
            # The topic of the half message counts; the request can name another one.
            topic = props.parse(decode_utf8(half.properties)).get(props.REAL_TOPIC, "")
            forbidden = self.core.access.decide_writing(command, channel, topic)
            if forbidden is not None:
                return forbidden
        await self._halves.read_back(half.physical_offset)
        # A second end has no effect.
        if not self._halves.is_ended(half.queue_offset):
            if request.commit_or_rollback == commands.COMMIT:
                self._commit(half)
            self._mark(half)
        return Response()

    def _half(self, physical_offset: int) -> Record | None:
        content = self.core.store.record(physical_offset, 0)
        if content is None:
            return None
        try:
            record = commitlog_record.decode(content, physical_offset=physical_offset)
        except RecordError:
            return None
        queue = self.core.store.queues.get(HALF_MESSAGE_TOPIC, 0)
        if record.topic != HALF_MESSAGE_TOPIC or record.queue_id or queue is None:
            return None
        entry = queue.entry(record.queue_offset) if record.queue_offset >= 0 else None
        return record if entry and entry.physical_offset == physical_offset else None

    def _commit(self, half: Record) -> None:
        properties = props.parse(decode_utf8(half.properties))
        topic = properties.pop(props.REAL_TOPIC)
        queue_id = read_i32(properties.pop(props.REAL_QUEUE_ID), props.REAL_QUEUE_ID)
        level = read_i32(properties.get(props.DELAY, "0"), props.DELAY)
        if level > 0:
            topic, queue_id = wait_for_level(self.core, topic, queue_id, properties, level)
        else:
            # The delivery time was checked when the half message was sent. If a new configuration
            # does not permit it any more, the message is delivered at once.
            with suppress(MessageIllegal):
                topic, queue_id = self.core.timers.redirect(topic, queue_id, properties)
        self.core.copies.write(
            half,
            topic,
            queue_id,
            properties,
            sys_flag=half.sys_flag & ~SYS_FLAG_TRANSACTION_MASK | SYS_FLAG_COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )

    def _mark(self, half: Record) -> None:
        self.core.store.append(
            OP_MESSAGE_TOPIC,
            0,
            f"{half.queue_offset},".encode(),
            _MARK_PROPERTIES,
            self.core.store_host,
            born_timestamp_ms=self.core.clock(),
        )
        self._halves.add(half.queue_offset)


def _refusal(half: Record | None, request: commands.EndTransactionRequest) -> str | None:
    """Return RocketMQ's reason why a transaction cannot be ended; None if it can."""
    if half is None:
        return "Find prepared transaction message failed"
    properties = props.parse(decode_utf8(half.properties))
    if properties.get(props.PRODUCER_GROUP) != request.producer_group:
        return "The producer group wrong"
    if half.queue_offset != request.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if request.transaction_id and properties.get(props.TRANSACTION_ID) not in (
        None,
        request.transaction_id,
    ):
        return "The commit log offset wrong"
    return None

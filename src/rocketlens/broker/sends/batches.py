"""Plain batches, whose members are stored by compiled code.

A batch (code 320) is one request whose body is its members. Its header is read, and its reply
written, as those of any request (``broker.requests.send``); what is done for each member is done
here for all of them. What is not plain (a member that cannot be stored, a transaction, a zero byte
in properties) goes the way of
``store.write.append.Appender.append_batch``, which is also the definition of what is done here.
"""

from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.broker.sends.send_runs import hosts_of
from rocketlens.formats.compiled import request_constants as constants
from rocketlens.formats.compiled.send import commit_members, measure, write
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model.rocketmq import SYS_FLAG_TRANSACTION_MASK
from rocketlens.net.channel import Channel
from rocketlens.store.write.append import Appended, RunRoom

if TYPE_CHECKING:
    from rocketlens.broker.core import BrokerCore

_HEX_DIGITS: Final = 16
_NUMBER: Final = limits.MAX_RUN_MESSAGES
"""Columns are those of a run, of which the members use the first row by turns."""


class StoredBatch(NamedTuple):
    """A batch that was stored: the ids of its members, the first and the last of them."""

    ids: str
    first: Appended
    last: Appended


class Batches:
    """Stores the members of plain batches; made once for each broker, in any thread."""

    def __init__(self, core: "BrokerCore") -> None:
        """Prepare the arrays that kernels write."""
        self._core: Final = core
        prefix, max_members = core.id_prefix.encode(), limits.MAX_TURN_MEMBERS
        self._columns: Final = array("q", bytes(8 * constants.COLUMN_COUNT * _NUMBER))
        self._row: Final = array("q", bytes(8 * constants.ROW_NUMBERS))
        self._numbers: Final = tuple(
            np.frombuffer(each, np.int64) for each in (self._columns, self._row)
        )
        entries = bytearray(max_members * ENTRY_BYTES)
        ids = bytearray(max_members * (len(prefix) + _HEX_DIGITS + 1))
        self._prefix: Final = np.frombuffer(prefix, np.uint8)
        self._written: Final = np.frombuffer(entries, np.uint8), np.frombuffer(ids, np.uint8)
        self._entries: Final = memoryview(entries)
        self._ids: Final = memoryview(ids)
        self._id_bytes: Final = len(prefix) + _HEX_DIGITS + 1

    def store(
        self,
        channel: Channel,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        born_timestamp_ms: int,
        sys_flag: int,
        reconsume_times: int,
    ) -> StoredBatch | None:
        """Store the members of a batch; return None, and store nothing, if it is not plain.

        Errors as `Appender.append_batch`, if there is no room, or nothing more may be written.
        """
        store = self._core.store
        queue = store.queues.get(topic, queue_id)
        if queue is None or queue.is_schedule or sys_flag & SYS_FLAG_TRANSACTION_MASK:
            return None
        members = np.frombuffer(body, np.uint8)
        hosts = hosts_of(self._core, channel)
        fixed = queue.head_bytes + hosts[1]
        max_body = store.config.maxMessageSize
        count, total = measure(members, max_body, fixed, self._numbers[0], self._written[0])
        if count <= 0:
            return None
        room = store.batch_room(queue, total, count)
        columns, row = self._columns, self._row
        columns[constants.SYS_FLAG * _NUMBER] = sys_flag
        columns[constants.BORN * _NUMBER] = born_timestamp_ms
        columns[constants.RECONSUMED * _NUMBER] = reconsume_times
        name = topic.encode()
        row[constants.TOPIC_BYTES] = len(name)
        row[constants.QUEUE_ID] = queue_id
        row[constants.NEXT_OFFSET] = queue_offset = queue.next_offset
        log = np.frombuffer(room.content, np.uint8, total, room.byte_offset)
        self._write(members, np.frombuffer(name, np.uint8), hosts, log, room)
        of_first, of_last = (self._size(number) for number in (0, count - 1))
        times = room.timestamp_ms
        first = Appended(room.physical_offset, queue_offset, times, of_first)
        end = room.physical_offset + total
        last = Appended(end - of_last, queue_offset + count - 1, times, of_last)
        store.append_run(
            [(queue, self._entries[: count * ENTRY_BYTES])],
            lambda: commit_members(log, count, queue.magic, self._written[0]),
            last,
        )
        self._core.stats.put_total += count
        ids = bytes(self._ids[: count * self._id_bytes - 1]).decode("ascii")
        return StoredBatch(ids, first, last)

    def _size(self, number: int) -> int:
        at = number * ENTRY_BYTES + 8
        return int.from_bytes(self._entries[at : at + 4])

    def _write(self, members: Any, topic: Any, hosts: Any, log: Any, room: RunRoom) -> None:
        target = (*self._numbers, topic)
        offset, time_ms = room.physical_offset, room.timestamp_ms
        write(members, target, hosts, log, offset, time_ms, self._prefix, self._written)

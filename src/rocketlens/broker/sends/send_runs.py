"""Handles consecutive plain sends of one connection, and batches, with compiled code.

Plain sends that arrive together are a run; one alone is, too. A kernel reads them: codes 10 and 310
in either header format, JSON of any library, to known queues, with a unique key, and with ASCII
names of properties. A second kernel writes records, queue entries and replies, and a third
publishes the records. Everything else ends the run: a batch, a delay, a transaction, a group's
topic, a new topic, a refusal, or no reserved room. ``broker.requests.send`` handles these, and
defines the result of a run. With access control, each signature is checked; a message that is or
could be refused ends the run. If replies wait for the disk or a slave, all replies of a run wait
for its last message, and a message whose reply need not wait ends the run.

Checks that depend only on topic and queue, or on user and queue, run once per run, on the current
tables.

A batch (code 320) is one request whose body has the members. ``broker.requests.send`` reads its
header and writes its reply; this module stores the members. If one is not plain (it cannot be
stored, has a transaction, or a zero byte in properties),
``store.write.append.Appender.append_batch`` stores the batch. It also defines the result.
"""

import asyncio
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.sends.plain import (
    BROKERS_OWN,
    MULTI_TAGS_FLAG,
    REDIRECTING_NAMES,
    own_properties,
    reply_fields,
)
from rocketlens.formats.commitlog_record import HOST_BYTES_V6
from rocketlens.formats.compiled import request_constants as constants
from rocketlens.formats.compiled.request_constants import REPLY_BYTES, ROW_NUMBERS
from rocketlens.formats.compiled.request_names import Hosts, name_cells
from rocketlens.formats.compiled.send import commit, commit_members, encode, measure, write
from rocketlens.formats.compiled.send_parse import fill_slots, parse
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    PERM_WRITE,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.net.channel import Channel, Response, failure
from rocketlens.net.server import host_of
from rocketlens.store.write.append import Appended, RunRoom
from rocketlens.wire import acl, frame, header_json
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.commands.messages import SEND_MESSAGE, SEND_MESSAGE_V2
from rocketlens.wire.connection import decode_command, encode_command

if TYPE_CHECKING:
    from rocketlens.broker.core import BrokerCore
    from rocketlens.store.write.queue.queue_append import QueueWriter

MAX_RUN_QUEUES: Final = 4_096
"""Queues that compiled sends know, some hundred bytes each. If there are more, all are dropped."""
MAX_UNTRIED_SENDS: Final = 15
"""Single sends that skip compiled code after some that it could not handle: a failed attempt takes
a third of the time of a send.
"""
MAX_RUN_BYTES: Final = 256 * 1024
"""Bytes of sends that compiled code handles together, in a fraction of a turn."""
CODES: Final = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE

_TOPICS_BYTES: Final = 256 * 1024
_TEXT_BYTES: Final = 128 * 1024
_PLAIN_BYTES: Final = 64 * 1024
_TOPICS_START: Final = 8
"""Kernels hash whole words, which can begin before the topic."""
_NOTHING: Final[tuple[int, int, bytes]] = (0, 0, b"")
_NEVER_PLAIN: Final = (
    *(props.MSG_REGION, props.TRACE_ON, props.CLUSTER, props.POP_CHECKPOINT),
    *sorted(REDIRECTING_NAMES),
)
_FEW: Final = 4
_KNOWN_HOSTS: Final = 1024
_LAST_OPAQUE: Final = limits.MAX_INT
_ANY_SEND: Final = RemotingCommand(RequestCode.SEND_MESSAGE_V2)


class SendRuns:
    """Handles runs of plain sends. Created once for each broker, in any thread."""

    def __init__(self, core: "BrokerCore") -> None:
        self._core: Final = core
        own = props.format_properties(own_properties(core.config)).encode()
        self._settings: Final = np.zeros(constants.SETTING_COUNT, np.int64)
        self._settings[:] = (
            limits.MAX_REQUEST_HEADER_BYTES,
            limits.MAX_FRAME_BYTES,
            0,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_MESSAGE,
            len(own),
            len(_NEVER_PLAIN) + 3,
            core.access is not None,
            core.replies.is_needed,
            *acl.signed_order(_SHORT),
            *acl.signed_order(_LONG),
            _UNREAD_TEXTS | (constants.OTHER_FIELDS if core.access is None else 0),
        )
        self._words: Final = name_cells(_NAMES), self._settings, _bytes_of(own)
        self._rows: Final = array("q", bytes(8 * MAX_RUN_QUEUES * ROW_NUMBERS))
        self._queues: Final = (
            np.zeros(_TOPICS_START + _TOPICS_BYTES, np.uint8),
            np.frombuffer(self._rows, np.int64),
            np.zeros(4 * MAX_RUN_QUEUES, np.int64),
        )
        self._columns: Final = array(
            "q", bytes(8 * constants.COLUMN_COUNT * limits.MAX_RUN_MESSAGES)
        )
        self._touched: Final = array("q", bytes(8 * limits.MAX_RUN_MESSAGES))
        self._scratch: Final = array("q", bytes(8 * constants.SCRATCH_COUNT))
        # Room for a run and its last message.
        signed = bytearray(0 if core.access is None else 2 * MAX_RUN_BYTES)
        self._signed: Final = memoryview(signed)
        self._work: Final = (
            np.zeros(_PLAIN_BYTES, np.uint8),
            np.zeros(_TEXT_BYTES, np.uint8),
            np.frombuffer(self._columns, np.int64),
            np.frombuffer(self._touched, np.int64),
            np.frombuffer(self._scratch, np.int64),
            np.frombuffer(signed, np.uint8),
        )
        self._parsed: Final = (
            *(self._work[2], self._work[1], self._queues[0], self._queues[1]),
            self._work[3],
        )
        self._template: Final = _template(core.id_prefix, core.config)
        entries = bytearray(limits.MAX_RUN_MESSAGES * ENTRY_BYTES)
        replies = bytearray(limits.MAX_RUN_MESSAGES * REPLY_BYTES)
        self._written: Final = np.frombuffer(entries, np.uint8), np.frombuffer(replies, np.uint8)
        self._entries: Final = memoryview(entries)
        self._replies: Final = memoryview(replies)
        self._writers: Final[list[QueueWriter]] = []
        self._topics_end = _TOPICS_START
        self._max_count: int = limits.MAX_RUN_MESSAGES
        """Lower after access control ended a run, because the rest of it was parsed in vain."""
        self._skips = self._skips_left = 0
        """Back-off: after a failed attempt, 1, 3, 7 or 15 single sends skip the kernels."""

    def take(
        self, channel: Channel, received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Store plain messages at the beginning of ``received``; see `net.Runs`."""
        room = self._core.store.room()
        if room is None or room.byte_offset >= room.limit:
            return _NOTHING
        frames = np.frombuffer(received, np.uint8)
        self._settings[constants.MAX_BODY] = room.body_bytes
        done = _NOTHING
        try:
            count, _, touched_count, reason = parse(
                frames,
                min(max_count, self._max_count),
                MAX_RUN_BYTES,
                self._words,
                self._queues,
                self._work,
            )
            if count and self._are_plain(touched_count):
                admitted = self._count_admitted(channel, received, count)
                is_whole = admitted == count
                self._max_count = limits.MAX_RUN_MESSAGES if is_whole else max(2 * admitted, _FEW)
                if admitted:
                    done = self._store(channel, frames, room, admitted, touched_count)
        finally:
            # The traceback of an error keeps this frame, but ``received`` must be released.
            del frames
        if reason == constants.UNKNOWN:
            self._add_queue(received)
        return done

    def answer(self, channel: Channel, received: bytes) -> bytes | None:
        """Store a single message; return its reply, or None if it needs another handler."""
        if self._core.replies.is_needed or not frame.is_whole(received):
            return None
        if self._skips_left:
            self._skips_left -= 1
            return None
        known = len(self._writers)
        count, _, replies = self.take(channel, memoryview(received), 1)
        if count or len(self._writers) != known:
            self._skips = 0
        else:
            self._skips = min(2 * self._skips + 1, MAX_UNTRIED_SENDS)
            self._skips_left = self._skips
        return replies if count else None

    def _store(
        self, channel: Channel, frames: Any, room: RunRoom, count: int, touched_count: int
    ) -> tuple[int, int, bytes]:
        begin, rows, columns = room.byte_offset, self._rows, self._columns
        log = np.frombuffer(room.content, np.uint8, room.limit - begin, begin)
        count, _, reply_bytes = encode(
            frames,
            self._parsed,
            count,
            touched_count,
            hosts_of(self._core, channel),
            log,
            room.physical_offset,
            room.timestamp_ms,
            self._template,
            self._written,
        )
        del frames  # As in `take`.
        if not count:
            return _NOTHING
        entries = []
        for row in self._touched[:touched_count]:
            at = rows[row * ROW_NUMBERS + constants.AT]
            some = rows[row * ROW_NUMBERS + constants.COUNT]
            if some:
                part = self._entries[at * ENTRY_BYTES : (at + some) * ENTRY_BYTES]
                entries.append((self._writers[row], part))

        def of_last(column: int) -> int:
            return columns[column * limits.MAX_RUN_MESSAGES + count - 1]

        last = Appended(
            room.physical_offset + of_last(constants.RECORD),
            rows[of_last(constants.ROW) * ROW_NUMBERS + constants.NEXT_OFFSET] - 1,
            room.timestamp_ms,
            of_last(constants.RECORD_BYTES),
        )
        self._core.store.append_run(
            entries, lambda: commit(log, count, self._work[2], self._queues[1]), last
        )
        self._core.stats.put_total += count
        end = of_last(constants.BODY) + of_last(constants.BODY_BYTES)
        replies = bytes(self._replies[:reply_bytes])
        if self._core.replies.is_needed:
            replies = self._when_safe(channel, count, replies, last)
        return count, end, replies

    def _when_safe(self, channel: Channel, count: int, replies: bytes, last: Appended) -> bytes:
        """Return the replies to send now; none if they wait for the last message."""
        answer = self._core.replies.reply(last.physical_offset + last.store_size, Response())
        if isinstance(answer, Response):
            return _replies_with(answer, replies)
        group = channel.group

        def on_answer(done: "asyncio.Future[Response | None]") -> None:
            group.awaited.discard(done)
            try:
                response = done.result() or Response()
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - only these fail
                response = failure(_ANY_SEND, error, group.may_warn)
            channel.answer_held(count, _replies_with(response, replies))

        channel.hold(count)
        group.awaited.add(answer)
        answer.add_done_callback(on_answer)
        return b""

    def _count_admitted(self, channel: Channel, received: memoryview, count: int) -> int:
        """Return the number of messages at the start that access control permits."""
        access = self._core.access
        if access is None:
            return count
        host, columns, signed = host_of(channel), self._columns, self._signed
        secrets: dict[tuple[int, int, bytes | None], str | None] = {}
        starts = range(
            constants.SEND_CODE * limits.MAX_RUN_MESSAGES,
            constants.COLUMN_COUNT * limits.MAX_RUN_MESSAGES,
            limits.MAX_RUN_MESSAGES,
        )
        rows = columns[constants.ROW * limits.MAX_RUN_MESSAGES :]
        for number, numbers in enumerate(
            zip(rows[:count], *(columns[at : at + count] for at in starts), strict=True)
        ):
            row, code, user, user_bytes, at, at_bytes, text, text_bytes = numbers
            name = bytes(received[user : user + user_bytes]) if user_bytes >= 0 else None
            key = row, code, name
            if key not in secrets:
                topic = self._writers[row].topic
                secrets[key] = access.secret_for(code, name, host, topic)
            secret = secrets[key]
            if secret is None:
                return number
            if secret and not acl.is_signed(
                signed[text : text + text_bytes],
                bytes(received[at : at + max(at_bytes, 0)]),
                secret,
            ):
                return number
        return count

    def _are_plain(self, touched_count: int) -> bool:
        """Read the state of each queue; return False if messages cannot be stored there now."""
        rows, topics, pending = self._rows, self._core.topics.topics, self._core.topics.pending
        for row in self._touched[:touched_count]:
            writer = self._writers[row]
            topic, queue_id = writer.topic, writer.queue_id
            config = topics.get(topic)
            if config is None or writer.is_removed:
                self._forget()
                return False
            if not config.perm & PERM_WRITE or queue_id >= config.queue_count or topic in pending:
                return False
            at = row * ROW_NUMBERS
            rows[at + constants.NEXT_OFFSET] = writer.next_offset
            rows[at + constants.ROOM] = (writer.limit - writer.byte_offset) // ENTRY_BYTES
            is_multi = config.filter_type == "MULTI_TAG"
            rows[at + constants.MORE_FLAGS] = MULTI_TAGS_FLAG if is_multi else 0
        return True

    def _add_queue(self, received: memoryview) -> None:
        queue_id, start, length = self._scratch[:3]
        topic_bytes = bytes(received[start : start + length])
        topic = topic_bytes.decode(errors="replace")
        if topic[:1] == "%" or not topic.isascii() or topic in BROKERS_OWN:
            return
        writer = self._core.store.queues.get(topic, queue_id)
        if writer is None or writer.is_schedule:
            return
        if (
            len(self._writers) >= MAX_RUN_QUEUES
            or self._topics_end + length > _TOPICS_START + _TOPICS_BYTES
        ):
            self._forget()
        at = len(self._writers) * ROW_NUMBERS
        self._rows[at + constants.TOPIC] = self._topics_end
        self._rows[at + constants.TOPIC_BYTES] = length
        self._rows[at + constants.QUEUE_ID] = queue_id
        self._rows[at + constants.COUNT] = 0
        self._queues[0][self._topics_end : self._topics_end + length] = _bytes_of(topic_bytes)
        self._topics_end += length
        self._writers.append(writer)
        fill_slots(self._queues[0], self._queues[1], len(self._writers), self._queues[2])

    def _forget(self) -> None:
        self._writers.clear()
        self._topics_end = _TOPICS_START
        fill_slots(self._queues[0], self._queues[1], 0, self._queues[2])


def _replies_with(response: Response, replies: bytes) -> bytes:
    """Return replies unchanged if ``response`` is a success; otherwise replace their code and
    remark.

    Replies for stored messages that are not safe keep their fields.
    """
    if response.code == ResponseCode.SUCCESS:
        return replies
    changed = []
    for command in map(decode_command, frame.FrameSplitter().feed(replies)):
        fields = command.ext_fields if response.remark is None else {}
        failed = command._replace(code=response.code, remark=response.remark, ext_fields=fields)
        changed.append(encode_command(failed))
    return b"".join(changed)


def hosts_of(core: "BrokerCore", channel: Channel) -> Hosts:
    return _hosts_of(core.born_host(channel), core.store_host)


@lru_cache(_KNOWN_HOSTS)
def _hosts_of(born: bytes, stored: bytes) -> Hosts:
    flags = SYS_FLAG_BORN_HOST_V6 if len(born) == HOST_BYTES_V6 else 0
    flags |= SYS_FLAG_STORE_HOST_V6 if len(stored) == HOST_BYTES_V6 else 0
    return _bytes_of(born + stored), len(born), len(stored), flags


def _bytes_of(content: bytes) -> Any:
    return np.frombuffer(bytearray(content), np.uint8)


_OF_ACCESS: Final = acl.ACCESS_KEY, acl.SIGNATURE
_SHORT: Final = *SEND_MESSAGE_V2.request.wire_names.values(), *_OF_ACCESS
_LONG: Final = *SEND_MESSAGE.request.wire_names.values(), *_OF_ACCESS
_UNREAD_TEXTS: Final = sum(
    1 << number
    for number, name in enumerate(_LONG)
    if name in {"producerGroup", "defaultTopic", "bname"}
)
"""A bit for each field that plain sends ignore."""
_NAMES: Final = (*_SHORT, *_LONG, props.UNIQUE_KEY, props.TAGS, props.WAIT, *_NEVER_PLAIN)


def _template(id_prefix: str, config: BrokerConfig) -> tuple[Any, Any]:
    """Return a reply's constant parts, and the starts of the six parts with the end of the last."""
    marks = "@1@", "@2@", "@3@", "@4@"
    ext_fields = {
        "msgId": id_prefix + marks[0],
        "queueId": marks[1],
        "queueOffset": marks[2],
        "transactionId": marks[3],
        **reply_fields(config),
    }
    rest = header_json.encode(RemotingCommand(0, _LAST_OPAQUE, RESPONSE_FLAG, None, ext_fields))
    parts: list[bytes] = []
    for mark in marks:
        part, _, rest = rest.partition(mark.encode())
        parts.append(part)
    part, _, rest = rest.rpartition(str(_LAST_OPAQUE).encode())
    parts += part, rest
    starts = np.zeros(len(parts) + 1, np.int64)
    starts[1:] = np.cumsum([len(each) for each in parts])
    return _bytes_of(b"".join(parts)), starts


_HEX_DIGITS: Final = 16
_NUMBER: Final = limits.MAX_RUN_MESSAGES
"""Columns are those of a run; the members use the first row in turn."""


class StoredBatch(NamedTuple):
    """A stored batch: the ids of its members, the first and the last of them."""

    ids: str
    first: Appended
    last: Appended


class Batches:
    """Stores the members of plain batches. Created once for each broker, in any thread."""

    def __init__(self, core: "BrokerCore") -> None:
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

        Raises what `Appender.append_batch` raises if the store cannot append.
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

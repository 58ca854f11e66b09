"""Handles plain look-ups with compiled code, from the bytes of the request to those of the reply.

It handles codes 12 and 33 in either header format, with a topic and a key in ASCII, if few messages
match or the newest of many are requested, and their records are sound. ``broker.requests.query``
handles all other cases and defines the result: this module returns the same bytes, or nothing. The
same holds for requests that access control refuses or cannot decide alone, and topics of copies.

A kernel answers from a snapshot of memory, index files and segments. If the log has grown only a
little since, the kernel compares the new records with the request. Otherwise the new part is read
into memory here, on the event loop: reading it in the thread of look-ups would block the loop for
longer, because the two compete for the interpreter.
"""

from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import segment_at
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.formats.compiled import look_up_constants as constants
from rocketlens.formats.compiled.answer import answer
from rocketlens.formats.compiled.request_constants import F_SIGNATURE, F_USER, FIELD_COUNT
from rocketlens.formats.compiled.request_names import name_cells, settings_without_body
from rocketlens.model.rocketmq import has_copies
from rocketlens.net.channel import Channel
from rocketlens.net.server import host_of
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.index.entry_runs import WINDOW_BITS, EntryRun
from rocketlens.store.read.index.index_files import NewestFirst
from rocketlens.store.read.log.commitlog import Segment
from rocketlens.store.write.message_store import MessageStore
from rocketlens.wire import acl, header_json
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.commands.messages import QUERY_MESSAGE, VIEW_MESSAGE_BY_ID

if TYPE_CHECKING:
    from rocketlens.broker.access.control import AccessControl

MAX_LOOP_LOOK_UP_BYTES: Final = 1024 * 1024
"""Bytes of records in the reply to a look-up on the event loop."""
MAX_LOOP_UNSORTED_ENTRIES: Final = 32 * 1024
"""Unsorted entries that a look-up on the event loop compares one by one: 30 us."""
MAX_LOOP_INDEX_FILES: Final = 32
"""Index files that a look-up on the event loop reads: 30 us, if none is in memory."""
_MAX_SEGMENTS: Final = 32
"""Number of newest segments in a snapshot."""


class LogParts(NamedTuple):
    """Index files and segments of the log, which seldom change."""

    rows: tuple[int, ...]
    file_count: int
    segment_count: int
    kept: tuple[Any, ...]
    """Owners of the memory of segments that ``rows`` refers to."""
    files: NewestFirst
    segments: list[Segment]
    """The objects of the reader from which this was made."""

    def are_of(self, reader: StoreReader) -> bool:
        """Return True if the reader still has the same files and segments."""
        return self.files is reader.index.newest_first and self.segments is reader.log.segments


class LogSnapshot(NamedTuple):
    """Runs, index files and segments of the log up to an offset."""

    read_to: int
    reader: StoreReader
    version: int
    """Version of the index files, which changes when one is rejected."""
    sources: Any
    runs: tuple[EntryRun, ...]
    """Owners of the memory that ``sources`` refers to, together with ``parts``."""
    parts: LogParts

    def is_of(self, index: LiveIndex) -> bool:
        """Return True if files and log are those of the index, without damage."""
        tail, reader = index.tail, index.reader
        return (
            self.reader is reader
            and self.version == reader.index.version
            and tail is not None
            and not tail.damage
        )


def snapshot_of(index: LiveIndex, old: LogSnapshot | None = None) -> LogSnapshot | None:
    """Return a snapshot; None if a look-up must read the log first, or exceeds a bound.

    For the thread of look-ups, or while `Turns.try_begin` blocks it. Reuses parts of ``old``.
    """
    tail, reader = index.tail, index.reader
    runs = None if tail is None or tail.damage or index.unread else tail.packed_runs
    files = reader.index.sound
    if (
        runs is None
        or len(runs) > limits.MAX_LOOP_RUNS
        or len(files) > MAX_LOOP_INDEX_FILES
        or any(not run.is_sorted and len(run.packed) > MAX_LOOP_UNSORTED_ENTRIES for run in runs)
    ):
        return None
    parts = None
    if old is not None and old.is_of(index) and old.parts.are_of(reader):
        parts = old.parts
        if old.read_to == index.read_to and list(map(id, old.runs)) == list(map(id, runs)):
            return old
    parts = parts or _parts_of(reader)
    numbers = [len(runs), parts.file_count, parts.segment_count, index.read_to]
    for run in reversed(runs):
        begin = run.window << WINDOW_BITS
        numbers += run.packed.ctypes.data, len(run.packed), int(run.is_sorted), begin
    sources = np.array((*numbers, *parts.rows), np.int64)
    return LogSnapshot(index.read_to, reader, reader.index.version, sources, tuple(runs), parts)


def _parts_of(reader: StoreReader) -> LogParts:
    log, files = reader.log, reader.index.newest_first
    listed = log.segments
    rows: list[int] = [*files.rows]
    kept: list[Any] = []
    segment_count = 0
    for segment in listed[: -_MAX_SEGMENTS - 1 : -1]:
        view, base_offset = segment_at(log, segment.base_offset)
        if not view:
            break
        content = np.frombuffer(view, np.uint8)
        kept.append(content)
        rows += content.ctypes.data, len(content), 0, base_offset
        segment_count += 1
    return LogParts(tuple(rows), len(files.files), segment_count, tuple(kept), files, listed)


CODES: Final = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID
_OPAQUE: Final = limits.MAX_INT
_MARKS: Final = "@1@", "@2@"
_REQUEST_BYTES: Final = 4096
_REPLY_BYTES: Final = MAX_LOOP_LOOK_UP_BYTES


class _Requester(NamedTuple):
    """User and address of the request that is being answered."""

    user: bytes | None
    host: str


class CompiledLookUps:
    """Handles plain look-ups. Created once for each broker, in any thread."""

    def __init__(
        self,
        store: MessageStore,
        search: LiveSearch,
        config: BrokerConfig,
        rights: "AccessControl | None" = None,
    ) -> None:
        """Load the kernel. Without ``rights``, all look-ups are permitted."""
        self._store: Final = store
        self._rights: Final = rights
        self._search: Final = search
        self._config: Final = config
        cells = [*_cells_of(_QUERY_FIELDS), *_cells_of(_VIEW_FIELDS)]
        self._names: Final = name_cells(cells)
        self._settings: Final = settings_without_body(*CODES)
        self._numbers: Final = array("q", bytes(8 * constants.ANSWER_NUMBERS))
        self._request: Final = np.frombuffer(self._numbers, np.int64)
        self._offsets: Final = array("q", bytes(16 * constants.CANDIDATE_ROOM))
        self._candidates: Final = np.frombuffer(self._offsets, np.int64)
        inbox, outbox = bytearray(_REQUEST_BYTES), bytearray(_REPLY_BYTES)
        self._inbox_view: Final = memoryview(inbox)
        self._outbox_view: Final = memoryview(outbox)
        self._inbox: Final = np.frombuffer(inbox, np.uint8)
        self._frames: Any = self._inbox
        """The buffer with the current request."""
        names = QUERY_MESSAGE.response.wire_names.values()
        of_query = _header_parts(dict(zip(names, _MARKS, strict=True)))
        of_view = _header_parts({})
        self._settings[constants.UNIQUE_NUM : constants.VIEW_PARTS + constants.VIEW_PART_COUNT] = (
            *(config.defaultQueryMaxNum, config.maxMsgsNumBatch),
            *map(len, of_query),
            *map(len, of_view),
        )
        head = np.frombuffer(b"".join((*of_query, *of_view)), np.uint8).copy()
        self._work: Final = (
            *(self._names, self._settings, self._request, self._candidates),
            *(head, np.frombuffer(outbox, np.uint8)),
        )
        self._requester: _Requester | None = None
        search.has_read = self._renew_snapshot

    def take(
        self, channel: Channel, received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Answer look-ups at the beginning of ``received``; see `net.Runs`."""
        self._frames = np.frombuffer(received, np.uint8)
        length, end, size = len(received), 0, 0
        replies: list[bytes] = []
        try:
            while len(replies) < max_count and size < MAX_LOOP_LOOK_UP_BYTES:
                reply = self._reply(channel, received, end, length)
                if reply is None:
                    break
                end = self._numbers[constants.FRAME_END]
                size += len(reply)
                replies.append(reply)
        finally:
            # ``received`` must be released, also after an error.
            self._frames = self._inbox
        return len(replies), end, b"".join(replies)

    def answer(self, channel: Channel, received: bytes) -> bytes | None:
        """Return the reply to a single request; None if it needs another handler."""
        length = len(received)
        if length > _REQUEST_BYTES:
            return None
        self._inbox_view[:length] = received
        reply = self._reply(channel, self._inbox_view, 0, length)
        return reply if self._numbers[constants.FRAME_END] == length else None

    def _reply(
        self, channel: Channel, received: memoryview, position: int, length: int
    ) -> bytes | None:
        """Return the reply to the request at ``position``; None if it needs another handler."""
        search = self._search
        snapshot = search.snapshot
        if snapshot is None or not snapshot.is_of(search.index):
            snapshot = self._snapshot_now(channel)
        state = self._ask(snapshot, position, length)
        if state == constants.BEHIND:
            state = self._ask(self._snapshot_now(channel), position, length)
        if state not in _WRITTEN or not self._is_permitted(channel, received):
            return None
        reply_bytes = self._numbers[constants.REPLY_LENGTH]
        is_proven = state == constants.ANSWERED
        return (
            bytes(self._outbox_view[:reply_bytes])
            if self._is_answer(reply_bytes, is_proven=is_proven)
            else None
        )

    def _ask(self, snapshot: LogSnapshot | None, position: int, length: int) -> int:
        store = self._store
        last = store.last_appended
        if snapshot is None or last is None:
            return constants.UNUSUAL
        state: int = answer(
            *(self._frames, position, length, self._work, snapshot.sources),
            *(store.min_offset, store.end_offset, last.store_timestamp_ms, last.physical_offset),
        )
        return state

    def _is_permitted(self, channel: Channel, received: memoryview) -> bool:
        """Return True if the signature alone permits the request; set `_requester`."""
        rights = self._rights
        if rights is None:
            return True
        numbers = self._numbers
        code = numbers[constants.REQUEST_CODE]
        is_query = code == RequestCode.QUERY_MESSAGE
        order = _QUERY_ORDER if is_query else _VIEW_ORDER
        signed = acl.signed_values(received, numbers, order)
        if not signed.isascii():
            return False
        user, host = acl.value_at(received, numbers, F_USER), host_of(channel)
        field = constants.Q_TOPIC if is_query else constants.V_TOPIC
        topic = acl.value_at(received, numbers, field)
        name = None if topic is None else topic.decode()
        secret = rights.secret_for(code, user, host, name)
        if secret is None:
            return False
        signature = acl.value_at(received, numbers, F_SIGNATURE) or b""
        if secret and not acl.is_signed(signed, signature, secret):
            # Earlier clients add a field after they signed the others: see `acl.verify`.
            if not is_query or numbers[2 * constants.Q_IS_UNIQUE + 1] < 0:
                return False
            signed = acl.signed_values(received, numbers, _ORDER_WITHOUT_FLAG)
            if not acl.is_signed(signed, signature, secret):
                return False
        self._requester = _Requester(user, host)
        return not is_query or (name is not None and not has_copies(name))

    def _is_answer(self, end: int, *, is_proven: bool) -> bool:
        """Return True if the reply is right; that to a view must have a readable record."""
        if self._numbers[constants.REQUEST_CODE] == RequestCode.QUERY_MESSAGE:
            return True
        if is_proven and self._rights is None:
            return True
        offset, size = self._offsets[0], self._offsets[constants.CANDIDATE_ROOM]
        record = self._outbox_view[end - size : end]
        return self._may_view(record, offset, is_proven=is_proven)

    def _may_view(self, record: memoryview, offset: int, *, is_proven: bool) -> bool:
        """Return True if the client can read the record, and it is proven or a queue refers to
        it.
        """
        numbers, rights = self._numbers, self._rights
        start = numbers[constants.TOPIC_START]
        topic = bytes(record[start : start + numbers[constants.TOPIC_BYTES]])
        if not topic.isascii():
            return False
        name = topic.decode()
        position = numbers[constants.QUEUE_ID], numbers[constants.QUEUE_OFFSET]
        if rights is not None:
            reader = self._requester
            code = RequestCode.VIEW_MESSAGE_BY_ID
            if reader is None or not rights.may_read_all(code, *reader, name):
                return False
        return is_proven or self._search.has_entry(name, position, offset, len(record))

    def _snapshot_now(self, channel: Channel) -> LogSnapshot | None:
        """Read the end of the log into memory, if it is short; return the new snapshot."""
        search, index = self._search, self._search.index
        if not search.turns.try_begin(channel):
            return None
        try:
            if index.needs_few_reads:
                index.catch_up(to_end=True).pack()
                self._renew_snapshot()
        finally:
            search.turns.end()
        snapshot = search.snapshot
        return snapshot if snapshot is not None and snapshot.is_of(index) else None

    def _renew_snapshot(self) -> None:
        """Replace the snapshot. For the thread of look-ups, or while it is blocked."""
        search = self._search
        search.snapshot = snapshot_of(search.index, search.snapshot) or search.snapshot


def _header_parts(ext_fields: dict[str, str]) -> list[bytes]:
    """Return the parts of a reply's header between the values of fields and opaque."""
    command = RemotingCommand(0, _OPAQUE, RESPONSE_FLAG, None, ext_fields)
    rest, parts = header_json.encode(command), []
    for mark in (*ext_fields.values(), str(_OPAQUE)):
        part, _, rest = rest.partition(mark.encode())
        parts.append(part)
    return [*parts, rest]


_WRITTEN: Final = constants.ANSWERED, constants.UNPROVEN
_QUERY: Final = QUERY_MESSAGE.request.wire_names
_VIEW: Final = VIEW_MESSAGE_BY_ID.request.wire_names
_QUERY_FIELDS: Final = tuple(
    _QUERY[field]
    for field in (
        *("topic", "key", "max_num", "begin_timestamp_ms", "end_timestamp_ms"),
        *("is_unique_key", "index_type", "last_key"),
    )
)
_VIEW_FIELDS: Final = _VIEW["physical_offset"], _VIEW["topic"]


def _cells_of(names: tuple[str, ...]) -> list[str | None]:
    cells: list[str | None] = [*names, *[None] * (FIELD_COUNT - len(names))]
    cells[F_USER], cells[F_SIGNATURE] = acl.ACCESS_KEY, acl.SIGNATURE
    return cells


_QUERY_ORDER: Final = acl.signed_order(_cells_of(_QUERY_FIELDS))
_ORDER_WITHOUT_FLAG: Final = tuple(each for each in _QUERY_ORDER if each != constants.Q_IS_UNIQUE)
_VIEW_ORDER: Final = acl.signed_order(_cells_of(_VIEW_FIELDS))

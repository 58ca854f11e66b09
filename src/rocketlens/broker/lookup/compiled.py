"""Look-ups by compiled code: a request's bytes to those of its reply.

What is usual is answered: codes 12 and 33 in either header, a topic and a key in ASCII, and a few
messages, or the newest of many, that are recognized as they stand. All else is left to
``broker.requests.query``, which defines what is answered: this gives the same bytes, or nothing.
Where access control is on, it is asked for each request, and for the topic of a message that is
viewed; a request that it refuses, or may refuse, is left to others, and so are topics of copies.

Log that no index has yet is not read into memory if it is short: its records are compared with the
request. Importing this module loads numba.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import segment_at
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.broker.lookup.snapshot import snapshot_of
from rocketlens.broker.lookup.usual import has_read_to_end, whole_tail
from rocketlens.errors import RocketLensError
from rocketlens.formats.compiled import kernels_answer as one_call
from rocketlens.formats.compiled import kernels_candidates as candidates_of
from rocketlens.formats.compiled import kernels_look_up as kernels
from rocketlens.formats.compiled import kernels_send_header as headers
from rocketlens.net.channel import Channel
from rocketlens.net.server import host_of
from rocketlens.store.read.index.entry_runs import WINDOW_BITS
from rocketlens.store.write.message_store import MessageStore
from rocketlens.wire import acl, frame, header_json
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.commands import query as commands

if TYPE_CHECKING:
    from rocketlens.store.read.index.tail import Tail
    from rocketlens.store.write.append import Appended

CODES: Final = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID
"""Of the requests that are answered."""
_MAX_NUM: Final = limits.MAX_LOOP_CANDIDATES - kernels.SPARE
_MARK: Final = limits.MAX_INT
_MARKS: Final = "@1@", "@2@"
_REQUEST_BYTES: Final = 4096
_REPLY_BYTES: Final = 128 * 1024
_HEADER_BYTES: Final = 1024


class ReadingRights(Protocol):
    """Decides which look-ups are let through; ``broker.access.control`` does."""

    def secret_for(self, code: int, user: bytes | None, host: str, topic: str | None) -> str | None:
        """Return the secret that a user's look-up must be signed with, if that is all that is left
        to check; empty if it need not be signed, else None.
        """

    def has_copies(self, topic: str) -> bool:
        """Return whether messages of a topic are copies of those of others, which decide, too."""

    def may_read_all(self, code: int, user: bytes | None, host: str, topic: str) -> bool:
        """Return whether a request that was let through may read each message of a topic."""


class _Reader(NamedTuple):
    """Whose request was let through: user, and address."""

    user: bytes | None
    host: str


class CompiledLookUps:
    """Answers usual look-ups; made once for each broker, in any thread."""

    def __init__(
        self,
        store: MessageStore,
        search: LiveSearch,
        config: BrokerConfig,
        rights: ReadingRights | None = None,
    ) -> None:
        """Load the kernels. Without ``rights`` each look-up is let through."""
        self._store: Final = store
        self._rights: Final = rights
        self._search: Final = search
        self._config: Final = config
        cells = [*_cells_of(_QUERY_FIELDS), *_cells_of(_VIEW_FIELDS)]
        self._names: Final = headers.name_cells(cells)
        self._settings: Final = headers.settings_without_body(*CODES)
        self._numbers: Final = array("q", bytes(8 * kernels.REQUEST_NUMBERS))
        self._request: Final = np.frombuffer(self._numbers, np.int64)
        self._offsets: Final = array("q", bytes(16 * candidates_of.CANDIDATE_ROOM))
        self._candidates: Final = np.frombuffer(self._offsets, np.int64)
        inbox, outbox = bytearray(_REQUEST_BYTES), bytearray(_REPLY_BYTES)
        self._inbox_view: Final = memoryview(inbox)
        self._outbox_view: Final = memoryview(outbox)
        self._inbox: Final = np.frombuffer(inbox, np.uint8)
        head = bytearray(_HEADER_BYTES)
        self._head_view: Final = memoryview(head)
        self._work: Final = (
            *(self._names, self._settings, self._request, self._candidates),
            *(np.frombuffer(head, np.uint8), np.frombuffer(outbox, np.uint8)),
        )
        self._floor = 0
        self._last: Appended | None = None
        self._reader: _Reader | None = None
        self._query_head: tuple[bytes, bytes] = b"", b""
        self._view_head: Final = _split_header({})
        names = commands.QUERY_MESSAGE.response.wire_names.values()
        self._query_template: Final = _split_header(dict(zip(names, _MARKS, strict=True)))
        self._load()

    def _load(self) -> None:
        nothing, entries = np.zeros(0, np.uint8), np.zeros(0, np.uint64)
        request, candidates = self._request, self._candidates
        kernels.read_request(nothing, 0, 0, self._names, self._settings, request)
        kernels.match(nothing, request, nothing, 0, candidates, 0, 0, 0)
        kernels.scan(nothing, request, nothing, 0, 0, 0, candidates)
        kernels.view(nothing, 1, 0, request)
        one_call.answer(self._inbox, 0, self._work, np.zeros(one_call.FIRST_ROW, np.int64), 0, 0)
        candidates_of.newest_of_run(entries, 1, 0, 0, candidates, 0, 1)
        file_numbers = np.zeros(candidates_of.FILE_NUMBERS, np.int64)
        candidates_of.newest_of_file(nothing, file_numbers, 0, 0, candidates, 0, 1)

    def take(
        self, channel: Channel, received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Answer look-ups from the beginning of ``received`` on; see `net.Runs`."""
        frames = np.frombuffer(received, np.uint8)
        self._renew_head()
        end, size = 0, 0
        replies: list[bytes] = []
        while len(replies) < max_count and size < limits.MAX_LOOP_LOOK_UP_BYTES:
            reply_end = kernels.read_request(
                frames, end, len(frames), self._names, self._settings, self._request
            )
            is_let_through = reply_end and self._is_let_through(channel, received)
            reply = self._reply(channel, frames) if is_let_through else None
            if reply is None:
                break
            end = reply_end
            size += len(reply)
            replies.append(reply)
        return len(replies), end, b"".join(replies)

    def answer(self, channel: Channel, received: bytes) -> bytes | None:
        """Return the reply to the only request in ``received``; None if it is left to others."""
        length, snapshot = len(received), self._search.snapshot
        if length > _REQUEST_BYTES:
            return None
        self._renew_head()
        self._inbox_view[:length] = received
        store, index = self._store, self._search.index
        if snapshot is not None and snapshot.is_of(index):
            end = one_call.answer(
                *(self._inbox, length, self._work, snapshot.sources),
                *(store.min_offset, store.end_offset),
            )
            if store.end_offset - index.read_to > limits.MAX_LOOP_NEW_BYTES // 2:
                self._search.read_soon()
            if not end or not self._is_let_through(channel, self._inbox_view):
                return None
            if end != candidates_of.UNUSUAL:
                is_proven, end = end > 0, abs(end)
                if self._is_answer(end, is_proven=is_proven):
                    return bytes(self._outbox_view[:end])
            return self._reply(channel, self._inbox)
        end = kernels.read_request(
            self._inbox, 0, length, self._names, self._settings, self._request
        )
        if end != length or not self._is_let_through(channel, self._inbox_view):
            return None
        return self._reply(channel, self._inbox)

    def _is_let_through(self, channel: Channel, received: memoryview) -> bool:
        """Return whether access control lets the request through that was read.

        `_reader` is whose it is then. It is False, too, where that needs more than a signature.
        """
        rights = self._rights
        if rights is None:
            return True
        numbers = self._numbers
        code = numbers[kernels.REQUEST_CODE]
        is_query = code == RequestCode.QUERY_MESSAGE
        signed = self._signed(received, _QUERY_ORDER if is_query else _VIEW_ORDER)
        if not signed.isascii():
            return False
        user, host = self._field(received, headers.F_USER), host_of(channel)
        topic = self._field(received, kernels.Q_TOPIC if is_query else kernels.V_TOPIC)
        name = None if topic is None else topic.decode()
        secret = rights.secret_for(code, user, host, name)
        if secret is None:
            return False
        signature = self._field(received, headers.F_SIGNATURE) or b""
        if secret and not acl.is_signed(signed, signature, secret):
            # Earlier clients add a field when they have signed the others: see `acl.verify`.
            if not is_query or numbers[2 * kernels.Q_IS_UNIQUE + 1] < 0:
                return False
            signed = self._signed(received, _ORDER_WITHOUT_FLAG)
            if not acl.is_signed(signed, signature, secret):
                return False
        self._reader = _Reader(user, host)
        return not is_query or (name is not None and not rights.has_copies(name))

    def _signed(self, received: memoryview, order: tuple[int, ...]) -> bytes:
        """Return the values of fields of the request that was read, one behind the other."""
        fields = self._numbers[: 2 * headers.FIELD_COUNT]
        return b"".join(
            [
                received[fields[2 * field] : fields[2 * field] + fields[2 * field + 1]]
                for field in order
                if fields[2 * field + 1] > 0
            ]
        )

    def _field(self, received: memoryview, field: int) -> bytes | None:
        """Return the text of a field of the request that was read; None if it has none."""
        start, length = self._numbers[2 * field : 2 * field + 2]
        return bytes(received[start : start + length]) if length >= 0 else None

    def _is_answer(self, end: int, *, is_proven: bool) -> bool:
        """Return whether what was written up to ``end`` is the answer: to a view only if a record
        begins there, and it may be read.
        """
        if self._numbers[kernels.REQUEST_CODE] == RequestCode.QUERY_MESSAGE:
            return True
        if is_proven and self._rights is None:
            return True
        offset, size = self._offsets[0], self._offsets[candidates_of.CANDIDATE_ROOM]
        record = self._outbox_view[end - size : end]
        return self._may_view(record, offset, is_proven=is_proven)

    def _may_view(self, record: memoryview, offset: int, *, is_proven: bool) -> bool:
        """Return whether the record that was viewed may be read, and a queue leads to it unless it
        ``is_proven`` that it begins there.
        """
        numbers, rights = self._numbers, self._rights
        start = numbers[kernels.TOPIC_START]
        topic = bytes(record[start : start + numbers[kernels.TOPIC_BYTES]])
        if not topic.isascii():
            return False
        name, position = topic.decode(), (numbers[kernels.QUEUE_ID], numbers[kernels.QUEUE_OFFSET])
        if rights is not None:
            reader = self._reader
            code = RequestCode.VIEW_MESSAGE_BY_ID
            if reader is None or not rights.may_read_all(code, *reader, name):
                return False
        return is_proven or self._search.has_entry(name, position, offset, len(record))

    def _renew_snapshot(self, index: LiveIndex) -> None:
        """Store what look-ups need from now on, if memory read on, or another log is there.

        The thread of look-ups must be kept from working.
        """
        old = self._search.snapshot
        if old is not None and index.read_to == old.read_to and old.is_of(index):
            return
        self._search.snapshot = snapshot_of(index) or old

    def _renew_head(self) -> None:
        """Write the headers of replies, if another message is the last one by now."""
        last = self._store.last_appended
        if last is None or last is self._last:
            return
        self._last = last
        before, after = self._query_template
        for mark, number in zip(
            _MARKS, (last.store_timestamp_ms, last.physical_offset), strict=True
        ):
            before = before.replace(mark.encode(), b"%d" % number)
            after = after.replace(mark.encode(), b"%d" % number)
        self._query_head = before, after
        heads = *self._view_head, before, after
        joined, lengths = b"".join(heads), [*map(len, heads)]
        self._head_view[: len(joined)] = joined
        config = self._config
        counts = config.defaultQueryMaxNum, config.maxMsgsNumBatch
        settings = *counts, sum(lengths[:2]), 0, *lengths[2:], *lengths[:2]
        self._settings[one_call.UNIQUE_NUM : one_call.VIEW_AFTER + 1] = settings

    def _reply(self, channel: Channel, frames: Any) -> bytes | None:
        turns, index = self._search.turns, self._search.index
        if self._numbers[kernels.REQUEST_CODE] == RequestCode.VIEW_MESSAGE_BY_ID:
            reply = self._view()
            snapshot = self._search.snapshot
            if (snapshot is None or not snapshot.is_of(index)) and turns.try_begin(channel):
                try:
                    self._renew_snapshot(index)
                finally:
                    turns.end()
            return reply
        config, numbers = self._config, self._numbers
        is_unique_query, max_num = (
            numbers[kernels.IS_UNIQUE_QUERY],
            numbers[kernels.MAX_NUM],
        )
        max_num = config.defaultQueryMaxNum if is_unique_query else max_num
        max_num = min(max_num, config.maxMsgsNumBatch)
        if not 0 < max_num <= _MAX_NUM or not turns.try_begin(channel):
            return None
        try:
            records = self._query(index, frames, max_num)
            self._renew_snapshot(index)
        except RocketLensError:
            return None
        finally:
            turns.end()
        return self._framed(self._query_head, records) if records and self._last else None

    def _framed(self, head: tuple[bytes, bytes], records: Sequence[bytes | memoryview]) -> bytes:
        before, after = head
        header = b"%b%d%b" % (before, self._numbers[kernels.OPAQUE], after)
        body_bytes = sum(map(len, records))
        prefix = frame.PREFIX.pack(frame.MIN_LENGTH + len(header) + body_bytes, len(header))
        return b"".join((prefix, header, *records))

    def _query(self, index: LiveIndex, frames: Any, max_num: int) -> list[memoryview] | None:
        """Return the records of a query in the log's order; None if it is left to others."""
        count = self._newest(index, frames, max_num + kernels.SPARE)
        offsets, least = self._offsets, index.store.min_offset
        while count and offsets[count - 1] < least:
            count -= 1
        log, room = index.reader.log, limits.MAX_LOOP_LOOK_UP_BYTES
        records: list[memoryview] = []
        first = 0
        while first < count and len(records) < max_num:
            view, base = segment_at(log, offsets[first])
            content = np.frombuffer(view, np.uint8)
            end = kernels.match(
                *(frames, self._request, content, base, self._candidates, first, count),
                max_num - len(records),
            )
            if end <= first:
                return None
            for number in range(first, end):
                size = offsets[candidates_of.CANDIDATE_ROOM + number]
                if size > 0:
                    start = offsets[number] - base
                    records.append(view[start : start + size])
                    room -= size
            first = end
        if room < 0 or (len(records) < max_num and self._floor):
            return None
        records.reverse()
        return records

    def _newest(self, index: LiveIndex, frames: Any, limit: int) -> int:
        """Write down the newest candidates, newest first; return how many, 0 also if this is left
        to others.

        Where a source has more than were taken, older candidates of others are left out, too:
        `_floor` is the oldest offset then, otherwise 0.
        """
        tail, files = whole_tail(index), index.reader.index.sound
        if tail is None or len(files) > limits.MAX_LOOP_INDEX_FILES:
            return 0
        self._floor = 0
        count = self._scan_new(index, frames)
        if count < 0:
            if not has_read_to_end(index, tail):
                return 0
            count = 0
        count = self._add_from_memory(tail, count, limit)
        room = candidates_of.CANDIDATE_ROOM - limit
        of_files, wanted = count, self._numbers[kernels.HASH]
        for file in reversed(files):
            if count - of_files >= limit:
                self._floor = max(self._floor, self._offsets[count - 1])
                break
            if not 0 <= count <= room:
                return 0
            are_counted = int(file.are_slots_counted)
            count, is_whole = candidates_of.newest_of_file(
                *(file.array(), file.walk_numbers(), are_counted, wanted),
                *(self._candidates, count, limit),
            )
            if not is_whole and count > 0:
                self._floor = max(self._floor, self._offsets[count - 1])
        return self._in_order(count)

    def _add_from_memory(self, tail: "Tail", count: int, limit: int) -> int:
        """Add the newest candidates in memory; return how many there are then, or -1."""
        wanted = self._numbers[kernels.HASH]
        parts = tail.parts(wanted)
        if parts is None:
            return -1
        few, runs = parts
        if len(few) > limit:
            few, self._floor = few[-limit:], few[-limit]
        room = candidates_of.CANDIDATE_ROOM - limit
        if count > room:
            return -1
        for offset in few:
            self._offsets[count] = offset
            count += 1
        for run in runs:
            if count > room or (
                not run.is_sorted and len(run.packed) > limits.MAX_LOOP_UNSORTED_ENTRIES
            ):
                return -1
            count, is_whole = candidates_of.newest_of_run(
                *(run.packed, int(run.is_sorted), wanted, run.window << WINDOW_BITS),
                *(self._candidates, count, limit),
            )
            if not is_whole:
                self._floor = max(self._floor, self._offsets[count - 1])
        return count

    def _in_order(self, count: int) -> int:
        """Sort candidates, the newest first and each once; return how many are left."""
        if count > 1:
            offsets = self._offsets
            newest = sorted({each for each in offsets[:count] if each >= self._floor}, reverse=True)
            count = len(newest)
            offsets[:count] = array("q", newest)
        return max(count, 0)

    def _scan_new(self, index: LiveIndex, frames: Any) -> int:
        """Compare the end of the log that memory does not have; return how many match, or -1."""
        start, end = index.read_to, index.store.end_offset
        if end <= start:
            return 0
        segment = index.store.log_from(start) if end - start <= limits.MAX_LOOP_NEW_BYTES else None
        if segment is None:
            return -1
        view, base = segment
        content = np.frombuffer(view, np.uint8)
        match_count: int = kernels.scan(
            *(frames, self._request, content, base, start, end, self._candidates)
        )
        return match_count

    def _view(self) -> bytes | None:
        """Return the reply with the record at an offset, if its queue leads to it."""
        store, offset = self._store, self._numbers[kernels.OFFSET]
        try:
            segment = store.log_from(offset)
        except RocketLensError:
            return None
        if segment is None:
            return None
        view, base = segment
        size = kernels.view(np.frombuffer(view, np.uint8), base, offset, self._request)
        if not 0 < size <= limits.MAX_LOOP_LOOK_UP_BYTES:
            return None
        start = offset - base
        record = view[start : start + size]
        if not self._may_view(record, offset, is_proven=False):
            return None
        return self._framed(self._view_head, [record])


def _split_header(ext_fields: dict[str, str]) -> tuple[bytes, bytes]:
    """Return a reply's header before and after its opaque."""
    command = RemotingCommand(0, _MARK, RESPONSE_FLAG, None, ext_fields)
    before, _, after = header_json.encode(command).rpartition(str(_MARK).encode())
    return before, after


_QUERY: Final = commands.QUERY_MESSAGE.request.wire_names
_VIEW: Final = commands.VIEW_MESSAGE_BY_ID.request.wire_names
_QUERY_FIELDS: Final = tuple(
    _QUERY[field]
    for field in (
        *("topic", "key", "max_num", "begin_timestamp_ms", "end_timestamp_ms"),
        *("is_unique_key", "index_type", "last_key"),
    )
)
_VIEW_FIELDS: Final = _VIEW["physical_offset"], _VIEW["topic"]


def _signed_order(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of the fields that are signed, in the order of their names."""
    numbers = {name: number for number, name in enumerate(names)} | {acl.ACCESS_KEY: headers.F_USER}
    return tuple(numbers[name] for name in sorted(numbers))


_QUERY_ORDER: Final = _signed_order(_QUERY_FIELDS)
_ORDER_WITHOUT_FLAG: Final = tuple(each for each in _QUERY_ORDER if each != kernels.Q_IS_UNIQUE)
_VIEW_ORDER: Final = _signed_order(_VIEW_FIELDS)


def _cells_of(names: tuple[str, ...]) -> list[str | None]:
    """Return the names of all fields of a request; None for a field that it does not have."""
    cells: list[str | None] = [*names, *[None] * (headers.FIELD_COUNT - len(names))]
    cells[headers.F_USER], cells[headers.F_SIGNATURE] = acl.ACCESS_KEY, acl.SIGNATURE
    return cells

"""Iterates over all messages of an archive that match, and continues at cursors."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self, TypeVar, get_type_hints

from msgspec.structs import replace

from rocketlens.archive.column_filter import ColumnFilter
from rocketlens.archive.reader import ArchiveRows
from rocketlens.archive.rows import host_of
from rocketlens.archive.source import ArchiveSource, bounds_of, matching
from rocketlens.errors import ArchiveError, BadInput
from rocketlens.formats.columns import DERIVED, life_columns, text_columns
from rocketlens.late import pa, pc
from rocketlens.model.answer import Coverage, is_complete
from rocketlens.model.arrow import ArrowMessages, batches_of, schema, time_column
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.answer_builder import AnswerMessages, Findings, order_in_time
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import FindRequest
from rocketlens.query.tally import SearchTally

_LOOKED_UP_AT_ONCE: Final = 128
_MAX_CURSOR: Final = 2_000
_BODY: Final = ("body", "body_error")
_ORIGIN: Final = ("cluster", "broker")


class ArchiveCursor(NamedTuple):
    """The next message of a scan: the version of the table, a row group of a file, and how many of
    the group's matching messages to skip. ``question`` is a digest of the request.
    """

    question: str
    version: int
    path: str
    group: int
    skipped: int


class LookUpCursor(NamedTuple):
    """The last message that a look-up returned, by its store time and identity."""

    question: str
    store_timestamp_ms: int
    address: str
    port: int
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body_crc: int

    @classmethod
    def of(cls, question: str, message: MessageExt) -> Self:
        """Return the cursor after a message."""
        return cls(
            question,
            message.store_timestamp_ms,
            *message.store_host,
            message.physical_offset,
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.body_crc,
        )

    def comes_after(self, message: MessageExt) -> bool:
        """Return whether a message comes after this one in the order of `order_in_time`."""
        return order_in_time(message, -1) < (
            -self.store_timestamp_ms,
            (self.address, self.port),
            -self.physical_offset,
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.body_crc,
        )


_KINDS: Final[dict[type, int]] = {ArchiveCursor: 1, LookUpCursor: 2}
Cursor = TypeVar("Cursor", ArchiveCursor, LookUpCursor)


def encode_cursor(cursor: ArchiveCursor | LookUpCursor) -> str:
    """Encode a cursor as a token of letters, digits, ``-`` and ``_``."""
    content = json.dumps([_KINDS[type(cursor)], *cursor], separators=(",", ":")).encode()
    return urlsafe_b64encode(content).decode().rstrip("=")


def decode_cursor(kind: type[Cursor], token: str) -> Cursor:
    """Decode a token; raise BadInput if it does not hold a cursor of this kind."""
    with suppress(ValueError, TypeError, RecursionError):
        padded = token[:_MAX_CURSOR] + "=" * (-len(token) % 4)
        number, *values = json.loads(urlsafe_b64decode(padded))
        if number == _KINDS[kind] and [*map(type, values)] == [*get_type_hints(kind).values()]:
            return kind(*values)
    raise BadInput(f"cursor {token[:40]!r} is not a cursor of this kind of archive search")


def cursor_of(kind: type[Cursor], token: str, request: FindRequest) -> Cursor:
    """Decode the token of a search for ``request``; raise BadInput if it is of another search."""
    cursor = decode_cursor(kind, token)
    if cursor.question != query_digest(request):
        raise BadInput(
            "the cursor is of another search: repeat its text, topics, times and filters, and "
            "give no relative times such as 2h"
        )
    return cursor


def query_digest(request: FindRequest) -> str:
    """Return a digest of all parts of a request that decide which messages match."""
    content = request.content
    parts = (
        *sorted(request.topics),
        request.begin,
        request.end,
        sorted(request.tags or ()),
        "" if content is None else content.text,
        sorted(content.grep_in) if content is not None else "",
        request.all_topics,
        *(() if request.text is None else (request.text, request.kind)),
    )
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


class ArchiveScan(ArrowMessages):
    """The messages of an archive that match a filter, read file by file, the oldest first.

    Iterate over it for the messages; then ``coverage`` lists what was read. A scan reads the
    archive as it was when the scan was created, even if messages are added meanwhile.
    """

    def __init__(
        self,
        source: ArchiveSource,
        message_filter: MessageFilter,
        question: str = "",
        after: ArchiveCursor | None = None,
    ) -> None:
        """Prepare a scan without reading. ``after``: continue there.

        :raises ArchiveError: if the archive no longer has the version or file of the cursor.
        """
        reader = source.reader
        self._source: Final = source
        self._filter: Final = message_filter
        self._question: Final = question
        self._listing: Final = reader.listing if after is None else reader.listing_at(after.version)
        self._bounds: Final = bounds_of(message_filter)
        self._files = self._listing.files(self._bounds)
        self._skipped = (0, 0)
        """The first row group of the first file, and how many of its messages to skip."""
        if after is not None:
            paths = [file.path for file in self._files]
            if after.path not in paths:
                raise ArchiveError(
                    f"{source.name} no longer has {after.path}: begin the search again"
                )
            self._files = self._files[paths.index(after.path) :]
            self._skipped = (after.group, after.skipped)
        self._errors: Final[list[str]] = []
        self._at: tuple[str, int, int] | None = None if after is None else after[2:]
        self.on_read: Callable[[int, int, int], bool] | None = None
        """Called after each row group with the bytes read, the bytes to read, and the number of
        messages. Reading ends if it returns False."""
        self.is_at_end = False
        """Everything was read."""

    def __iter__(self) -> Iterator[MessageExt]:
        for path, group, skipped, rows in self._rows():
            for count, message in enumerate(matching(rows, self._filter), 1):
                if count > skipped:
                    self._at = (path, group, count)
                    yield message

    def _rows(self, names: tuple[str, ...] = ()) -> "Iterator[tuple[str, int, int, pa.Table]]":
        """Yield path, row group, messages to skip, and rows that may match."""
        reader = self._source.reader
        columns = ColumnFilter(self._filter)
        begin, skipped = self._skipped
        total = sum(file.size for file in self._files)
        read = count = 0
        for file in self._files:
            what = ArchiveRows(self._bounds, columns, names, begin)
            for group, rows in reader.rows(file, what, self._errors):
                count += rows.num_rows
                yield file.path, group, skipped if group == begin else 0, rows
                if self.on_read is not None and not self.on_read(read, total, count):
                    return
            begin = skipped = 0
            read += file.size
            if self.on_read is not None and not self.on_read(read, total, count):
                return
        self.is_at_end = True

    @property
    def cursor(self) -> str | None:
        """The token with which a later scan continues after the last message.

        None at the end, and before the first message.
        """
        if self.is_at_end or self._at is None:
            return None
        return encode_cursor(ArchiveCursor(self._question, self._listing.version, *self._at))

    def record_batches(
        self, *, with_body: bool = True, with_text: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size; as `Scan.record_batches`."""
        if self._filter.reads_records or self._filter.leaves_out:
            yield from batches_of(self, with_body=with_body, with_text=with_text)
            return
        names = [each for each in schema().names if each not in DERIVED or each in _ORIGIN]
        read = tuple(each for each in names if with_body or each not in _BODY)
        for _, _, _, rows in self._rows(read):
            yield from _as_batches(rows, with_body=with_body, with_text=with_text)

    @property
    def complete(self) -> bool:
        """True if everything was read without an error."""
        return is_complete(self.coverage)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The sources that were read, read errors, and what a filter left out."""
        return self._coverage(*(() if self.is_at_end else ("it was not read to its end",)))

    @property
    def coverage_so_far(self) -> tuple[Coverage, ...]:
        """The coverage for a reader that needs no more messages."""
        return self._coverage()

    def _coverage(self, *more: str) -> tuple[Coverage, ...]:
        errors = [*self._errors, *more]
        topics, tally = self._filter.record_topics, self._filter.tally
        return (
            *self._source.coverage(self._filter, topics, errors, self._listing),
            *(tally.coverage() if tally else ()),
        )


class ArchiveLookUp:
    """The messages of an archive with a key or id, the oldest first; memory stays bounded.

    Iterate over it for the messages. Each comes once, even if the archive is compacted meanwhile.
    Messages that are archived meanwhile come if they were stored later.
    """

    def __init__(
        self, source: ArchiveSource, request: FindRequest, after: LookUpCursor | None = None
    ) -> None:
        """Prepare a look-up without reading."""
        self._source: Final = source
        self._request: Final = request
        self._question: Final = query_digest(request)
        self._after = after
        self._searched: Final = Findings(AnswerMessages(0))
        self.on_read: Callable[[int, int, int], bool] | None = None
        """As that of `ArchiveScan`; a look-up does not call it."""
        self.is_at_end = False
        """All messages were returned."""

    def __iter__(self) -> Iterator[MessageExt]:
        while not self.is_at_end:
            part = _FindingsAfter(self._after, self._searched.tally)
            # Several messages can have the time of the last one.
            after_ms = None if self._after is None else self._after.store_timestamp_ms
            begins = [each for each in (self._request.begin, after_ms) if each is not None]
            request = replace(self._request, begin=max(begins, default=None))
            self._source.find(request, part)
            self._searched.add_part(part)
            in_order = sorted(part.messages.in_order(), key=lambda each: order_in_time(each, -1))
            for message in reversed(in_order):
                self._after = LookUpCursor.of(self._question, message)
                yield message
            self.is_at_end = not (in_order and part.messages.truncated)

    @property
    def cursor(self) -> str | None:
        """The token with which a later look-up continues after the last message.

        None at the end, and before the first message.
        """
        return None if self.is_at_end or self._after is None else encode_cursor(self._after)

    @property
    def complete(self) -> bool:
        return self.is_at_end and is_complete(self.coverage_so_far)

    @property
    def coverage_so_far(self) -> tuple[Coverage, ...]:
        return self._searched.coverage


class _FindingsAfter(Findings):
    """The oldest messages after a cursor."""

    def __init__(self, after: LookUpCursor | None, tally: SearchTally) -> None:
        super().__init__(AnswerMessages(_LOOKED_UP_AT_ONCE, oldest=True), tally=tally)
        self._after: Final = after

    def add(self, message: MessageExt) -> bool:
        """Add a message; one that was returned before is only counted as found."""
        if self._after is None or self._after.comes_after(message):
            return super().add(message)
        self.count += 1
        return True


def _as_batches(
    rows: "pa.Table", *, with_body: bool, with_text: bool
) -> "Iterator[pa.RecordBatch]":
    """Convert rows to the columns of messages, without building messages."""
    for batch in rows.to_batches():
        offset_ids = pa.array(_offset_msg_ids(batch), pa.string())
        made: dict[str, Any] = {
            "offset_msg_id": offset_ids,
            "msg_id": pc.coalesce(batch["unique_key"], offset_ids),
            "store_time": time_column(batch["store_timestamp_ms"].to_numpy()),
            "born_time": time_column(batch["born_timestamp_ms"].to_numpy()),
            **life_columns(
                batch["topic"], batch["properties"], batch["tags"], batch["sys_flag"].to_numpy()
            ),
        }
        if not with_body:
            made |= {name: pa.nulls(batch.num_rows, schema().field(name).type) for name in _BODY}
        bodies = made["body"] if "body" in made else batch["body"]
        made |= text_columns(bodies, with_text=with_text)
        columns = [made[name] if name in made else batch[name] for name in schema().names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema())


def _offset_msg_ids(batch: "pa.RecordBatch") -> list[str]:
    hosts = batch["store_host"].dictionary_encode()
    # An id is the host and 16 hex digits of the offset.
    prefixes = [
        OffsetMessageId(host_of(each), 0).encode()[:-16] for each in hosts.dictionary.to_pylist()
    ]
    offsets = batch["physical_offset"].to_pylist()
    numbers = hosts.indices.to_pylist()
    return [
        f"{prefixes[number]}{offset & 0xFFFF_FFFF_FFFF_FFFF:016X}"
        for number, offset in zip(numbers, offsets, strict=True)
    ]

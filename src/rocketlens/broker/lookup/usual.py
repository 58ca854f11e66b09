"""The usual look-up by key: of a few records that are found at once, and recognized as they stand.

It costs half of what the steps of :mod:`rocketlens.broker.lookup.look_up` do, which define what is
returned: this gives the same bytes, or nothing. It gives nothing where the log is to be read first,
a part of it is damaged, a key has many messages, a record is not recognized, or none is found.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocketlens import limits
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import FoundRecords, segment_at
from rocketlens.formats.index_file import key_hash
from rocketlens.query.lookup.message_filter import OTHER_TIME, FastPathMatcher
from rocketlens.store.read.index.index_files import newest_first
from rocketlens.store.read.index.tail import Tail


class KeyLookUp(NamedTuple):
    """Asks for the newest messages of a topic that have a key, or a unique key."""

    topic: str
    key: str
    is_unique: bool
    begin: int | None
    """Store times in epoch milliseconds, both ends included."""
    end: int
    max_num: int
    may_read: Callable[[memoryview], bool] | None = None
    """Whether a record may be returned; None if each may."""


def usual(index: LiveIndex, look_up: KeyLookUp) -> FoundRecords | None:
    """Return the newest records of a key; None if this is not the usual look-up.

    :raises CorruptIndexFile: if an index file turns out to be damaged.
    :raises TakesLong: before any work that may take more than some milliseconds.
    """
    offsets = _offsets(index, key_hash(look_up.topic, look_up.key))
    if offsets is None:
        return None
    topic, wanted, is_unique, begin_ms, end_ms, max_num, may_read = look_up
    key, unique_key = (None, wanted) if is_unique else (wanted, None)
    matcher = FastPathMatcher(topic, key, unique_key, begin_ms, end_ms)
    first_offset = index.first_offset(begin_ms, at_once=True)
    least, log = max(index.store.min_offset, first_offset), index.reader.log
    records: list[memoryview] = []
    room, candidates = limits.MAX_LOOP_LOOK_UP_BYTES, limits.MAX_LOOP_CANDIDATES
    view, begin, end = memoryview(b""), 0, 0
    for offset in offsets:
        if len(records) == max_num or offset < least:
            break
        if not begin <= offset < end:
            view, begin = segment_at(log, offset)
            end = begin + len(view)
        start = offset - begin
        size = matcher.record_size_if_match(view, start, offset)
        candidates -= 1
        if not size or not candidates:
            return None
        if size == OTHER_TIME:
            continue
        record = view[start : start + size]
        if may_read is None or may_read(record):
            records.append(record)
            room -= size
            if room < 0:
                return None
    if not records:
        return None
    records.reverse()
    return FoundRecords(b"".join(records), len(records))


def _whole_tail(index: LiveIndex) -> Tail | None:
    """Return the memory, read to the end of the log; None if that takes long, or it lacks some."""
    tail = index.tail
    if tail is None or index.unread or tail.damage:
        return None
    if index.store.end_offset > index.read_to:
        if not index.is_at_hand:
            return None
        index.catch_up(to_end=True)
    return None if tail.damage else tail


def _offsets(index: LiveIndex, wanted: int) -> Iterable[int] | None:
    """Return the physical offsets of all entries of a hash, newest first, each once."""
    tail = _whole_tail(index)
    if tail is None:
        return None
    in_memory = tail.find_few(wanted)
    if in_memory is None:
        return None
    files = index.reader.index
    if not files.sound:
        return in_memory if len(in_memory) == 1 else sorted(set(in_memory), reverse=True)
    hits = files.find((wanted,), at_once=True)
    return (offset for offset, _ in newest_first(hits, iter(in_memory)))

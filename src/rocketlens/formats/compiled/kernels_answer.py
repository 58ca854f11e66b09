"""A look-up by one compiled call: from the bytes of its request to those of its reply.

It takes its sources, which are all that it needs to know of the log, by their addresses:

| numbers of sources | what |
| --- | --- |
| 0 to 2 | how many runs of entries, index files and segments there are |
| 3 | up to which physical offset runs and files have all entries |
| 4 on | a row of four numbers for each, those of the newest log first |
| a run | address and number of its entries, whether they are sorted, where its window begins |
| a file | address and length, whether its slots are counted, address of what a walk knows of it |
| a segment | address and length, 0, its first physical offset |

What is out of the ordinary is left to ``broker.lookup``, as in :mod:`.kernels_look_up`.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

import ctypes
from typing import Any, Final

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic, overload

from rocketlens.formats.compiled.kernels_candidates import (
    BEGIN_OFFSET,
    CANDIDATE_ROOM,
    END_OFFSET,
    FILE_NUMBERS,
    UNUSUAL,
    Numbers,
    add_of_file,
    add_of_run,
    in_order,
)
from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    CHECKED,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    copy_bytes,
    device,
    hash_text,
    index_hash,
    kernel,
    raw,
    store_i32,
)
from rocketlens.formats.compiled.kernels_look_up import (
    HASH,
    IS_UNIQUE_QUERY,
    MAX_NUM,
    OFFSET,
    OPAQUE,
    REQUEST_CODE,
    REQUEST_NUMBERS,
    SPARE,
    TOPIC_BYTES,
    TOPIC_START,
    compared,
    is_printable,
    request_end,
    scanned,
    viewed,
)
from rocketlens.formats.compiled.kernels_send_header import (
    LENGTH_BYTES,
    LONG_CODE,
    SHORT_CODE,
    are_same,
    write_number,
)
from rocketlens.limits import MAX_LOOP_NEW_BYTES

INLINED: Final = "688ae1fec8a733ef"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

RUN_TOTAL, FILE_TOTAL, SEGMENT_TOTAL, INDEXED_TO, FIRST_ROW = range(5)
ROW_NUMBERS: Final = 4
ADDRESS, LENGTH, IS_SORTED, BEGIN = range(ROW_NUMBERS)
ARE_COUNTED, FILE_NUMBERS_AT, SEGMENT_BEGIN = IS_SORTED, BEGIN, BEGIN
# Settings behind those of a header: messages of a query by unique key, and of any; and how long the
# parts of replies' headers are, which lie side by side. Between those of a query's are time and
# offset of the last record, and the opaque; between those of a view's the opaque.
UNIQUE_NUM, QUERY_NUM = LONG_CODE + 1, LONG_CODE + 2
QUERY_PARTS, QUERY_PART_COUNT = QUERY_NUM + 1, 4
VIEW_PARTS, VIEW_PART_COUNT = QUERY_PARTS + QUERY_PART_COUNT, 2
# Numbers of a request, behind those of :mod:`.kernels_look_up`: where its frame ends, how long its
# reply is, and the numbers in a reply's header.
FRAME_END, REPLY_LENGTH = REQUEST_NUMBERS, REQUEST_NUMBERS + 1
HEAD_NUMBERS: Final = REPLY_LENGTH + 1
ANSWER_NUMBERS: Final = HEAD_NUMBERS + QUERY_PART_COUNT - 1

# What became of a request.
NOT_PLAIN, ANSWERED, UNPROVEN, BEHIND = 0, 1, 2, -2
"""`UNPROVEN`: the record that is viewed was written, and a queue must lead to it, too. `BEHIND`:
the sources lack too much of the log. `UNUSUAL` says that it is left to others."""
Log = tuple[int, int]

_PREFIX_BYTES: Final = 8
_I64_DIGITS: Final = 19
_NUMBER_SIGN: Final = 0x23
_PROPERTY_END: Final = 2
_UNIQUE_KEY: Final = np.frombuffer(b"UNIQ_KEY\x01", np.uint8)
_LENGTH_BYTES: Final = 2
_WINDOW_BITS: Final = np.uint64(32)
_MAX_IN_WINDOW: Final = 0xFFFFFFFF


def array_at(address: int, count: int, kind: Any) -> Any:
    """Return ``count`` numbers of a numpy type, from an address that an array of the caller has.

    A call takes longer for each array that it gets than for all addresses in one array. As `raw`
    is, it is an address in machine code, and an array where accesses are checked.
    """
    content = (ctypes.c_char * (count * np.dtype(kind).itemsize)).from_address(address)
    return np.frombuffer(content, kind)


@intrinsic
def _pointer_to(_context: Any, address: Any, kind: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wanted = context.get_value_type(signature.return_type)
        return builder.inttoptr(arguments[0], wanted)

    del address
    return types.CPointer(kind.dtype)(types.int64, kind), emit


# numba compares parameter names, so the signature is written out.
def _overload_array_at() -> None:
    def checked(address, count, kind):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return carray(_pointer_to(address, kind), (count,))  # type: ignore[call-arg]

    def compiled(address, count, kind):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
        return _pointer_to(address, kind)  # type: ignore[call-arg]

    chosen = checked if CHECKED else compiled
    overload(array_at)(lambda address, count, kind: chosen)  # noqa: ARG005


_overload_array_at()


@device
def add_of_all(
    sources: Numbers, wanted: int, limit: int, out: Numbers, count: int
) -> tuple[int, int]:
    """Add the newest candidates of all runs and files to ``count``; return how many there are then,
    or `UNUSUAL`, and the oldest offset from which they are all.
    """
    floor = 0
    room = CANDIDATE_ROOM - limit
    row = FIRST_ROW
    for _ in range(sources[RUN_TOTAL]):
        if count > room:
            return UNUSUAL, 0
        length = sources[row + LENGTH]
        entries = array_at(sources[row + ADDRESS], length, np.uint64)
        is_sorted, begin = sources[row + IS_SORTED], sources[row + BEGIN]
        count, is_whole = add_of_run(entries, length, is_sorted, wanted, begin, out, count, limit)
        if is_whole == 0:
            floor = max(floor, out[count - 1])
        row += ROW_NUMBERS
    of_files = count
    for _ in range(sources[FILE_TOTAL]):
        if count - of_files >= limit:
            floor = max(floor, out[count - 1])
            break
        if count > room:
            return UNUSUAL, 0
        length = sources[row + LENGTH]
        content = array_at(sources[row + ADDRESS], length, np.uint8)
        file = array_at(sources[row + FILE_NUMBERS_AT], FILE_NUMBERS, np.int64)
        counted = sources[row + ARE_COUNTED]
        count, is_whole = add_of_file(content, length, file, counted, wanted, out, count, limit)
        if count < 0:
            return UNUSUAL, 0
        if is_whole == 0:
            floor = max(floor, out[count - 1])
        row += ROW_NUMBERS
    return count, floor


@device
def is_entry_of_run(sources: Numbers, key_hash: int, physical_offset: int) -> bool:
    """Return whether an entry of a sorted run has a hash and leads to an offset."""
    row = FIRST_ROW
    for _ in range(sources[RUN_TOTAL]):
        length, position = sources[row + LENGTH], physical_offset - sources[row + BEGIN]
        if 0 <= position <= _MAX_IN_WINDOW and sources[row + IS_SORTED] != 0:
            entries = array_at(sources[row + ADDRESS], length, np.uint64)
            wanted = np.uint64(key_hash) << _WINDOW_BITS | np.uint64(position)
            low = 0
            high = length
            while low < high:
                middle = (low + high) >> 1
                if entries[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < length and entries[low] == wanted:
                return True
        row += ROW_NUMBERS
    return False


@device
def is_entry_of_file(
    sources: Numbers, key_hash: int, physical_offset: int, out: Numbers, at: int
) -> bool:
    """Return whether an entry of an index file has a hash and leads to an offset.

    Candidates are written to ``out`` from ``at`` on.
    """
    row = FIRST_ROW + sources[RUN_TOTAL] * ROW_NUMBERS
    for _ in range(sources[FILE_TOTAL]):
        file = array_at(sources[row + FILE_NUMBERS_AT], FILE_NUMBERS, np.int64)
        if file[BEGIN_OFFSET] <= physical_offset <= file[END_OFFSET]:
            length, counted = sources[row + LENGTH], sources[row + ARE_COUNTED]
            content = array_at(sources[row + ADDRESS], length, np.uint8)
            count, _ = add_of_file(content, length, file, counted, key_hash, out, at, SPARE)
            for number in range(at, count):
                if out[number] == physical_offset:
                    return True
        row += ROW_NUMBERS
    return False


@device
def segment_row(sources: Numbers, physical_offset: int) -> int:
    """Return the row of the segment with an offset, or `UNUSUAL`."""
    row = FIRST_ROW + (sources[RUN_TOTAL] + sources[FILE_TOTAL]) * ROW_NUMBERS
    for _ in range(sources[SEGMENT_TOTAL]):
        position = physical_offset - sources[row + SEGMENT_BEGIN]
        if 0 <= position < sources[row + LENGTH]:
            found: int = row
            return found
        row += ROW_NUMBERS
    return UNUSUAL


@device
def is_indexed_record(
    sources: Numbers,
    content: ByteArray,
    position: int,
    size: int,
    offset: int,
    request: Numbers,
    out: Numbers,
) -> bool:
    """Return whether the index has the record that was viewed, by its unique key.

    A record that a body has in it is in no index, and a queue need not be asked then.
    """
    topic = position + request[TOPIC_START]
    topic_end = topic + request[TOPIC_BYTES]
    start, stop = topic_end + _LENGTH_BYTES, position + size
    for name in range(start, stop - len(_UNIQUE_KEY)):
        if content[name] == _UNIQUE_KEY[0] and are_same(
            content, name, _UNIQUE_KEY, 0, len(_UNIQUE_KEY)
        ):
            key = name + len(_UNIQUE_KEY)
            key_end = key
            while key_end < stop and content[key_end] != _PROPERTY_END:
                key_end += 1
            if not is_printable(content, topic, topic_end - topic):
                return False
            if not is_printable(content, key, key_end - key):
                return False
            state = hash_text(content, topic, topic_end, 0) * 31 + _NUMBER_SIGN
            state = hash_text(content, key, key_end, state & 0xFFFFFFFF)
            hashed = index_hash(state)
            return is_entry_of_run(sources, hashed, offset) or is_entry_of_file(
                sources, hashed, offset, out, 1
            )
    return False


@device
def write_head(
    request: Numbers, bounds: Numbers, head: ByteArray, is_query: bool, reply: ByteArray, room: int
) -> int:
    """Write the header of a reply behind its prefix; return the position behind it, or `UNUSUAL` if
    there is no room for it.
    """
    start = 0
    parts = QUERY_PARTS
    count = QUERY_PART_COUNT
    if not is_query:
        for part in range(QUERY_PART_COUNT):
            start += bounds[QUERY_PARTS + part]
        parts = VIEW_PARTS
        count = VIEW_PART_COUNT
    number = HEAD_NUMBERS + QUERY_PART_COUNT - count
    at = _PREFIX_BYTES
    for part in range(count):
        length = bounds[parts + part]
        if room - at < length + _I64_DIGITS:
            return UNUSUAL
        copy_bytes(reply, at, head, start, length)
        start += length
        at += length
        if part < count - 1:
            at = write_number(reply, at, request[number + part])
    end: int = at
    return end


@device
def write_answer(
    request: Numbers,
    bounds: Numbers,
    head: ByteArray,
    sources: Numbers,
    offsets: Numbers,
    count: int,
    reply: ByteArray,
    room: int,
) -> int:
    """Write the reply with the records that match, in the log's order; return its length, or
    `UNUSUAL` if there is no room for it.
    """
    is_query = request[REQUEST_CODE] == bounds[SHORT_CODE]
    at = write_head(request, bounds, head, is_query, reply, room)
    if at < 0:
        return UNUSUAL
    store_i32(reply, LENGTH_BYTES, at - _PREFIX_BYTES)
    for number in range(count - 1, -1, -1):
        size = offsets[CANDIDATE_ROOM + number]
        if size <= 0:
            continue
        if size > room - at:
            return UNUSUAL
        row = segment_row(sources, offsets[number])
        content = array_at(sources[row + ADDRESS], sources[row + LENGTH], np.uint8)
        copy_bytes(reply, at, content, offsets[number] - sources[row + SEGMENT_BEGIN], size)
        at += size
    store_i32(reply, 0, at - LENGTH_BYTES)
    end: int = at
    return end


@device
def compared_in_segments(
    buffer: ByteArray, request: Numbers, sources: Numbers, out: Numbers, count: int, max_num: int
) -> tuple[int, int]:
    """Do :func:`.compared` in all segments; return the number that it does, and how many match."""
    first = matching = 0
    while first < count and matching < max_num:
        row = segment_row(sources, out[first])
        if row < 0:
            return UNUSUAL, 0
        base, length = sources[row + SEGMENT_BEGIN], sources[row + LENGTH]
        content = array_at(sources[row + ADDRESS], length, np.uint8)
        wanted = max_num - matching
        done = compared(buffer, request, content, length, base, out, first, count, wanted)
        if done <= first:
            return UNUSUAL, 0
        for number in range(first, done):
            if out[CANDIDATE_ROOM + number] > 0:
                matching += 1
        first = done
    return first, matching


@device
def newest_records(
    buffer: ByteArray, bounds: Numbers, request: Numbers, sources: Numbers, out: Numbers, log: Log
) -> int:
    """Find the newest records of a query; return how many candidates were compared, `UNUSUAL` or
    `BEHIND` if it is left to others. ``log``: its first offset, and its end.
    """
    min_offset, end_offset = log
    max_num = bounds[UNIQUE_NUM] if request[IS_UNIQUE_QUERY] == 1 else request[MAX_NUM]
    max_num = min(max_num, bounds[QUERY_NUM])
    limit = max_num + SPARE
    if max_num < 1 or limit > CANDIDATE_ROOM:
        return UNUSUAL
    count = 0
    start = sources[INDEXED_TO]
    if end_offset - start > MAX_LOOP_NEW_BYTES:
        return BEHIND
    if start < end_offset:
        row = segment_row(sources, start)
        if row < 0:
            return BEHIND
        base, length = sources[row + SEGMENT_BEGIN], sources[row + LENGTH]
        content = array_at(sources[row + ADDRESS], length, np.uint8)
        count = scanned(buffer, request, content, length, base, start, end_offset, out)
        if count < 0:
            return UNUSUAL
        # The newest first, as all others are: it takes less to sort them then.
        for number in range(count // 2):
            newest = out[count - 1 - number]
            out[count - 1 - number] = out[number]
            out[number] = newest
    count, floor = add_of_all(sources, request[HASH], limit, out, count)
    if count < 0:
        return UNUSUAL
    count = in_order(out, count, max(floor, min_offset))
    done, matching = compared_in_segments(buffer, request, sources, out, count, max_num)
    if matching == 0 or (matching < max_num and (done < count or floor > 0)):
        return UNUSUAL
    return done


@device
def view_record(request: Numbers, sources: Numbers, out: Numbers, log: Log) -> int:
    """Find the record at an offset; return what became of the request."""
    offset: int = request[OFFSET]
    min_offset, end_offset = log
    if offset < min_offset or offset >= end_offset:
        return UNUSUAL
    row = segment_row(sources, offset)
    if row < 0:
        return BEHIND if offset >= sources[INDEXED_TO] else UNUSUAL
    base = sources[row + SEGMENT_BEGIN]
    length = min(sources[row + LENGTH], end_offset - base)
    content = array_at(sources[row + ADDRESS], sources[row + LENGTH], np.uint8)
    size = viewed(content, length, base, offset, request)
    if size == 0:
        return UNUSUAL
    out[0], out[CANDIDATE_ROOM] = offset, size
    is_indexed = is_indexed_record(sources, content, offset - base, size, offset, request, out)
    return ANSWERED if is_indexed else UNPROVEN


@kernel(
    *(NUMBER, READ_ONLY_BYTES, NUMBER, NUMBER),
    types.Tuple((BYTES, INT64S, INT64S, INT64S, BYTES, BYTES)),
    *(INT64S, NUMBER, NUMBER, NUMBER, NUMBER),
)
def answer(
    frames: ByteArray,
    position: int,
    length: int,
    work: tuple[ByteArray, Numbers, Numbers, Numbers, ByteArray, ByteArray],
    known: Numbers,
    min_offset: int,
    end_offset: int,
    last_timestamp_ms: int,
    last_offset: int,
) -> int:
    """Write the reply to the request at ``position``, in the first ``length`` bytes of ``frames``.

    Returns what became of the request; where its frame ends, and how long the reply is, are in its
    numbers. ``work``: names, settings, numbers of the request, candidates, header of the reply,
    reply. ``known`` has the sources of all log up to an offset. The last two numbers are those of
    the last record.
    """
    buffer, bounds, request, offsets = raw(frames), raw(work[1]), raw(work[2]), raw(work[3])
    sources = raw(known)
    if position < 0 or length > len(frames):
        return NOT_PLAIN
    end = request_end(buffer, position, length, raw(work[0]), bounds, request)
    if end == 0:
        return NOT_PLAIN
    request[FRAME_END] = end
    request[HEAD_NUMBERS] = last_timestamp_ms
    request[HEAD_NUMBERS + 1] = last_offset
    request[HEAD_NUMBERS + 2] = request[OPAQUE]
    log = (min_offset, end_offset)
    state = ANSWERED
    count = 1
    if request[REQUEST_CODE] == bounds[SHORT_CODE]:
        count = newest_records(buffer, bounds, request, sources, offsets, log)
        if count < 0:
            state = count
    else:
        state = view_record(request, sources, offsets, log)
    if state < 0:
        return state
    head, reply, room = raw(work[4]), raw(work[5]), len(work[5])
    written = write_answer(request, bounds, head, sources, offsets, count, reply, room)
    if written < 0:
        return UNUSUAL
    request[REPLY_LENGTH] = written
    return state

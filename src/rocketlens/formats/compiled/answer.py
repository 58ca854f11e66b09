# cython: infer_types=True
"""A look-up by one compiled call: from the bytes of its request to those of its reply.

The sources are passed as addresses in one array, since each array argument adds more to the time of
a call than all addresses together.

| numbers of sources | what |
| --- | --- |
| 0 to 2 | the numbers of runs of entries, index files and segments |
| 3 | the physical offset up to which runs and files have all entries |
| 4 on | a row of four numbers for each, those of the newest log first |
| a run | address and number of its entries, 1 if they are sorted, start of its window |
| a file | address and length, 0, address of its numbers (`IndexFile.walk_numbers`) |
| a segment | address and length, 0, its first physical offset |

Unusual cases are left to ``broker.lookup``, as in ``look_up.pxd``.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.candidates import (
    Found,
    add_of_file,
    add_of_run,
    sort_candidates,
)
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    copy_bytes,
    need,
    read_bytes,
    read_int64s,
    same_memory,
    store_i32,
    write_bytes,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.headers import Settings, write_number
from cython.cimports.rocketlens.formats.compiled.look_up import (
    Request,
    Segment,
    compare_candidates,
    key_hash_of,
    request_end,
    scan_unindexed,
    view_at,
)
from cython.cimports.rocketlens.formats.compiled.look_up_constants import *
from cython.cimports.rocketlens.formats.compiled.numbers import is_printable
from cython.cimports.rocketlens.formats.compiled.record_constants import LENGTH_BYTES as SHORT_BYTES
from cython.cimports.rocketlens.formats.compiled.record_constants import PROPERTY_BYTE
from cython.cimports.rocketlens.formats.compiled.request_constants import (
    LENGTH_BYTES,
    NAME_BYTES,
    PREFIX_BYTES,
    SETTING_COUNT,
    SHORT_CODE,
    SPECIAL_NAMES,
)

LookUp = cython.struct(
    request=Request,
    bounds=Settings,
    sources=cython.pointer(cython.const[cython.longlong]),
    # Candidates, and after them the size of each.
    offsets=cython.p_longlong,
    head=Bytes,
    head_bytes=cython.longlong,
    reply=cython.p_uchar,
    room=cython.longlong,
    # The log's first offset, and its end.
    min_offset=cython.longlong,
    end_offset=cython.longlong,
)
Compared = cython.struct(done=cython.longlong, matching=cython.longlong)


@cython.cfunc
@cython.nogil
def bytes_at(address: cython.longlong) -> Bytes:
    """Return the memory at an address, which an array of the caller owns."""
    return cython.cast(Bytes, cython.cast(cython.size_t, address))


@cython.cfunc
@cython.nogil
def segment_of(row: cython.pointer(cython.const[cython.longlong])) -> Segment:
    segment: Segment
    segment.content = bytes_at(row[ADDRESS])
    segment.size = row[LENGTH]
    segment.base_offset = row[SEGMENT_BEGIN]
    return segment


@cython.cfunc
@cython.nogil
def add_of_all(
    look_up: cython.pointer(cython.const[LookUp]),
    wanted: cython.longlong,
    limit: cython.longlong,
    count: cython.longlong,
) -> Found:
    """Add the newest candidates of all runs and files to ``count``; return the new count, or
    `UNUSUAL`, and the offset from which on they are complete.
    """
    found: Found
    unusual: Found
    sources = look_up.sources
    out: cython.p_longlong = look_up.offsets
    row = sources + FIRST_ROW
    floor: cython.longlong = 0
    room: cython.longlong = CANDIDATE_ROOM - limit
    index: cython.longlong
    unusual.count = UNUSUAL
    unusual.is_whole = 0
    for index in range(sources[RUN_TOTAL]):
        if count > room:
            return unusual
        found = add_of_run(
            cython.cast(
                cython.pointer(cython.const[cython.ulonglong]),
                cython.cast(cython.size_t, row[ADDRESS]),
            ),
            row[LENGTH],
            row[IS_SORTED] != 0,
            wanted,
            row[WINDOW_BEGIN],
            out,
            count,
            limit,
        )
        count = found.count
        if found.is_whole == 0:
            floor = max(floor, out[count - 1])
        row += ROW_NUMBERS
    of_files: cython.longlong = count
    for index in range(sources[FILE_TOTAL]):
        if count - of_files >= limit:
            floor = max(floor, out[count - 1])
            break
        if count > room:
            return unusual
        found = add_of_file(row, wanted, out, cython.NULL, count, limit)
        if found.count < 0:
            return unusual
        count = found.count
        if found.is_whole == 0:
            floor = max(floor, out[count - 1])
        row += ROW_NUMBERS
    found.count = count
    found.is_whole = floor
    return found


@cython.cfunc
@cython.nogil
def is_entry_of_run(
    sources: cython.pointer(cython.const[cython.longlong]),
    key_hash: cython.longlong,
    physical_offset: cython.longlong,
) -> cython.bint:
    """Return True if an entry of a sorted run has this hash and offset."""
    row = sources + FIRST_ROW
    index: cython.longlong
    low: cython.longlong
    high: cython.longlong
    middle: cython.longlong
    wanted: cython.ulonglong
    for index in range(sources[RUN_TOTAL]):
        position: cython.longlong = physical_offset - row[WINDOW_BEGIN]
        if position >> 32 == 0 and row[IS_SORTED] != 0:
            entries = cython.cast(
                cython.pointer(cython.const[cython.ulonglong]),
                cython.cast(cython.size_t, row[ADDRESS]),
            )
            wanted = cython.cast(cython.ulonglong, key_hash) << 32 | cython.cast(
                cython.ulonglong, position
            )
            low = 0
            high = row[LENGTH]
            while low < high:
                middle = (low + high) >> 1
                if entries[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < row[LENGTH] and entries[low] == wanted:
                return True
        row += ROW_NUMBERS
    return False


@cython.cfunc
@cython.nogil
def is_entry_of_file(
    look_up: cython.pointer(cython.const[LookUp]),
    key_hash: cython.longlong,
    physical_offset: cython.longlong,
) -> cython.bint:
    """Return True if an entry of an index file has this hash and offset.

    Candidates are written after the first.
    """
    sources = look_up.sources
    row = sources + FIRST_ROW + sources[RUN_TOTAL] * ROW_NUMBERS
    index: cython.longlong
    number: cython.longlong
    found: Found
    for index in range(sources[FILE_TOTAL]):
        file = cython.cast(
            cython.pointer(cython.const[cython.longlong]),
            cython.cast(cython.size_t, row[FILE_NUMBERS_AT]),
        )
        if file[BEGIN_OFFSET] <= physical_offset and physical_offset <= file[END_OFFSET]:
            found = add_of_file(row, key_hash, look_up.offsets, cython.NULL, 1, SPARE)
            for number in range(1, found.count):
                if look_up.offsets[number] == physical_offset:
                    return True
        row += ROW_NUMBERS
    return False


@cython.cfunc
@cython.nogil
def segment_row(
    sources: cython.pointer(cython.const[cython.longlong]), physical_offset: cython.longlong
) -> cython.longlong:
    """Return the row of the segment with an offset, or `UNUSUAL`."""
    row: cython.longlong = FIRST_ROW + (sources[RUN_TOTAL] + sources[FILE_TOTAL]) * ROW_NUMBERS
    index: cython.longlong
    for index in range(sources[SEGMENT_TOTAL]):
        position: cython.longlong = physical_offset - sources[row + SEGMENT_BEGIN]
        if position >= 0 and position < sources[row + LENGTH]:
            return row
        row += ROW_NUMBERS
    return UNUSUAL


@cython.cfunc
@cython.nogil
def is_indexed_record(
    look_up: cython.pointer(cython.const[LookUp]),
    content: Bytes,
    position: cython.longlong,
    size: cython.longlong,
) -> cython.bint:
    """Return True if the index has the viewed record, by its unique key.

    Bytes inside a body that look like a record are in no index; for an indexed record, no queue has
    to be asked.
    """
    numbers = look_up.request.numbers
    topic: cython.longlong = position + numbers[TOPIC_START]
    topic_bytes: cython.longlong = numbers[TOPIC_BYTES]
    stop: cython.longlong = position + size
    name: cython.longlong
    for name in range(topic + topic_bytes + SHORT_BYTES, stop - 9):
        if content[name] == UNIQUE_KEY_NAME[0] and same_memory(
            content, name, UNIQUE_KEY_NAME, 0, 9
        ):
            key: cython.longlong = name + 9
            key_end: cython.longlong = key
            while key_end < stop and content[key_end] != PROPERTY_BYTE:
                key_end += 1
            if not is_printable(content, topic, topic_bytes):
                return False
            if not is_printable(content, key, key_end - key):
                return False
            hashed = key_hash_of(content, topic, topic_bytes, content, key, key_end - key)
            return is_entry_of_run(look_up.sources, hashed, numbers[OFFSET]) or is_entry_of_file(
                look_up, hashed, numbers[OFFSET]
            )
    return False


@cython.cfunc
@cython.nogil
def write_head(
    look_up: cython.pointer(cython.const[LookUp]), is_query: cython.bint
) -> cython.longlong:
    """Write the header of a reply after its prefix; return the position after it, or `UNUSUAL`."""
    start: cython.longlong = 0
    parts: cython.longlong = QUERY_PARTS
    count: cython.longlong = QUERY_PART_COUNT
    at: cython.longlong = PREFIX_BYTES
    part: cython.longlong
    length: cython.longlong
    if not is_query:
        for part in range(QUERY_PART_COUNT):
            start += look_up.bounds[QUERY_PARTS + part]
        parts = VIEW_PARTS
        count = VIEW_PART_COUNT
    number: cython.longlong = HEAD_NUMBERS + QUERY_PART_COUNT - count
    for part in range(count):
        length = look_up.bounds[parts + part]
        if length < 0 or start + length > look_up.head_bytes:
            return UNUSUAL
        if look_up.room - at < length + 20:
            return UNUSUAL
        copy_bytes(look_up.reply, at, look_up.head, start, length)
        start += length
        at += length
        if part < count - 1:
            at = write_number(look_up.reply, at, look_up.request.numbers[number + part])
    return at


@cython.cfunc
@cython.nogil
def write_answer(
    look_up: cython.pointer(cython.const[LookUp]), count: cython.longlong
) -> cython.longlong:
    """Write the reply with the matching records in log order; return its length, or `UNUSUAL`."""
    offsets = look_up.offsets
    number: cython.longlong
    segment: Segment
    at: cython.longlong = write_head(
        look_up, look_up.request.numbers[REQUEST_CODE] == look_up.bounds[SHORT_CODE]
    )
    if at < 0:
        return UNUSUAL
    store_i32(look_up.reply, LENGTH_BYTES, at - PREFIX_BYTES)
    for number in range(count - 1, -1, -1):
        size: cython.longlong = offsets[CANDIDATE_ROOM + number]
        if size <= 0:
            continue
        if size > look_up.room - at:
            return UNUSUAL
        row: cython.longlong = segment_row(look_up.sources, offsets[number])
        if row < 0:
            return UNUSUAL
        segment = segment_of(look_up.sources + row)
        copy_bytes(look_up.reply, at, segment.content, offsets[number] - segment.base_offset, size)
        at += size
    store_i32(look_up.reply, 0, at - LENGTH_BYTES)
    return at


@cython.cfunc
@cython.nogil
def compare_in_segments(
    look_up: cython.pointer(cython.const[LookUp]), count: cython.longlong, max_num: cython.longlong
) -> Compared:
    """Run ``compare_candidates`` in all segments; return how many it compared and matched."""
    compared: Compared
    segment: Segment
    number: cython.longlong
    done: cython.longlong
    row: cython.longlong
    compared.done = compared.matching = 0
    while compared.done < count and compared.matching < max_num:
        row = segment_row(look_up.sources, look_up.offsets[compared.done])
        done = UNUSUAL
        if row >= 0:
            segment = segment_of(look_up.sources + row)
            done = compare_candidates(
                cython.address(look_up.request),
                cython.address(segment),
                look_up.offsets,
                compared.done,
                count,
                max_num - compared.matching,
            )
        if done <= compared.done:
            compared.done = UNUSUAL
            compared.matching = 0
            return compared
        for number in range(compared.done, done):
            if look_up.offsets[CANDIDATE_ROOM + number] > 0:
                compared.matching += 1
        compared.done = done
    return compared


@cython.cfunc
@cython.nogil
def newest_records(look_up: cython.pointer(cython.const[LookUp])) -> cython.longlong:
    """Find the newest records of a query; return how many were compared, `UNUSUAL` or `BEHIND`."""
    numbers = look_up.request.numbers
    bounds = look_up.bounds
    out = look_up.offsets
    found: Found
    compared: Compared
    segment: Segment
    count: cython.longlong = 0
    number: cython.longlong
    row: cython.longlong
    max_num: cython.longlong = (
        bounds[UNIQUE_NUM] if numbers[IS_UNIQUE_QUERY] == 1 else numbers[MAX_NUM]
    )
    max_num = min(max_num, bounds[QUERY_NUM])
    if max_num < 1 or max_num + SPARE > CANDIDATE_ROOM:
        return UNUSUAL
    start: cython.longlong = look_up.sources[INDEXED_TO]
    if look_up.end_offset - start > MAX_LOOP_NEW_BYTES:
        return BEHIND
    if start < look_up.end_offset:
        row = segment_row(look_up.sources, start)
        if row < 0:
            return BEHIND
        segment = segment_of(look_up.sources + row)
        count = scan_unindexed(
            cython.address(look_up.request), cython.address(segment), start, look_up.end_offset, out
        )
        if count < 0:
            return UNUSUAL
        # Newest first, like all others, which makes sorting them cheap.
        for number in range(count // 2):
            newest: cython.longlong = out[count - 1 - number]
            out[count - 1 - number] = out[number]
            out[number] = newest
    found = add_of_all(look_up, numbers[HASH], max_num + SPARE, count)
    if found.count < 0:
        return UNUSUAL
    floor: cython.longlong = found.is_whole
    count = sort_candidates(out, found.count, max(floor, look_up.min_offset))
    compared = compare_in_segments(look_up, count, max_num)
    if compared.matching == 0:
        return UNUSUAL
    if compared.matching < max_num and (compared.done < count or floor > 0):
        return UNUSUAL
    return compared.done


@cython.cfunc
@cython.nogil
def view_record(look_up: cython.pointer(cython.const[LookUp])) -> cython.longlong:
    """Find the record at an offset; return the outcome of the request."""
    offset: cython.longlong = look_up.request.numbers[OFFSET]
    segment: Segment
    if offset < look_up.min_offset or offset >= look_up.end_offset:
        return UNUSUAL
    row: cython.longlong = segment_row(look_up.sources, offset)
    if row < 0:
        return BEHIND if offset >= look_up.sources[INDEXED_TO] else UNUSUAL
    segment = segment_of(look_up.sources + row)
    limit: cython.longlong = min(segment.size, look_up.end_offset - segment.base_offset)
    size: cython.longlong = view_at(cython.address(segment), limit, offset, look_up.request.numbers)
    if size == 0:
        return UNUSUAL
    look_up.offsets[0] = offset
    look_up.offsets[CANDIDATE_ROOM] = size
    if is_indexed_record(look_up, segment.content, offset - segment.base_offset, size):
        return ANSWERED
    return UNPROVEN


@cython.cfunc
@cython.nogil
def _answer(
    look_up: cython.pointer(LookUp),
    names: Bytes,
    position: cython.longlong,
    length: cython.longlong,
    last_timestamp_ms: cython.longlong,
    last_offset: cython.longlong,
) -> cython.longlong:
    numbers = look_up.request.numbers
    end: cython.longlong = request_end(
        look_up.request.buffer, position, length, names, look_up.bounds, numbers
    )
    if end == 0:
        return NOT_PLAIN
    numbers[FRAME_END] = end
    numbers[HEAD_NUMBERS] = last_timestamp_ms
    numbers[HEAD_NUMBERS + 1] = last_offset
    numbers[HEAD_NUMBERS + 2] = numbers[OPAQUE]
    state: cython.longlong = ANSWERED
    count: cython.longlong = 1
    if numbers[REQUEST_CODE] == look_up.bounds[SHORT_CODE]:
        count = newest_records(look_up)
        if count < 0:
            state = count
    else:
        state = view_record(look_up)
    if state < 0:
        return state
    written: cython.longlong = write_answer(look_up, count)
    if written < 0:
        return UNUSUAL
    numbers[REPLY_LENGTH] = written
    return state


def answer(
    frames: object,
    position: cython.longlong,
    length: cython.longlong,
    work: tuple,
    known: object,
    min_offset: cython.longlong,
    end_offset: cython.longlong,
    last_timestamp_ms: cython.longlong,
    last_offset: cython.longlong,
) -> int:
    """Write the reply to the request at ``position``, in the first ``length`` bytes of ``frames``.

    Return the outcome; the end of the request's frame and the length of the reply are in its
    numbers. ``work``: names, settings, numbers of the request, candidates, header of the reply,
    reply. ``known``: the sources of the whole log up to an offset. The last two numbers are those
    of the last record.
    """
    look_up: LookUp
    limit: cython.longlong = 0
    count: cython.longlong = 0
    state: cython.longlong = NOT_PLAIN
    names, settings, numbers, candidates, head, reply = work
    held: HeldArrays = HeldArrays()
    look_up.request.buffer = read_bytes(held, frames, cython.address(limit))
    cells: Bytes = read_bytes(held, names, cython.address(count))
    need(count, SPECIAL_NAMES * NAME_BYTES)
    look_up.bounds = read_int64s(held, settings, cython.address(count))
    need(count, SETTING_COUNT)
    look_up.request.numbers = write_int64s(held, numbers, cython.address(count))
    need(count, ANSWER_NUMBERS)
    look_up.offsets = write_int64s(held, candidates, cython.address(count))
    need(count, 2 * CANDIDATE_ROOM)
    look_up.head = read_bytes(held, head, cython.address(look_up.head_bytes))
    look_up.reply = write_bytes(held, reply, cython.address(look_up.room))
    look_up.sources = read_int64s(held, known, cython.address(count))
    need(count, FIRST_ROW)
    look_up.min_offset = min_offset
    look_up.end_offset = end_offset
    need(
        (count - FIRST_ROW) // ROW_NUMBERS,
        look_up.sources[RUN_TOTAL] + look_up.sources[FILE_TOTAL] + look_up.sources[SEGMENT_TOTAL],
    )
    if position >= 0 and length <= limit:
        with cython.nogil:
            state = _answer(
                cython.address(look_up), cells, position, length, last_timestamp_ms, last_offset
            )
    return state

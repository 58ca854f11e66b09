# cython: infer_types=True
"""The compiled reading of a pull: its request, and the records of a stretch of a queue.

A request in a form that RocketMQ's clients do not write is left to :mod:`rocketlens.wire`, the
definition; ``broker.delivery.pull_reader`` has the rules for taking records.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    load_i32,
    load_i64,
    read_bytes,
    read_int32s,
    read_int64s,
    same_memory,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.headers import Frame, frame_at, read_header
from cython.cimports.rocketlens.formats.compiled.numbers import is_printable, long_in
from cython.cimports.rocketlens.formats.compiled.pull_constants import (
    GROUP,
    LAST_NEEDED,
    LONG_FIELDS,
    MAX_INT,
    NUMBER_COUNT,
    REQUEST_NUMBERS,
    SLICES,
    TEXT_STOP,
    TOPIC,
    VALUES,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import (
    BODY_CRC,
    LENGTH_BYTES,
    LOWEST_TAGS_CODE,
    QUEUE_ENTRY_BYTES,
    QUEUE_ENTRY_OFFSET,
    QUEUE_ENTRY_SIZE,
    QUEUE_ENTRY_TAGS,
    QUEUE_ID,
    QUEUE_OFFSET,
)
from cython.cimports.rocketlens.formats.compiled.records import (
    Measured,
    checksums_agree,
    measure_record,
)
from cython.cimports.rocketlens.formats.compiled.request_constants import (
    FLAGS,
    NAME_BYTES,
    NO_NUMBER,
    NUMBERS,
    PREFIX_BYTES,
    SETTING_COUNT,
    SPECIAL_NAMES,
)

Log = cython.struct(
    buffer=Bytes,
    limit=cython.longlong,
    base_offset=cython.longlong,
    first=cython.longlong,
    stop=cython.longlong,
)
Queue = cython.struct(
    entries=Bytes,
    entry_count=cython.longlong,
    topic=Bytes,
    topic_bytes=cython.longlong,
    queue_id=cython.longlong,
    first_offset=cython.longlong,
    tag_codes=cython.pointer(cython.const[cython.int]),
    tag_count=cython.longlong,
    by_tags=cython.bint,
)
Taken = cython.struct(
    entries=cython.longlong,
    records=cython.longlong,
    bytes=cython.longlong,
    slices=cython.longlong,
    is_full=cython.longlong,
)


@cython.cfunc
@cython.nogil
def has_number(
    numbers: cython.pointer(cython.const[cython.int]),
    count: cython.longlong,
    number: cython.longlong,
) -> cython.bint:
    """Return True if a number is among ``count`` ascending ones."""
    low: cython.longlong = 0
    high: cython.longlong = count
    middle: cython.longlong
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < count and numbers[low] == number


@cython.cfunc
@cython.nogil
def is_of_entry(
    log: cython.pointer(cython.const[Log]),
    queue: cython.pointer(cython.const[Queue]),
    physical_offset: cython.longlong,
    size: cython.longlong,
    queue_offset: cython.longlong,
) -> cython.bint:
    """Return True if a whole, undamaged record of a queue's entry begins at an offset."""
    record: cython.longlong = physical_offset - log.base_offset
    measured: Measured = measure_record(log.buffer, physical_offset, record, log.limit)
    if measured.size == 0 or measured.size != size:
        return False
    if (
        load_i32(log.buffer, record + QUEUE_ID) != queue.queue_id
        or load_i64(log.buffer, record + QUEUE_OFFSET) != queue_offset
        or measured.topic_length != queue.topic_bytes
        or not same_memory(
            log.buffer, record + measured.topic_start, queue.topic, 0, queue.topic_bytes
        )
    ):
        return False
    return checksums_agree(
        log.buffer,
        record,
        size,
        measured.body_start,
        measured.body_length,
        load_i32(log.buffer, record + BODY_CRC),
        size - (measured.topic_start + measured.topic_length + LENGTH_BYTES),
    )


@cython.cfunc
@cython.nogil
def take_records(
    log: cython.pointer(cython.const[Log]),
    queue: cython.pointer(cython.const[Queue]),
    taken: Taken,
    max_count: cython.longlong,
    max_bytes: cython.longlong,
    slices: cython.p_longlong,
) -> Taken:
    """Take records of entries until one needs a closer check, or there is no room."""
    end: cython.longlong = -1
    number: cython.longlong
    at: cython.longlong
    for number in range(queue.entry_count):
        taken.entries = number
        at = number * QUEUE_ENTRY_BYTES
        # The low half of the tags code is the Java hash, unless it is an address: that passes.
        if (
            queue.by_tags
            and load_i64(queue.entries, at + QUEUE_ENTRY_TAGS) >= LOWEST_TAGS_CODE
            and not has_number(
                queue.tag_codes, queue.tag_count, load_i32(queue.entries, at + QUEUE_ENTRY_TAGS + 4)
            )
        ):
            continue
        physical_offset = load_i64(queue.entries, at + QUEUE_ENTRY_OFFSET)
        if physical_offset < log.first or physical_offset >= log.stop:
            return taken
        size = load_i32(queue.entries, at + QUEUE_ENTRY_SIZE)
        if not is_of_entry(log, queue, physical_offset, size, queue.first_offset + number):
            return taken
        if taken.records > 0 and (taken.records >= max_count or taken.bytes + size > max_bytes):
            taken.is_full = 1
            return taken
        record = physical_offset - log.base_offset
        if record != end:
            # Contiguous records, such as those of a batch, become one slice.
            slices[2 * taken.slices] = record
            taken.slices += 1
        end = record + size
        slices[2 * taken.slices - 1] = end
        taken.records += 1
        taken.bytes += size
    taken.entries = queue.entry_count
    return taken


def take(
    entries: object,
    queue_id: cython.longlong,
    queue_offset: cython.longlong,
    topic: object,
    tag_codes: object,
    by_tags: cython.bint,
    buffer: object,
    base_offset: cython.longlong,
    first: cython.longlong,
    stop: cython.longlong,
    count: cython.longlong,
    total_bytes: cython.longlong,
    max_count: cython.longlong,
    max_bytes: cython.longlong,
    slices: object,
) -> tuple[int, int, int, int, int]:
    """Take records of entries up to the first that needs a closer check, or has no room.

    Return entries done, records and bytes taken, slices written, and 1 if there was no room.
    """
    log: Log
    queue: Queue
    taken: Taken
    room: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    queue.entries = read_bytes(held, entries, cython.address(queue.entry_count))
    queue.entry_count //= QUEUE_ENTRY_BYTES
    queue.topic = read_bytes(held, topic, cython.address(queue.topic_bytes))
    queue.tag_codes = read_int32s(held, tag_codes, cython.address(queue.tag_count))
    queue.queue_id = queue_id
    queue.first_offset = queue_offset
    queue.by_tags = by_tags
    log.buffer = read_bytes(held, buffer, cython.address(log.limit))
    log.base_offset = base_offset
    log.first = first
    log.stop = stop
    if first < base_offset or stop > base_offset + log.limit or not 0 <= base_offset <= 1 << 62:
        raise ValueError(f"offsets {first} to {stop} are not inside the buffer")
    bounds: cython.p_longlong = write_int64s(held, slices, cython.address(room))
    if room < 2 * queue.entry_count:
        raise ValueError(f"{room} numbers are too few for {queue.entry_count} slices")
    taken.entries = taken.slices = taken.is_full = 0
    taken.records = count
    taken.bytes = total_bytes
    with cython.nogil:
        taken = take_records(
            cython.address(log), cython.address(queue), taken, max_count, max_bytes, bounds
        )
    return taken.entries, taken.records, taken.bytes, taken.slices, taken.is_full


@cython.cfunc
@cython.nogil
def read_fields(buffer: Bytes, numbers: cython.p_longlong) -> cython.bint:
    """Read the numbers of a pull, and check its texts; return False if it is not plain."""
    field: cython.longlong
    value: cython.longlong
    length: cython.longlong
    for field in range(NUMBER_COUNT):
        length = numbers[2 * field + 1]
        value = 0
        if length >= 0 or field <= LAST_NEEDED:
            value = long_in(buffer, numbers[2 * field], length)
        if value == NO_NUMBER:
            return False
        if LONG_FIELDS >> field & 1 == 0 and (value > MAX_INT or value < -MAX_INT - 1):
            return False
        numbers[VALUES + field] = value
    for field in range(GROUP, TEXT_STOP):
        length = numbers[2 * field + 1]
        if field <= TOPIC and length < 1:
            return False
        if not is_printable(buffer, numbers[2 * field], length):
            return False
        numbers[SLICES + 2 * (field - GROUP)] = numbers[2 * field]
        numbers[SLICES + 2 * (field - GROUP) + 1] = length
    return True


def read_request(
    frames: object,
    position: cython.longlong,
    length: cython.longlong,
    names: object,
    settings: object,
    numbers: object,
) -> int:
    """Read the pull at ``position`` of the first ``length`` bytes of ``frames``.

    Return the end of its frame, 0 if it is not plain. ``settings`` are those of a header, with the
    two codes of pulls.
    """
    frame: Frame
    limit: cython.longlong = 0
    count: cython.longlong = 0
    end: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    buffer: Bytes = read_bytes(held, frames, cython.address(limit))
    cells: Bytes = read_bytes(held, names, cython.address(count))
    if count < SPECIAL_NAMES * NAME_BYTES:
        raise ValueError("a name of a field is missing")
    bounds = read_int64s(held, settings, cython.address(count))
    if count < SETTING_COUNT:
        raise ValueError("a setting is missing")
    out: cython.p_longlong = write_int64s(held, numbers, cython.address(count))
    if count < REQUEST_NUMBERS:
        raise ValueError(f"a request has {REQUEST_NUMBERS} numbers")
    if position >= 0 and length <= limit:
        with cython.nogil:
            frame = frame_at(buffer, position, length, bounds)
            if (
                frame.codec >= 0
                and read_header(
                    buffer,
                    frame.codec,
                    position + PREFIX_BYTES,
                    frame.header_end,
                    cells,
                    bounds,
                    out,
                )
                and out[NUMBERS + FLAGS] == 0
                and read_fields(buffer, out)
            ):
                end = frame.end
    return end

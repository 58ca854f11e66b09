"""Functions on records for several kernels: position, parts, checksums.

A record is valid here if :func:`rocketlens.formats.commitlog_record.decode` accepts it with
``check_crc=False``; a test compares the two.
"""

from rocketlens.formats.compiled.device cimport (
    Bytes,
    HeldArrays,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_word,
    read_rows,
)
from rocketlens.formats.compiled.record_constants cimport *


cdef inline const Row *open_rows(HeldArrays held, object rows, long long *count) except NULL:
    return <const Row *>read_rows(held, rows, sizeof(Row), count)


cdef struct Measured:
    long long size  # 0: no record
    long long body_start
    long long body_length
    long long topic_start
    long long topic_length


cdef inline bint is_indexed(long long sys_flag) noexcept nogil:
    """As :func:`rocketlens.formats.commitlog_record.is_indexed`."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK


cdef inline bint has_queue_entry(long long sys_flag) noexcept nogil:
    """As :func:`rocketlens.formats.commitlog_record.has_queue_entry`."""
    return sys_flag & SYS_FLAG_PREPARED == 0


cdef inline long long more_of_born_host(long long sys_flag) noexcept nogil:
    """Return the extra bytes of the born host compared with IPv4."""
    return MORE_HOST_BYTES if sys_flag & SYS_FLAG_BORN_HOST_V6 else 0


cdef inline long long more_of_hosts(long long sys_flag) noexcept nogil:
    """Return the extra bytes of both hosts compared with IPv4."""
    return more_of_born_host(sys_flag) + (
        MORE_HOST_BYTES if sys_flag & SYS_FLAG_STORE_HOST_V6 else 0
    )


cdef inline Measured measure_record(
    Bytes buffer, long long physical_offset, long long position, long long limit
) noexcept nogil:
    """Measure the record at ``position``, which ends by ``limit``; the size is 0 without one.

    Starts of parts are relative to the record. The parts add up to the size exactly. ``limit`` must
    not exceed the length of the buffer.
    """
    cdef Measured measured
    cdef long long size, magic, sys_flag, more, body_start, body_length, wide, parts
    cdef long long topic_start, topic_length
    measured.size = measured.body_start = measured.body_length = 0
    measured.topic_start = measured.topic_length = 0
    if limit - position < MIN_RECORD_BYTES:
        return measured
    size = load_i32(buffer, position)
    magic = load_i32(buffer, position + MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return measured
    if size < MIN_RECORD_BYTES or size > limit - position or size > MAX_RECORD_BYTES:
        return measured
    if load_i64(buffer, position + PHYSICAL_OFFSET) != physical_offset:
        return measured
    sys_flag = load_i32(buffer, position + SYS_FLAG)
    more = more_of_hosts(sys_flag)
    body_start = HEAD_BYTES + more
    wide = 1 if magic == MAGIC_V1 else LENGTH_BYTES
    # The rest is the body, the topic and the properties with their lengths.
    parts = size - (body_start + wide + LENGTH_BYTES)
    if parts < 0:
        return measured
    if (
        load_i32(buffer, position + BORN_PORT + more_of_born_host(sys_flag))
        | load_i32(buffer, position + STORE_PORT + more)
    ) >> 16 != 0:
        return measured
    body_length = load_i32(buffer, position + BODY_LENGTH + more)
    if body_length < 0 or body_length > parts:
        return measured
    topic_start = body_start + body_length + wide
    if wide == 1:
        topic_length = load_i8(buffer, position + topic_start - 1)
    else:
        topic_length = load_i16(buffer, position + topic_start - LENGTH_BYTES)
    if topic_length < 0 or topic_length > parts - body_length:
        return measured
    if load_i16(buffer, position + topic_start + topic_length) != parts - body_length - topic_length:
        return measured
    measured.size = size
    measured.body_start = body_start
    measured.body_length = body_length
    measured.topic_start = topic_start
    measured.topic_length = topic_length
    return measured


cdef inline bint is_inside(long long start, long long length, long long size) noexcept nogil:
    """Return True if a slice is in a record of ``size`` bytes, after its fixed fields."""
    # At byte 64 or later, so that kernels can read 64 bytes before the end of any slice.
    return start >= 64 and length >= 0 and start + length <= size


cdef inline long long row_position(
    long long limit, long long base_offset, const Row *row
) noexcept nogil:
    """Return the position of a row's record in ``limit`` bytes; -1 if a slice isn't inside it.

    Rows come from a scan, but a caller can pass them with another buffer.
    """
    cdef long long position = row.physical_offset - base_offset
    cdef long long size = row.store_size
    if position < 0 or size < MIN_RECORD_BYTES or position > limit - size:
        return -1
    if not is_inside(row.topic_start, row.topic_length, size):
        return -1
    if not is_inside(row.properties_start, row.properties_length, size):
        return -1
    if not is_inside(row.body_start, row.body_length, size):
        return -1
    if row.unique_key_length > 0 and not is_inside(row.unique_key_start, row.unique_key_length, size):
        return -1
    if row.keys_length > 0 and not is_inside(row.keys_start, row.keys_length, size):
        return -1
    if row.tags_length > 0 and not is_inside(row.tags_start, row.tags_length, size):
        return -1
    return position


cdef inline unsigned long long crc32(Bytes buffer, long long start, long long stop) noexcept nogil:
    """Compute zlib's CRC-32 of a slice, eight bytes at a time."""
    cdef unsigned long long crc = 0xFFFFFFFFULL
    cdef unsigned long long word
    while start + 8 <= stop:
        word = load_word(buffer, start) ^ crc
        crc = (
            CRC_TABLES[7 * 256 + (word & 0xFF)]
            ^ CRC_TABLES[6 * 256 + (word >> 8 & 0xFF)]
            ^ CRC_TABLES[5 * 256 + (word >> 16 & 0xFF)]
            ^ CRC_TABLES[4 * 256 + (word >> 24 & 0xFF)]
            ^ CRC_TABLES[3 * 256 + (word >> 32 & 0xFF)]
            ^ CRC_TABLES[2 * 256 + (word >> 40 & 0xFF)]
            ^ CRC_TABLES[256 + (word >> 48 & 0xFF)]
            ^ CRC_TABLES[word >> 56]
        )
        start += 8
    while start < stop:
        crc = crc >> 8 ^ <unsigned long long>CRC_TABLES[(crc ^ buffer[start]) & 0xFF]
        start += 1
    return crc ^ 0xFFFFFFFFULL


cdef inline bint crc_tail_agrees(Bytes buffer, long long record, long long start) noexcept nogil:
    """Compare the checksum at ``start``, least significant digit first, with the record's."""
    cdef long long rest = crc32(buffer, record, start) & <unsigned long long>CRC_MASK
    cdef long long position
    for position in range(start + 9, start + 19):
        if buffer[position] != ZERO_DIGIT + rest % 10:
            return False
        rest = rest // 10
    return True


cdef inline bint checksums_agree(
    Bytes buffer,
    long long record,
    long long size,
    long long body,
    long long body_length,
    long long body_crc,
    long long properties_length,
) noexcept nogil:
    """Compare the record at ``record`` with its checksums; its parts must be inside the buffer.

    As in RocketMQ, an empty body has none. The checksum of the whole record is optional: it is the
    last property.
    """
    cdef long long start = record + body
    cdef long long tail = record + size - CRC_PROPERTY_BYTES
    if body_length > 0:
        if <long long>(
            crc32(buffer, start, start + body_length) & <unsigned long long>CRC_MASK
        ) != body_crc:
            return False
    if properties_length >= CRC_PROPERTY_BYTES:
        if (
            load_word(buffer, tail) == <unsigned long long>CRC_NAME
            and buffer[tail + 8] == NAME_BYTE
            and buffer[tail + CRC_PROPERTY_BYTES - 1] == PROPERTY_BYTE
        ):
            return crc_tail_agrees(buffer, record, tail)
    return True

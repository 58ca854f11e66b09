"""Logs for the kernels' tests, and plain Python that says what the kernels must say."""

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rocketlens.errors import RecordError
from rocketlens.formats import columns
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.compiled import index, record_constants
from rocketlens.formats.compiled import scan as kernels_scan
from rocketlens.formats.compiled.rows import RECORD_DTYPE
from rocketlens.formats.index_file import ChainCheck
from rocketlens.formats.rows import IndexEntries, Rows
from rocketlens.model import properties
from rocketlens.model.text import java
from rocketlens.model.text.java import decode_utf8
from tests.support.index_writer import IndexWriter

V1, V2 = records.MAGIC_V1, records.MAGIC_V2
REASONS = {records.Reason.END: record_constants.END, records.Reason.BLANK: record_constants.BLANK}


def of_log(buffer, base_offset, rows):
    """Rows of an array and the bytes of their log."""
    return Rows.of(memoryview(buffer), base_offset, rows)


def index_entries(buffer, base_offset, rows, *, with_tags):
    """Return the index entries of rows as arrays of numpy."""
    entries = of_log(buffer, base_offset, rows).index_entries(with_tags=with_tags)
    return IndexEntries(*map(np.asarray, entries))


def array(content):
    """A read-only array, as a memory map is."""
    return np.frombuffer(bytes(content), np.uint8)


def raw_record(
    physical_offset,
    *,
    topic=b"T",
    properties_bytes=b"",
    body=b"body",
    magic=V1,
    sys_flag=0,
    queue_id=0,
    queue_offset=0,
    store_timestamp_ms=1_700_000_000_000,
    body_crc=0,
):
    """Bytes of a record of right shape; topic and properties are bytes, to be malformed in."""
    born = b"\x7f\0\0\1" * (4 if sys_flag & 0x10 else 1) + struct.pack(">i", 40000)
    store = b"\x7f\0\0\1" * (4 if sys_flag & 0x20 else 1) + struct.pack(">i", 10911)
    tail = (
        struct.pack(">q", 1_700_000_000_000)
        + born
        + struct.pack(">q", store_timestamp_ms)
        + store
        + struct.pack(">iqi", 3, 77, len(body))
        + body
        + struct.pack(">h" if magic == V2 else ">b", len(topic))
        + topic
        + struct.pack(">h", len(properties_bytes))
        + properties_bytes
    )
    head = struct.pack(
        ">iiiiqqi", magic, body_crc, queue_id, 5, queue_offset, physical_offset, sys_flag
    )
    return struct.pack(">i", 4 + len(head) + len(tail)) + head + tail


def raw_log(base_offset, parts):
    """Records one behind the other; each part is the keyword arguments of :func:`raw_record`."""
    log = bytearray()
    for part in parts:
        log += raw_record(base_offset + len(log), **part)
    return bytes(log)


def blank(length):
    """The filler at the end of a segment."""
    return struct.pack(">ii", length, records.MAGIC_BLANK).ljust(length, b"\0")


def scan(buffer, base_offset=0, start=0, stop=None, room=1000):
    """All rows; and how many, and where and why the walk ended."""
    rows = np.zeros(room, RECORD_DTYPE)
    end = len(buffer) if stop is None else stop
    ended = kernels_scan.scan(buffer, base_offset, start, end, rows)
    return rows[: ended[0]], ended


def python_scan(content, base_offset=0, start=0, stop=None):
    """What a scan must find: the records, the next position, the reason."""
    found = []
    position = start
    end = len(content) if stop is None else stop
    while position < end:
        try:
            record = records.decode(
                content, position, physical_offset=base_offset + position, check_crc=False
            )
        except RecordError as error:
            return found, position, REASONS.get(error.reason, record_constants.BAD)
        found.append(record)
        position += record.total_size
    return found, position, record_constants.STOP


def python_row(record, content, base_offset=0):
    """The row of a record as a dictionary of values; parts as bytes, None for absent."""
    parsed = properties.parse(decode_utf8(record.properties))
    tags = parsed.get("TAGS")
    delay = parsed.get("DELAY", "").encode()
    level = java.utf8_parse_int(delay, 0, len(delay))
    return {
        "physical_offset": record.physical_offset,
        "queue_offset": record.queue_offset,
        "store_timestamp_ms": record.store_timestamp_ms,
        "born_timestamp_ms": record.born_timestamp_ms,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "store_size": record.total_size,
        "body_crc": record.body_crc,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "tags_hash": java.string_hash(tags) if tags else 0,
        "delay_level": 0 if level == java.NOT_AN_INTEGER else level,
        "key_seed": java.string_hash(record.topic + "#") & 0xFFFFFFFF,
        "topic": record.topic,
        "properties": decode_utf8(record.properties),
        "body": record.body,
        "unique_key": parsed.get("UNIQ_KEY"),
        "keys": parsed.get("KEYS"),
        "tags": tags,
    }


def kernel_row(row, content, base_offset=0):
    """The same of a row that the kernel filled."""
    position = int(row["physical_offset"]) - base_offset
    values = {}
    for name in ("topic", "properties", "body", "unique_key", "keys", "tags"):
        length = int(row[f"{name}_length"])
        start = position + int(row[f"{name}_start"])
        part = bytes(content[start : start + length]) if length >= 0 else None
        values[name] = part if name == "body" or part is None else decode_utf8(part)
    whole = {
        name: int(row[name])
        for name in RECORD_DTYPE.names
        if not name.endswith(("_start", "_length")) and name != "topic_hash"
    }
    return whole | values


def python_entries(found, *, with_tags):
    """Hash, offset and time of every index entry of these records, in RocketMQ's order."""
    entries = []
    for record in found:
        if record.sys_flag & 0xC == 0xC:
            continue
        parsed = properties.parse(decode_utf8(record.properties))
        texts = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
        texts += properties.split_keys(parsed.get("KEYS"))
        if with_tags and "TAGS" in parsed:
            texts.append("T#" + parsed["TAGS"])
        entries += [
            (
                java.index_hash(f"{record.topic}#{text}"),
                record.physical_offset,
                record.store_timestamp_ms,
            )
            for text in texts
        ]
    return entries


def as_tuples(entries, count=None):
    """Entry arrays as a list of tuples."""
    return list(zip(*(column[:count].tolist() for column in entries), strict=True))


def entry_arrays(tuples):
    """A list of tuples as entry arrays."""
    kinds = (np.int32, np.int64, np.int64)
    values = zip(*tuples, strict=True) if tuples else ((), (), ())
    return IndexEntries(*map(np.array, values, kinds))


def python_index_file(tuples, slot_count, entry_count, begin_timestamp_ms):
    """`IndexFile.putKey` for every entry, in plain Python; slots and entries as bytes."""
    writer = IndexWriter(slot_count, entry_count, begin_timestamp_ms=begin_timestamp_ms)
    for key_hash, offset, timestamp in tuples:
        writer.put(key_hash, offset, timestamp)
    [content] = writer.contents() or [bytes(40 + slot_count * 4 + entry_count * 20)]
    entries_at = 40 + slot_count * 4
    return content[40:entries_at], content[entries_at:], writer.header[4]


def built_index_file(entries, slot_count, entry_count, begin_timestamp_ms):
    """The same by the kernel."""
    slots = np.zeros(slot_count * 4, np.uint8)
    body = np.zeros(entry_count * 20, np.uint8)
    used = index.build(*entries, 1, begin_timestamp_ms, slot_count, slots, body)
    return slots.tobytes(), body.tobytes(), used


def check_index_file(slots, entries, *, slot_count, last_entry):
    """The compiled check of the bytes of slots and entries."""
    newest = np.zeros(slot_count, np.int32)
    return ChainCheck(*index.check(slots, entries, slot_count, last_entry, newest))


class GoldenLog:
    """All rows and index entries of a golden store, segment by segment."""

    def __init__(self, store: Path, *, with_tags: bool) -> None:
        self.segments = []
        tuples = []
        for path in sorted((store / "commitlog").iterdir()):
            base_offset = int(path.name)
            buffer = array(path.read_bytes())
            rows, ended = scan(buffer, base_offset, room=5000)
            entries = index_entries(buffer, base_offset, rows, with_tags=with_tags)
            tuples += as_tuples(entries)
            self.segments.append((buffer, base_offset, rows, ended))
        self.entries = entry_arrays(tuples)


BOTH_VERSIONS = pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])


def texts(buffer, starts, lengths):
    offsets, values = columns.gather(buffer, starts, lengths, as_text=True)
    content = values.tobytes()
    return [content[a:b].decode() for a, b in pairwise(offsets.tolist())]


def assert_cut_as_python_cuts(buffer, base_offset, rows, found):
    """Keys and properties of rows are those that the parsers find in the records."""
    of_rows = of_log(buffer, base_offset, rows)
    key_offsets, *keys = columns.key_slices(of_rows)
    key_texts = texts(buffer, *keys)
    offsets, *both = columns.property_slices(of_rows)
    names, values = (texts(buffer, *one) for one in both)
    for number, record in enumerate(found):
        parsed = properties.parse(decode_utf8(record.properties))
        first, last = key_offsets[number : number + 2]
        assert tuple(key_texts[first:last]) == properties.split_keys(parsed.get("KEYS"))
        first, last = offsets[number : number + 2]
        got = list(zip(names[first:last], values[first:last], strict=True))
        assert got == list(parsed.items())

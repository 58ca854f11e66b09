"""Stores of any size, made in seconds from one record, with its own numbers in each copy.

A store has V1 records with valid checksums in files of 1 GiB, four queues, and topics.json. Each
message has a unique key and two keys. There is no index and no consume queue.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId, UniqueKey

TOPIC: Final = "BenchTopic"
QUEUES: Final = 4
SEGMENT_BYTES: Final = 1 << 30
BODY_BYTES: Final = 200
ENTRIES_PER_RECORD: Final = 3

_HOST: Final = Host("127.0.0.1", 10911)
_BLANK_BYTES: Final = 8
_CHUNK_RECORDS: Final = 100_000
_DIGITS: Final = 8
_QUEUE_ID_AT, _QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT, _BORN_AT, _STORED_AT = 12, 20, 28, 40, 56
_ZEROS: Final = "0" * _DIGITS
_HOUR_MS: Final = 3_600_000
_PER_MILLISECOND: Final = 4


@dataclass(frozen=True)
class SyntheticStore:
    """A store; its messages are numbered from 0 to ``messages - 1``."""

    path: Path
    messages: int
    log_bytes: int
    record_bytes: int
    born_ms: int

    def key(self, number: int) -> str:
        """Return the key that only message ``number`` has."""
        return f"order-{number:0{_DIGITS}d}"

    def unique_key(self, number: int) -> str:
        text = _unique_key(self.born_ms)
        return text.replace(_ZEROS, f"{number:0{_DIGITS}d}", 1)

    def physical_offset(self, number: int) -> int:
        segment, place = divmod(number, _records_per_segment(self.record_bytes))
        return segment * SEGMENT_BYTES + place * self.record_bytes

    def offset_msg_id(self, number: int) -> str:
        return OffsetMessageId(_HOST, self.physical_offset(number)).encode()

    def position(self, number: int) -> str:
        """Return the queue position of a message, as ``rocketlens find`` takes it."""
        return f"{TOPIC}/{number % QUEUES}/{number // QUEUES}"


def write_store(directory: Path, log_bytes: int) -> SyntheticStore:
    """Write a store of ``log_bytes`` of records into a new directory."""
    born_ms = (time.time_ns() // 1_000_000) - _HOUR_MS
    template = _template(born_ms)
    size = len(template)
    messages = log_bytes // size
    per_segment = _records_per_segment(size)
    log = directory / "commitlog"
    log.mkdir(parents=True)
    for first in range(0, messages, per_segment):
        base_offset = first // per_segment * SEGMENT_BYTES
        count = min(per_segment, messages - first)
        with (log / f"{base_offset:020d}").open("wb") as segment:
            for done in range(0, count, _CHUNK_RECORDS):
                numbers = np.arange(first + done, first + min(done + _CHUNK_RECORDS, count))
                offsets = base_offset + (numbers - first) * size
                segment.write(_records(template, numbers, offsets, born_ms))
            if first + count < messages:
                segment.write(commitlog_record.encode_blank(SEGMENT_BYTES - count * size))
            segment.truncate(SEGMENT_BYTES)
    _write_topics(directory)
    return SyntheticStore(directory, messages, messages * size, size, born_ms)


def _records_per_segment(record_bytes: int) -> int:
    return (SEGMENT_BYTES - _BLANK_BYTES) // record_bytes


def _unique_key(born_ms: int) -> str:
    """Return a unique key in RocketMQ's form, with eight zeros in place of the number."""
    month = np.datetime64(born_ms, "ms").astype("datetime64[M]").astype("datetime64[ms]")
    month_millis = born_ms - int(month.astype(np.int64))
    return UniqueKey("10.1.2.3", 0x1234, 0, month_millis, 0x7777).encode()


def _template(born_ms: int) -> bytes:
    """Return the record of message 0, with zeros in place of numbers."""
    properties = {
        props.UNIQUE_KEY: _unique_key(born_ms),
        props.KEYS: f"order-{_ZEROS} user-{_ZEROS}",
        props.TAGS: "TagA",
    }
    record = Record(
        total_size=0,
        magic=MAGIC_V1,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=Host("10.1.2.3", 40000),
        store_timestamp_ms=0,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=(b'{"amount": 4200, "currency": "EUR", "note": "' + b"x" * BODY_BYTES)[:BODY_BYTES],
        topic=TOPIC,
        properties=props.format_properties(properties).encode(),
    )
    return commitlog_record.encode(record)


def _records(
    template: bytes, numbers: NDArray[np.int64], offsets: NDArray[np.int64], born_ms: int
) -> bytes:
    """Return some consecutive records."""
    rows = np.tile(np.frombuffer(template, np.uint8), (len(numbers), 1))
    times = born_ms + numbers // _PER_MILLISECOND
    _put(rows, _QUEUE_ID_AT, (numbers % QUEUES).astype(">i4"))
    _put(rows, _QUEUE_OFFSET_AT, (numbers // QUEUES).astype(">i8"))
    _put(rows, _PHYSICAL_OFFSET_AT, offsets.astype(">i8"))
    _put(rows, _BORN_AT, times.astype(">i8"))
    _put(rows, _STORED_AT, times.astype(">i8"))
    digits = np.empty((len(numbers), _DIGITS), np.uint8)
    left = numbers.copy()
    for place in reversed(range(_DIGITS)):
        left, digit = np.divmod(left, 10)
        digits[:, place] = digit + ord("0")
    start = template.index(b"UNIQ_KEY")
    for _ in range(ENTRIES_PER_RECORD):
        start = template.index(_ZEROS.encode(), start)
        rows[:, start : start + _DIGITS] = digits
        start += _DIGITS
    return rows.tobytes()


def _put(rows: NDArray[np.uint8], at: int, values: NDArray[np.int64]) -> None:
    """Write big-endian numbers into a column of bytes."""
    width = values.dtype.itemsize
    rows[:, at : at + width] = values.view(np.uint8).reshape(-1, width)


def _write_topics(directory: Path) -> None:
    """Write topics.json: a real broker routes no other topic."""
    config = directory / "config"
    config.mkdir()
    table = {
        TOPIC: {
            "order": False,
            "perm": 6,
            "readQueueNums": QUEUES,
            "topicFilterType": "SINGLE_TAG",
            "topicName": TOPIC,
            "topicSysFlag": 0,
            "writeQueueNums": QUEUES,
        }
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
    text = json.dumps({"dataVersion": version, "topicConfigTable": table})
    (config / "topics.json").write_text(text, encoding="utf-8")

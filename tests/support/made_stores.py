"""Stores made by the test's own hand: a log, and queues and index files as RocketMQ writes them.

The index writer puts one entry after the other as ``IndexFile.putKey`` does, in plain Python, so
that what it makes owes nothing to the kernels.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from rocketlens.model.text.java import index_hash, string_hash
from tests.support.index_writer import IndexWriter

BROKER = Host("10.0.0.9", 10911)
PRODUCER = Host("10.0.0.1", 40000)
NOW_MS = 1_700_000_000_000
QUEUE_ENTRY = struct.Struct(">qiq")


class Sent(Struct, frozen=True):
    """One message to be stored."""

    topic: str = "Orders"
    keys: str | None = None
    unique_key: str | None = None
    tags: str | None = None
    body: bytes = b"body"
    queue_id: int = 0
    store_timestamp_ms: int = NOW_MS
    sys_flag: int = 0
    reconsume_times: int = 0
    magic: int = MAGIC_V1
    store_host: Host = BROKER
    born_host: Host = PRODUCER
    append_crc: bool = False
    named: tuple[tuple[str, str], ...] = ()
    """More properties."""


@dataclass
class Made:
    """A store and what is in it, in the order of the log."""

    path: Path
    records: list[Record] = field(default_factory=list)
    segment_bytes: int = 0
    index: tuple[int, int] | None = None
    with_queues: bool = True
    with_tags: bool = False
    queue_entries: int = 100

    def segment_path(self, physical_offset: int) -> Path:
        base = physical_offset // self.segment_bytes * self.segment_bytes
        return self.path / "commitlog" / f"{base:020d}"

    def index_paths(self) -> list[Path]:
        return sorted((self.path / "index").iterdir())

    @cached_property
    def _by_key(self) -> dict[tuple[str | None, str], list[Record]]:
        found: dict[tuple[str | None, str], list[Record]] = {}
        for record in self.records:
            for text in dict.fromkeys(texts_of(record)):
                found.setdefault((record.topic, text), []).append(record)
                found.setdefault((None, text), []).append(record)
        return found

    def with_key(self, topic: str | None, text: str) -> list[Record]:
        """What a look-up must give, from all records. They must not change after the first."""
        return self._by_key.get((topic, text), [])

    def texts(self) -> list[tuple[str, str]]:
        """Every topic and key there is."""
        return sorted((topic, text) for topic, text in self._by_key if topic is not None)


def texts_of(record: Record) -> list[str]:
    properties = props.parse(record.properties.decode())
    keys = [*props.split_keys(properties.get("KEYS"))]
    if "UNIQ_KEY" in properties:
        keys.insert(0, properties["UNIQ_KEY"])
    return keys


def record_of(sent: Sent, physical_offset: int, queue_offset: int) -> tuple[Record, bytes]:
    """A record and its bytes."""
    named = {"UNIQ_KEY": sent.unique_key, "KEYS": sent.keys, "TAGS": sent.tags}
    properties = {name: value for name, value in named.items() if value} | dict(sent.named)
    record = Record(
        total_size=0,
        magic=sent.magic,
        body_crc=0,
        queue_id=sent.queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sent.sys_flag,
        born_timestamp_ms=sent.store_timestamp_ms,
        born_host=sent.born_host,
        store_timestamp_ms=sent.store_timestamp_ms,
        store_host=sent.store_host,
        reconsume_times=sent.reconsume_times,
        prepared_transaction_offset=0,
        body=sent.body,
        topic=sent.topic,
        properties=props.format_properties(properties).encode(),
    )
    encoded = commitlog_record.encode(record, append_crc=sent.append_crc)
    return commitlog_record.decode(encoded, physical_offset=physical_offset), encoded


def make_store(
    path: Path,
    messages: Iterable[Sent],
    *,
    segment_bytes: int = 1 << 20,
    index: tuple[int, int] | None = (500, 1000),
    with_queues: bool = True,
    with_tags: bool = False,
    first_offset: int = 0,
) -> Made:
    """Write a whole store. ``index``: slot and entry counts of its index files."""
    made = Made(path, [], segment_bytes, index, with_queues, with_tags)
    (path / "commitlog").mkdir(parents=True)
    segments: dict[int, bytearray] = {}
    queue_ends: dict[tuple[str, int], int] = {}
    offset = first_offset
    for sent in messages:
        queue = (sent.topic, sent.queue_id)
        record, encoded = record_of(sent, offset, queue_ends.get(queue, 0))
        base = offset // segment_bytes * segment_bytes
        left = base + segment_bytes - offset
        if len(encoded) + 8 > left:
            segments[base][offset - base : offset - base + 8] = commitlog_record.encode_blank(left)
            base = offset = base + segment_bytes
            record, encoded = record_of(sent, offset, queue_ends.get(queue, 0))
        segment = segments.setdefault(base, bytearray(segment_bytes))
        segment[offset - base : offset - base + len(encoded)] = encoded
        queue_ends[queue] = record.queue_offset + 1
        made.records.append(record)
        offset += len(encoded)
    for base, content in segments.items():
        (path / "commitlog" / f"{base:020d}").write_bytes(content)
    if with_queues:
        write_queues(made, made.records)
    if index:
        write_index(path, made.records, *index, with_tags=with_tags)
    return made


def write_queues(made: Made, records: list[Record]) -> None:
    """Write the consume queue files of these records."""
    files: dict[Path, bytearray] = {}
    size = made.queue_entries * QUEUE_ENTRY.size
    for record in records:
        if record.sys_flag & 0xC in (0x4, 0xC):
            continue
        place = record.queue_offset * QUEUE_ENTRY.size
        name = f"{place // size * size:020d}"
        file = made.path / "consumequeue" / record.topic / str(record.queue_id) / name
        tags = props.parse(record.properties.decode()).get("TAGS")
        entry = QUEUE_ENTRY.pack(
            record.physical_offset, record.total_size, string_hash(tags) if tags else 0
        )
        content = files.setdefault(file, bytearray(size))
        content[place % size : place % size + QUEUE_ENTRY.size] = entry
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


class RecordIndexWriter(IndexWriter):
    """Index files as a broker makes them of records."""

    def __init__(self, directory: Path, slot_count: int, entry_count: int) -> None:
        super().__init__(slot_count, entry_count)
        self.directory = directory

    def put_record(self, record: Record, *, with_tags: bool = False) -> None:
        if record.physical_offset < self.end_offset:
            return
        for key_hash in hashes_of(record, with_tags=with_tags):
            self.put(key_hash, record.physical_offset, record.store_timestamp_ms)

    def store(self) -> list[Path]:
        return self.write(self.directory)


def hashes_of(record: Record, *, with_tags: bool = False) -> Iterator[int]:
    """The hashes of a record's entries in the broker's order."""
    if record.sys_flag & 0xC == 0xC:
        return
    for text in texts_of(record):
        yield index_hash(f"{record.topic}#{text}")
    tags = props.parse(record.properties.decode()).get("TAGS")
    if with_tags and tags:
        yield index_hash(f"{record.topic}#T#{tags}")


def write_index(
    path: Path,
    records: Iterable[Record],
    slot_count: int,
    entry_count: int,
    *,
    with_tags: bool = False,
) -> list[Path]:
    """Write the index files of these records."""
    writer = RecordIndexWriter(path / "index", slot_count, entry_count)
    for record in records:
        writer.put_record(record, with_tags=with_tags)
    return writer.store()


def some_messages(count: int, *, body_bytes: int = 40, topics: int = 3) -> list[Sent]:
    """Messages with a unique key and a key of their own each, and keys that some share."""
    return [
        Sent(
            topic=f"Topic{n % topics}",
            keys=f"order-{n} shared-{n % 7}",
            unique_key=f"{n:032X}",
            tags=("TagA", "TagB", None)[n % 3],
            body=f"body {n} ".encode().ljust(body_bytes, b"."),
            queue_id=n % 2,
            store_timestamp_ms=NOW_MS + 137 * n,
        )
        for n in range(count)
    ]


def forged(outer: Sent, physical_offset: int, before: bytes, after: bytes, inner: Sent) -> Sent:
    """A message whose body holds another record at exactly the place that it claims.

    ``physical_offset`` is where the outer record will be stored.
    """
    start = physical_offset + 88 + len(before)
    _, encoded = record_of(inner, start, 0)
    return replace(outer, body=before + encoded + after)


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bits]))


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Put bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)

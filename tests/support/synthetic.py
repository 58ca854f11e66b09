"""Stores made by the tests, and the plainest possible builders to compare ours with."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from rocketlens.formats import commitlog_record, consumequeue_entry
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.formats.index_file import Geometry
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from rocketlens.model.text import java
from tests.support.index_writer import IndexWriter

HOST = Host("127.0.0.1", 10911)
START_MS = 1_700_000_000_000


def record(
    number: int,
    *,
    topic: str = "Topic",
    queue_id: int = 0,
    queue_offset: int | None = None,
    body: bytes = b"body",
    store_timestamp_ms: int | None = None,
    **properties: str,
) -> Record:
    """Make a record; its place in the log comes from :func:`write_log`."""
    properties = {"KEYS": f"key-{number}", "UNIQ_KEY": f"{number:032X}"} | properties
    when = START_MS + 700 * number if store_timestamp_ms is None else store_timestamp_ms
    return Record(
        0,
        MAGIC_V1,
        0,
        queue_id,
        0,
        number if queue_offset is None else queue_offset,
        0,
        0,
        when,
        HOST,
        when,
        HOST,
        0,
        0,
        body,
        topic,
        props.format_properties(properties).encode(),
    )


def write_log(store: Path, records: Iterable[Record], segment_bytes: int) -> list[Record]:
    """Write ``commitlog/`` as a broker does; give the records as they stand there."""
    directory = store / "commitlog"
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Record] = []
    base, content = 0, bytearray()

    def close() -> None:
        blank = commitlog_record.encode_blank(segment_bytes - len(content))
        full = bytes(content + blank).ljust(segment_bytes, b"\0")
        (directory / f"{base:020}").write_bytes(full)

    for one in records:
        size = len(commitlog_record.encode(one))
        if len(content) + size + 8 > segment_bytes:
            close()
            base, content = base + segment_bytes, bytearray()
        placed = replace(one, physical_offset=base + len(content), total_size=size)
        content += commitlog_record.encode(placed)
        written.append(placed)
    (directory / f"{base:020}").write_bytes(bytes(content).ljust(segment_bytes, b"\0"))
    return written


def write_busy_log(store: Path) -> list[Record]:
    """Write 500 records of five topics; the clock steps back in the middle."""
    log = [
        record(
            n,
            topic=f"Topic{n % 5}",
            body=bytes(900),
            store_timestamp_ms=START_MS + (n if n < 300 else n - 250) * 1000,
        )
        for n in range(500)
    ]
    return write_log(store, log, 1 << 17)


def properties_of(one: Record) -> dict[str, str]:
    return props.parse(java.decode_utf8(one.properties))


def index_keys(one: Record, *, with_tags: bool) -> list[str]:
    """Give what RocketMQ indexes of a record, in its order."""
    properties = properties_of(one)
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    keys += props.split_keys(properties.get("KEYS"))
    if with_tags and "TAGS" in properties:
        keys.append(f"T#{properties['TAGS']}")
    return [f"{one.topic}#{key}" for key in keys]


def reference_index(
    records: Sequence[Record], geometry: Geometry, *, with_tags: bool
) -> list[bytes]:
    """Put every key into index files one by one, as ``IndexFile.putKey`` does."""
    writer = IndexWriter(geometry.slot_count, geometry.entry_count)
    for one in records:
        for key in index_keys(one, with_tags=with_tags):
            writer.put(java.index_hash(key), one.physical_offset, one.store_timestamp_ms)
    return writer.contents()


def reference_queue(records: Sequence[Record], file_entries: int) -> dict[str, bytes]:
    """Place the entries of one queue one by one; filler stands for what has no record."""
    entries = {}
    for one in records:
        code = java.string_hash(properties_of(one).get("TAGS", ""))
        entry = consumequeue_entry.QueueEntry(one.physical_offset, one.total_size, code)
        entries.setdefault(one.queue_offset, entry.encode())
    first, last = min(entries), max(entries)
    files = {}
    for number in range(first // file_entries, last // file_entries + 1):
        base = number * file_entries
        content = b"".join(
            entries.get(place, consumequeue_entry.FILLER.encode())
            for place in range(base, min(base + file_entries, last + 1))
        )
        files[f"{base * 20:020}"] = content.ljust(file_entries * 20, b"\0")
    return files


def files_below(directory: Path) -> dict[str, bytes]:
    """Give every file below a directory, with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def copy_without(store: Path, target: Path, *names: str) -> Path:
    """Copy a store, some of its directories left out."""
    shutil.copytree(store, target, ignore=lambda at, _: names if Path(at) == store else ())
    return target

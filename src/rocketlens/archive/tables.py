"""The tables of an archive: three Delta tables in one directory, with their columns.

================  ==================================================================================
table             rows
================  ==================================================================================
``messages``      one for each message, by the day of its store time in UTC
``message_keys``  one for each key and unique key of a message, by day, sorted by the key's hash
``journal``       one for each archived batch: its source and range, its messages, what could not be
                  read, and the files that it added
================  ==================================================================================

A message is identified by cluster, broker, topic, queue, queue offset and physical offset: messages
of one batch of RocketMQ 5 share a physical offset.

The hash of a key is FNV-1a with 64 bits over its UTF-8 bytes, as a signed number. Files of
``message_keys`` are sorted by it and have small row groups, so a look-up reads a few of them.

A damaged or replaced file can keep its name, its size and a valid seal, and have other columns:
`check_file` compares them with the expected ones before messages are built from them.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlens.archive.seal import SEALED
from rocketlens.formats.columns import DERIVED
from rocketlens.late import pa, pc, pq
from rocketlens.model.arrow import schema

MESSAGES: Final = "messages"
KEYS: Final = "message_keys"
DAY: Final = "day"
"""The partition column of ``messages`` and ``message_keys``."""
POSITION: Final = (
    "cluster",
    "broker",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp_ms",
)
"""The columns of ``message_keys`` that identify and date the message of a key."""
BOUNDED: Final = {
    MESSAGES: (
        "broker",
        "topic",
        "queue_id",
        "queue_offset",
        "physical_offset",
        "store_timestamp_ms",
    ),
    KEYS: ("key_hash", "store_timestamp_ms"),
}
"""The columns whose least and greatest values in each file the Delta log has."""

DECODED: Final = ("body_format", "body_decoded", "body_decode_error")
"""The format of a body; its content, as JSON or as text; and the reason why it could not be
decoded. Null if it was not decoded, if it is binary, or if nothing failed.
"""

DICTIONARY_COLUMNS: Final = frozenset({"cluster", "broker", "kind"})
"""Columns of keys that are dictionaries in memory and are written as such. Every row group has all
texts, so there must be few.
"""

DAY_MS: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH).days
_LAST_DAY: Final = (date.max - _EPOCH).days
_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MAX_GROUP_BYTES: Final = 512 << 20
"""The largest row group that is read; this program writes 4 MiB, or a batch of large bodies."""
_NULLABLE: Final = frozenset({"tags", "unique_key", "body_error", *DECODED})
_OF_FIRST_VERSION: Final = frozenset({*POSITION, "key_hash", "key", "body", "properties"})
"""Columns that files of every version have."""


@cache
def message_schema() -> "pa.Schema":
    """Return the stored columns of ``messages`` without its partition column."""
    fields = [field for field in schema() if field.name not in DERIVED]
    named = [pa.field(name, pa.string()) for name in ("cluster", "broker")]
    return pa.schema([*named, *fields])


@cache
def key_schema() -> "pa.Schema":
    """Return the columns of ``message_keys`` without its partition column."""
    messages = message_schema()
    own = [
        pa.field("key_hash", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("kind", pa.string()),
    ]
    return pa.schema([*own, *(messages.field(name) for name in POSITION)])


@cache
def decoded_schema() -> "pa.Schema":
    return pa.schema([pa.field(name, pa.string()) for name in DECODED])


def columns_of(table: str, *, is_decoded: bool = False) -> "pa.Schema":
    if table == KEYS:
        return key_schema()
    columns = message_schema()
    return pa.schema([*columns, *decoded_schema()]) if is_decoded else columns


def add_missing_columns(rows: "pa.Table", columns: "pa.Schema", names: Sequence[str]) -> "pa.Table":
    """Return rows with the columns ``names``: 0, null or empty if an older file lacks one."""
    if rows.num_columns == len(names):
        return rows
    chosen = [columns.field(name) for name in names]
    there = set(rows.column_names)
    arrays = []
    for field in chosen:
        if field.name in there:
            arrays.append(rows.column(field.name).cast(field.type))
            continue
        empty: object = 0 if pa.types.is_integer(field.type) else None
        if pa.types.is_nested(field.type):
            empty = []
        elif pa.types.is_binary(field.type):
            empty = b""
        arrays.append(pa.repeat(pa.scalar(empty, field.type), rows.num_rows))
    return pa.Table.from_arrays(arrays, schema=pa.schema(chosen))


def key_rows(messages: "pa.Table") -> "pa.Table":
    """Return a row for each key and unique key, with dictionaries and without hashes."""
    listed = messages.column("keys")
    positions = encode_dictionaries(messages.select(POSITION))
    of_keys = positions.take(pc.list_parent_indices(listed))
    has_unique_key = pc.is_valid(messages.column("unique_key"))
    of_unique_keys = positions.filter(has_unique_key)
    parts = []
    for rows, keys, kind in (
        (of_keys, pc.list_flatten(listed), "key"),
        (of_unique_keys, messages.column("unique_key").filter(has_unique_key), "unique-key"),
    ):
        codes = pa.array(np.zeros(rows.num_rows, np.int32))
        kinds = pa.DictionaryArray.from_arrays(codes, [kind])
        parts.append(rows.append_column("key", keys).append_column("kind", kinds))
    return pa.concat_tables(parts)


def encode_dictionaries(rows: "pa.Table") -> "pa.Table":
    """Encode the `DICTIONARY_COLUMNS` of rows of ``message_keys``."""
    for number, field in enumerate(rows.schema):
        if field.name in DICTIONARY_COLUMNS and not pa.types.is_dictionary(field.type):
            coded = rows.column(number).dictionary_encode()
            rows = rows.set_column(number, field.name, coded)
    return rows.unify_dictionaries()


def sort_by_hash(rows: "pa.Table") -> "pa.Table":
    """Add the hashes to rows of `key_rows`, and sort the rows by them."""
    whole = rows.unify_dictionaries().combine_chunks()
    hashes = key_hashes(whole.column("key").combine_chunks())
    named = whole.append_column("key_hash", pa.array(hashes))
    return named.select(key_schema().names).take(pa.array(hashes.argsort(kind="stable")))


def key_hashes(keys: "pa.Array") -> npt.NDArray[np.int64]:
    """Return the hash of each text; ``keys`` is a string array without nulls."""
    from rocketlens.formats.compiled import archive

    count = len(keys)
    hashes = np.empty(count, np.int64)
    if count:
        _, raw_offsets, raw_bytes = keys.buffers()
        offsets = np.frombuffer(raw_offsets, np.int32)[keys.offset : keys.offset + count + 1]
        content = np.frombuffer(raw_bytes or b"", np.uint8)
        basis, prime = np.uint64(_FNV_BASIS), np.uint64(_FNV_PRIME)
        archive.hash_texts(content, offsets, basis, prime, hashes)
    return hashes


def key_hash(key: str) -> int:
    hashed = _FNV_BASIS
    for byte in key.encode("utf-8", "replace"):
        hashed = (hashed ^ byte) * _FNV_PRIME & 0xFFFF_FFFF_FFFF_FFFF
    return hashed - (hashed >> 63 << 64)


def days_of(store_timestamps_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the day of each time, counted from 1970 and limited to the range of `date`."""
    days: npt.NDArray[np.int64] = np.clip(store_timestamps_ms // DAY_MS, _FIRST_DAY, _LAST_DAY)
    return days


def day_number(day: date) -> int:
    return (day - _EPOCH).days


def day_text(day: int) -> str:
    """Return a day in the form of Delta partitions: ``2026-11-20``."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def check_file(file: "pq.ParquetFile", table: str, path: str, rows: int | None = None) -> None:
    """Check columns, size and (if given) number of rows of a table's file; else raise
    ValueError.
    """
    there = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    expected = columns_of(table, is_decoded=table != KEYS)
    for field in expected:
        found = there.get(field.name)
        if found is not None and found != field.type:
            raise ValueError(f"its column {field.name} has the type {found}, expected {field.type}")
        is_old = not path.endswith(SEALED) and field.name not in _OF_FIRST_VERSION
        if found is None and not is_old and field.name not in DECODED:
            raise ValueError(f"it has no column {field.name}")
    metadata = file.metadata
    if rows is not None and metadata.num_rows != rows:
        raise ValueError(f"it has {metadata.num_rows} rows, expected {rows}")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.total_byte_size > _MAX_GROUP_BYTES:
            raise ValueError(f"a row group has {group.total_byte_size} bytes when decompressed")


def check_values(rows: "pa.Table") -> "pa.Table":
    """Return ``rows``; raise ValueError if a column has a null that it must not have."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in _NULLABLE:
            continue
        parts = [column]
        if name == "keys":
            parts += [each.values for each in column.chunks]
        elif name == "properties":
            parts += [each.items for each in column.chunks]
        if any(each.null_count for each in parts):
            raise ValueError(f"its column {name} has a row without a value")
    return rows

"""The layout table in each format's docstring says what the format's structs do."""

import json
import re
import struct
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from rocketlens import formats
from rocketlens.formats import (
    batchqueue_entry,
    body_compression,
    consumequeue_entry,
    index_file,
    java_properties,
)
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.batch_body import BatchMember
from rocketlens.formats.batchqueue_entry import BatchEntry
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.formats.dledger import EntryHeader
from rocketlens.formats.index_file import IndexEntry, IndexHeader
from rocketlens.formats.layout import declared_types
from rocketlens.formats.timer_checkpoint import TimerCheckpoint

# A trace body is text, whose fields have neither offsets nor types: its docstring lists them.
NOT_FORMATS = {*("__init__", "batch_rows", "columns", "index_keys", "layout", "rows"), "trace_body"}
MODULES = sorted(
    path.stem
    for path in Path(formats.__file__).parent.glob("*.py")
    if path.stem not in NOT_FORMATS and not path.stem.startswith("kernels")
)

# What one type of a table is: parts of a struct; H for a host's address, n for counted bytes.
TYPES = {
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "H+4": "Hi",
    "i8+n": "bn",
    "i16+n": "hn",
    "i32+n": "in",
}
SIZES = {**{code: struct.calcsize(f">{code}") for code in "bhiq"}, "H": 4, "n": 0}

# The classes that declare the layouts of a module, in the order of its tables.
DECLARED = {
    "batchqueue_entry": [BatchEntry],
    "checkpoint": [Checkpoint],
    "commitlog_record": [Record],
    "consumequeue_entry": [QueueEntry],
    "dledger": [EntryHeader],
    "index_file": [IndexHeader, IndexEntry],
    "timer_checkpoint": [TimerCheckpoint],
}
# Where the structs are written out: in the order in which the decoder reads them, and the class
# they fill. A name of one letter is a part that no struct reads. Fields that only frame others are
# not kept.
LAYOUTS = {"batch_body": [(["HEAD", "n", "PROPERTIES_LENGTH", "n"], BatchMember)]}
FRAMING = {"batch_body": {"total_size", "magic", "body_crc"}}
# A table of values instead of a layout; a test below reads it.
VALUE_TABLES = {"body_compression", "java_properties"}

# Rooms that declare formats, and the modules elsewhere that have one of their own.
ROOMS_OF_FORMATS = {"decode", "formats", "wire"}
OWN_STRUCTS = {
    "archive/seal.py": "the end of a Parquet file",
    "client/send/unique_key.py": "netlink",
    "model/message_id.py": "ids in hex",
    "store/lock.py": "flock",
    "store/read/state.py": "the store's own note of what is synced",
}


def tables_of(module):
    """Every table of the docstring: a list of rows, each a dictionary by column name."""
    lines = (module.__doc__ or "").splitlines()
    rules = [at for at, line in enumerate(lines) if re.fullmatch(r"=+( +=+)+", line)]
    tables = []
    for top, middle, bottom in zip(rules[::3], rules[1::3], rules[2::3], strict=True):
        starts = [match.start() for match in re.finditer("=+", lines[top])]
        spans = list(zip(starts, [*starts[1:], None], strict=True))

        def cells(line, spans=spans):
            return [line[start:stop].strip() for start, stop in spans]

        names = cells(lines[middle - 1])
        rows = [dict(zip(names, cells(line), strict=True)) for line in lines[middle + 1 : bottom]]
        # A line without its first cell goes on with the notes of the row above.
        tables.append([row for row in rows if row[names[0]]])
    return tables


def module_of(name):
    return import_module(f"rocketlens.formats.{name}")


def field_names(kind):
    names = getattr(kind, "_fields", getattr(kind, "__struct_fields__", ()))
    # Who has a record is not in its bytes.
    return [name for name in names if name != "origin"]


@pytest.mark.parametrize("name", MODULES)
def test_every_format_has_a_table_that_is_checked(name):
    assert tables_of(module_of(name))
    assert (name in LAYOUTS) + (name in DECLARED) + (name in VALUE_TABLES) == 1
    described = {**LAYOUTS, **DECLARED}.get(name)
    assert described is None or len(tables_of(module_of(name))) == len(described)


def test_no_module_outside_formats_parses_a_record_or_an_entry_with_a_struct_of_its_own():
    source = Path(formats.__file__).parents[1]
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "Struct(" in path.read_text(encoding="utf-8")
    }
    elsewhere = {name for name in found if name.split("/")[0] not in ROOMS_OF_FORMATS}
    assert elsewhere == set(OWN_STRUCTS)


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_layout_table_has_the_fields_and_types_that_the_class_declares(name):
    for table, kind in zip(tables_of(module_of(name)), DECLARED[name], strict=True):
        assert [(row["field"], row["type"]) for row in table] == declared_types(kind)
        assert [row["field"] for row in table] == field_names(kind)


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        (index_file.HEADER_LAYOUT, IndexHeader),
        (index_file.ENTRY_LAYOUT, IndexEntry),
        (consumequeue_entry.ENTRY_LAYOUT, QueueEntry),
        (batchqueue_entry.ENTRY_LAYOUT, BatchEntry),
    ],
)
def test_structs_dtypes_and_offsets_are_those_that_the_table_lists(layout, kind):
    module = import_module(kind.__module__)
    tables = tables_of(module)
    table = next(t for t in tables if [row["field"] for row in t] == field_names(kind))
    values = [100 + number for number in range(len(table))]
    packed = layout.struct.pack(*values)
    assert layout.size == len(packed) == sum(SIZES[TYPES[row["type"]]] for row in table)
    assert [str(layout.offsets[row["field"]]) for row in table] == [row["offset"] for row in table]
    row_of_array = np.frombuffer(packed, layout.dtype)[0]
    assert list(row_of_array.dtype.names) == field_names(kind)
    assert row_of_array.tolist() == tuple(values)
    for name, value in zip(field_names(kind), values, strict=True):
        assert layout.struct_of(name).unpack_from(packed) == (value,)
        begin = packed[: layout.struct_of(name).size]
        assert np.frombuffer(begin, layout.dtype_of(name))[name] == value


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_types_in_a_layout_table_are_those_of_the_structs(name):
    module = module_of(name)
    for table, (parts, _) in zip(tables_of(module), LAYOUTS[name], strict=True):
        structs = [getattr(module, part) for part in parts if len(part) > 1]
        assert all(one.format[0] == ">" for one in structs)
        coded = [part if len(part) == 1 else getattr(module, part).format[1:] for part in parts]
        assert "".join(TYPES[row["type"]] for row in table) == "".join(coded)


@pytest.mark.parametrize("number", range(4))
def test_the_fixed_fields_of_a_record_are_the_table_s_for_hosts_of_both_kinds(number):
    host_bytes = {"born_host": 16 if number & 1 else 4, "store_host": 16 if number & 2 else 4}
    head, table = records.HEADS[number], tables_of(records)[0]
    fixed = table[: 1 + [row["field"] for row in table].index("body")]
    offset = 0
    for row in fixed:
        name = "body_length" if row["field"] == "body" else row["field"]
        assert head.offsets[name] == offset
        if number == 0:
            assert head.offsets[name] == int(row["offset"])
        codes = TYPES[row["type"]].removesuffix("n").removeprefix("H")
        offset += host_bytes.get(row["field"], 0) + struct.calcsize(f">{codes}")
    assert head.size == offset
    names = {name.replace("port", "host").replace("body_length", "body") for name in head.offsets}
    assert names == {row["field"] for row in fixed}


@pytest.mark.parametrize("name", sorted({**LAYOUTS, **DECLARED}))
def test_offsets_in_a_layout_table_are_sums_of_the_types_before(name):
    for table in tables_of(module_of(name)):
        offset = 0
        for row in table:
            assert int(row["offset"]) == offset, row
            offset += sum(SIZES[code] for code in TYPES[row["type"]])


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_fields_in_a_layout_table_are_those_of_the_class_in_order(name):
    for table, (_, kind) in zip(tables_of(module_of(name)), LAYOUTS[name], strict=True):
        framing = FRAMING.get(name, set())
        assert [row["field"] for row in table if row["field"] not in framing] == field_names(kind)


def test_sizes_named_beside_the_structs_are_theirs():
    for name, constant, size in [
        ("checkpoint", "CHECKPOINT_BYTES", 4096),
        ("batchqueue_entry", "ENTRY_BYTES", 46),
        ("consumequeue_entry", "ENTRY_BYTES", 20),
        ("dledger", "ENTRY_HEADER_BYTES", 48),
        ("index_file", "HEADER_BYTES", 40),
        ("index_file", "ENTRY_BYTES", 20),
        ("index_file", "SLOT_BYTES", 4),
        ("commitlog_record", "CRC_PROPERTY_BYTES", len("__CRC32#") + 12),
    ]:
        assert getattr(module_of(name), constant) == size
    table = tables_of(records)[0]
    smallest = sum(SIZES[code] for row in table for code in TYPES[row["type"]])
    assert smallest == records.MIN_RECORD_BYTES


def test_the_compression_table_names_what_each_flag_writes():
    first_bytes = {"zlib": b"\x78", "LZ4": b"\x04\x22\x4d\x18", "Zstandard": b"\x28\xb5\x2f\xfd"}
    rows = tables_of(body_compression)[0]
    compressed, *kinds = rows
    assert int(compressed["sysFlag"], 16) == body_compression.COMPRESSED
    assert [int(row["sysFlag"], 16) for row in kinds] == [
        0,
        body_compression.LZ4,
        body_compression.ZSTD,
        body_compression.ZLIB,
    ]
    for row in kinds:
        assert int(row["mask"], 16) == body_compression.TYPE_MASK
        packed = body_compression.compress(b"body", int(row["sysFlag"], 16) | 1)
        assert packed.startswith(first_bytes[row["meaning"].split()[0]]), row


def test_the_table_of_properties_reads_as_it_says():
    for row in tables_of(java_properties)[0]:
        written, read_as = (row[name].strip("`") for name in ("written", "read as"))
        assert java_properties.loads(written) == json.loads(read_as, strict=False)

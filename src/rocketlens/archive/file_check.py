"""Compares a Parquet file with what this program writes, before its columns are read.

A file keeps its name, its size and a right seal where a program, or somebody who can write to the
archive, has put others columns into it. Messages that were made of these would be wrong ones.
"""

from typing import TYPE_CHECKING, Final

from rocketlens.archive.seal import SEALED
from rocketlens.archive.tables import DECODED, KEYS, POSITION, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

_MAX_GROUP_BYTES: Final = 512 << 20
"""What a row group may have in memory; this program writes 4 MiB, or a batch of large bodies."""
_NULLABLE: Final = frozenset({"tags", "unique_key", "body_error", *DECODED})
_OF_FIRST_VERSION: Final = frozenset({*POSITION, "key_hash", "key", "body", "properties"})
"""Columns that files of every version have."""


def check_file(
    file: "pyarrow.parquet.ParquetFile", table: str, path: str, rows: int | None = None
) -> None:
    """Check the columns and the size of a file of a table; ``rows``: how many the table says.

    :raises ValueError: if they are not those of such a file.
    """
    there = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
    expected = columns_of(table, is_decoded=table != KEYS)
    for field in expected:
        found = there.get(field.name)
        if found is not None and found != field.type:
            raise ValueError(f"its column {field.name} has the type {found}, and not {field.type}")
        is_old = not path.endswith(SEALED) and field.name not in _OF_FIRST_VERSION
        if found is None and not is_old and field.name not in DECODED:
            raise ValueError(f"it has no column {field.name}")
    metadata = file.metadata
    if rows is not None and metadata.num_rows != rows:
        raise ValueError(f"it has {metadata.num_rows} rows, and not {rows}")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.total_byte_size > _MAX_GROUP_BYTES:
            raise ValueError(f"a row group has {group.total_byte_size} bytes when decompressed")


def check_values(rows: "pa.Table") -> "pa.Table":
    """Return rows, in which every column has a value that always has one.

    :raises ValueError: if one has not.
    """
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

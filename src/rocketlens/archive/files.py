"""Writes the Parquet files of an archive: those of one share of the work.

Messages go to one file for each day, in their input order. Their keys go to another file, sorted
by hash. The files belong to the archive once the journal lists them (`rocketlens.archive.journal`);
files of a failed task are never listed.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from rocketlens.archive.bloom import CHECKSUMS, FILTER_OPTIONS, checksums
from rocketlens.archive.copied import LastRecord, QueueRange, join_ranges
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.seal import SEALED, SealingSink
from rocketlens.archive.tables import (
    BOUNDED,
    DAY,
    DECODED,
    KEYS,
    MESSAGES,
    columns_of,
    day_text,
    days_of,
    encode_dictionaries,
    key_rows,
    sort_by_hash,
)
from rocketlens.late import pa, pc, pq

if TYPE_CHECKING:
    from rocketlens.decode.bodies import DecodedBody
    from rocketlens.decode.rules import BodyRules


_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FILE_NAME: Final = re.compile(rf"{DAY}=\d{{4}}-\d{{2}}-\d{{2}}/{_UUID}(?:\.sealed)?\.parquet")
"""Matches paths of files in ``messages`` and ``message_keys``, as `TableFile` makes them."""
JOURNAL_FILE: Final = re.compile(rf"part-\d+-{_UUID}-c\d+(?:\.\w+)?\.parquet")
"""Matches names of files in ``journal``, as delta-rs makes them."""
_MESSAGE_ROWS: Final = 4096
_KEY_ROWS: Final = 16_384
_GROUP_BYTES: Final = 4 << 20
"""The largest row group, unless a single row is larger."""
_DICTIONARIES: Final = [
    "cluster",
    "broker",
    "topic",
    "tags",
    "kind",
    "body_format",
    "born_host",
    "store_host",
    "properties.key_value.key",
]
_FILTERED: Final = "key_hash"
_COUNTERS: Final = ["queue_id", "store_size", "store_timestamp_ms", "born_timestamp_ms"]
_SCATTERED: Final = frozenset({"key_hash", "queue_offset", "physical_offset"})
"""Columns of keys that do not compress once they are sorted by hash."""

_RANGE: Final = (
    ("queue_offset", "count"),
    ("queue_offset", "min"),
    ("queue_offset", "max"),
    ("store_timestamp_ms", "min"),
    ("store_timestamp_ms", "max"),
)
_OF_QUEUE: Final = (*_RANGE, *((name, "last") for name in LastRecord._fields))
"""The aggregates of a queue's rows that its `QueueRange` holds."""


Bounds = dict[str, tuple[Any, Any]]
"""The least and the greatest value of each column, both included."""


class DataFile(NamedTuple):
    """A file of a table: its path in the table, and the bounds of some of its columns."""

    table: str
    path: str
    size: int
    day: str
    rows: int
    bounds: Bounds

    def can_have(self, bounds: Bounds) -> bool:
        return all(
            name not in self.bounds
            or (self.bounds[name][0] <= high and low <= self.bounds[name][1])
            for name, (low, high) in bounds.items()
        )

    def to_json(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        file = cls(**json.loads(text))
        bounds = {name: (low, high) for name, (low, high) in file.bounds.items()}
        return file._replace(bounds=bounds)

    def stats(self) -> str:
        """Return the file's statistics in the JSON of a Delta log."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: low for name, (low, _) in self.bounds.items()},
                "maxValues": {name: high for name, (_, high) in self.bounds.items()},
                "nullCount": dict.fromkeys(self.bounds, 0),
            }
        )


class ShareFiles:
    """Writes the files of one share as its messages come."""

    def __init__(
        self,
        location: ArchiveLocation,
        cluster: str,
        broker: str,
        body_rules: "BodyRules | None" = None,
    ) -> None:
        """Write nothing yet. ``body_rules``: also store decoded bodies (None: do not decode)."""
        self._location: Final = location
        self._body_rules: Final = body_rules
        self._named: Final = {"cluster": cluster, "broker": broker}
        self._days: Final[dict[int, _DayFiles]] = {}
        self._ranges: Final[list[QueueRange]] = []

    def add(self, batches: "Iterable[pa.RecordBatch]") -> None:
        """Write messages with the columns of `rocketlens.formats.columns`."""
        is_decoded = self._body_rules is not None
        columns = columns_of(MESSAGES, is_decoded=is_decoded)
        for batch in batches:
            if not batch.num_rows:
                continue
            made = {
                name: pa.repeat(pa.scalar(value), batch.num_rows)
                for name, value in self._named.items()
            }
            if self._body_rules is not None:
                made |= _decoded(batch, self._body_rules)
            arrays = [
                made[each.name] if each.name in made else batch[each.name] for each in columns
            ]
            table = pa.Table.from_arrays(arrays, schema=columns)
            self._ranges.extend(_ranges(table, self._named["broker"]))
            days = days_of(batch["store_timestamp_ms"].to_numpy())
            for day in np.unique(days).tolist():
                of_day = days == day
                part = table if of_day.all() else table.filter(pa.array(of_day))
                if day not in self._days:
                    self._days[day] = _DayFiles(
                        self._location, day_text(day), is_decoded=is_decoded
                    )
                self._days[day].add(part)

    @property
    def ranges(self) -> list[QueueRange]:
        """The written range of each queue."""
        return join_ranges(self._ranges)

    def close(self) -> list[DataFile]:
        """Finish and sync the files; return them."""
        return [file for day in sorted(self._days) for file in self._days[day].close()]

    def abort(self) -> None:
        for each in self._days.values():
            each.abort()


def _ranges(messages: "pa.Table", broker: str) -> Iterator[QueueRange]:
    """Yield the range of each queue in ``messages``, which are in the order of the log."""
    grouped = messages.group_by(["topic", "queue_id"], use_threads=False).aggregate([*_OF_QUEUE])
    for row in grouped.to_pylist():
        rows, first, end, first_ms, last_ms = (
            row[f"{name}_{function}"] for name, function in _RANGE
        )
        last = LastRecord(*(row[f"{name}_last"] for name in LastRecord._fields))
        queue = broker, row["topic"], row["queue_id"]
        yield QueueRange(*queue, 0, first, end + 1, rows, first_ms, last_ms, last)


def _decoded(batch: "pa.RecordBatch", rules: "BodyRules") -> "dict[str, pa.Array]":
    rows: list[DecodedBody] = [
        rules.decode_body(topic, dict(properties), body, error)
        for topic, properties, body, error in zip(
            *(batch[name].to_pylist() for name in ("topic", "properties", "body", "body_error")),
            strict=True,
        )
    ]
    texts: tuple[list[str | None], ...] = (
        [each.format for each in rows],
        [each.text if (text := each.as_json()) is None else text for each in rows],
        [each.error for each in rows],
    )
    return {
        # Decoded text can contain lone surrogates, which UTF-8 cannot encode.
        name: pa.array(
            [None if each is None else each.encode("utf-8", "replace") for each in column],
            pa.binary(),
        ).cast(pa.string())
        for name, column in zip(DECODED, texts, strict=True)
    }


class _DayFiles:
    """The messages of one day, and their keys until they are sorted."""

    def __init__(self, location: ArchiveLocation, day: str, *, is_decoded: bool) -> None:
        self._location: Final = location
        self._day: Final = day
        self._files: Final = [TableFile(location, MESSAGES, day, is_decoded=is_decoded)]
        self._keys: Final[list[pa.Table]] = []
        self._pending: Final[list[pa.Table]] = []

    def add(self, messages: "pa.Table") -> None:
        self._keys.append(key_rows(messages))
        self._pending.append(messages)
        rows = sum(each.num_rows for each in self._pending)
        if rows >= _MESSAGE_ROWS or sum(each.nbytes for each in self._pending) >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            table = pa.concat_tables(self._pending).combine_chunks()
            self._pending.clear()
            self._files[0].write(table)

    def close(self) -> list[DataFile]:
        self._flush()
        keys = pa.concat_tables(self._keys)
        self._keys.clear()
        if keys.num_rows:
            self._files.append(TableFile(self._location, KEYS, self._day))
            self._files[1].write(sort_by_hash(keys))
        return [each.close() for each in self._files]

    def abort(self) -> None:
        for each in self._files:
            each.abort()


class TableFile:
    """Writes one Parquet file of a table, and collects the bounds of its columns.

    :raises OSError: in all methods but `abort`, if it cannot be written.
    """

    def __init__(
        self, location: ArchiveLocation, table: str, day: str, *, is_decoded: bool = False
    ) -> None:
        """Create a file with a unique name. ``is_decoded``: it has columns of decoded bodies."""
        columns = columns_of(table, is_decoded=is_decoded)
        self._table: Final = table
        self._day: Final = day
        self._relative: Final = f"{DAY}={day}/{uuid.uuid4()}{SEALED}"
        self._location: Final = location
        self._path: Final = location.path(table, self._relative)
        self._bounded: Final = BOUNDED[table]
        self._bounds: Final[Bounds] = {}
        self._checksums: Final[list[dict[str, int]]] = []
        self.rows = 0
        self._sink: Final = location.create(self._path)
        names = columns.names
        counters = [*_COUNTERS]
        compression: Any = "zstd"
        if table == KEYS:
            columns = encode_dictionaries(columns.empty_table()).schema
            counters += ["queue_offset", "physical_offset"]
            compression = {name: "none" if name in _SCATTERED else "zstd" for name in names}
        self._sealing: Final = SealingSink(self._sink.write, self._sink.tell)
        self._writer: Final = pq.ParquetWriter(
            self._sealing,
            columns,
            compression=compression,
            use_dictionary=[name for name in _DICTIONARIES if name.split(".")[0] in names],
            write_statistics=[*self._bounded],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in counters if name in names},
            write_page_checksum=True,
            bloom_filter_options={_FILTERED: FILTER_OPTIONS} if table == KEYS else None,
            # With the schema, readers would return dictionaries.
            store_schema=table != KEYS,
        )

    def write(self, rows: "pa.Table") -> None:
        """Append rows, which come in the order of the table."""
        for name in self._bounded:
            least_and_greatest = pc.min_max(rows.column(name)).as_py()
            low, high = least_and_greatest["min"], least_and_greatest["max"]
            before = self._bounds.get(name, (low, high))
            self._bounds[name] = (min(low, before[0]), max(high, before[1]))
        self.rows += rows.num_rows
        fitting = max(_GROUP_BYTES * rows.num_rows // max(rows.nbytes, 1), 1)
        most = _KEY_ROWS if self._table == KEYS else _MESSAGE_ROWS
        group_rows = min(fitting, most)
        if self._table == KEYS:
            rows = encode_dictionaries(rows)
            hashes = rows.column(_FILTERED).to_numpy()
            for start in range(0, len(hashes), group_rows):
                self._checksums.append(checksums(hashes[start : start + group_rows]))
        with self._location.short_errors(self._path):
            self._writer.write_table(rows, row_group_size=group_rows)

    def close(self) -> DataFile:
        if self._table == KEYS:
            self._writer.add_key_value_metadata({CHECKSUMS: json.dumps(self._checksums)})
        with self._location.short_errors(self._path):
            self._sealing.hold()
            self._writer.close()
            self._sealing.seal()
            size = self._location.finish(self._path, self._sink)
        return DataFile(self._table, self._relative, size, self._day, self.rows, self._bounds)

    def abort(self) -> None:
        """Remove the file, finished or not."""
        with suppress(OSError):
            self._writer.close()
        self._location.abort(self._path, self._sink)

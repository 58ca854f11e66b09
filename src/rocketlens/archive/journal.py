"""The journal of an archive: records each archived batch exactly once.

Batches of a source are numbered from 1. A batch is added in three Delta commits, each of which
carries the source and the number as an application transaction:

==  ================  ==============================================================================
    commit to         content
==  ================  ==============================================================================
1   ``journal``       a row with the range of the batch, and the names of its files
2   ``messages``      the files with messages
3   ``message_keys``  the files with keys
==  ================  ==============================================================================

The first commit decides: Delta refuses it if another archiver has committed that number. If a job
ended before the last commit, the next job adds the missing files, which the row names. A reader
ignores rows whose messages are not committed yet, and reads the files of uncommitted keys.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from urllib.parse import unquote
from zlib import crc32

from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from rocketlens.archive.copied import (
    Copied,
    Missing,
    QueueRange,
    contradiction,
    ranges_from_json,
    ranges_to_json,
)
from rocketlens.archive.files import FILE_NAME, JOURNAL_FILE, DataFile
from rocketlens.archive.location import JOURNAL, ArchiveLocation, delta
from rocketlens.archive.tables import (
    BOUNDED,
    DAY,
    KEYS,
    MESSAGES,
    decoded_schema,
    key_schema,
    message_schema,
)
from rocketlens.errors import ArchiveError, ArchiveTaken
from rocketlens.late import pa
from rocketlens.model.text.escape import printable

_MAX_READER_VERSION: Final = 3
_READER_FEATURES: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
RETENTION: Final = "/retention"
"""The transaction of ``messages`` whose version is the first day that is kept; no source has this
name.
"""
_EXCHANGES: Final = "/exchanges"
ARCHIVE_VERSION: Final = 1
_VERSION_PROPERTY: Final = "rocketlens.archiveVersion"
_COLUMNS: Final = {
    JOURNAL: ("source", "number", "begin", "end", "files"),
    MESSAGES: ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms"),
    KEYS: ("key_hash", "key", "topic", "physical_offset"),
}
"""Columns by which a table of an archive of any version is recognized."""
_SINCE_0_2: Final = ("asked_ms", "queues", "lost", "behind")
"""Columns that rows of earlier versions do not have."""
_BY_SOURCE: Final = attrgetter("source", "number")
_COMPACTED_FILES: Final = 64
"""The journal is compacted when it has this many files: each batch adds one with one row."""


class ArchivedBatch(Struct, frozen=True):
    """A row of the journal: one batch of one source.

    ``begin`` and ``end`` are the source's offsets before and after it, as JSON. ``gaps`` are lines
    on what could not be read between them. ``chosen`` are the requested topics and patterns; none
    means all. Times are store times in epoch milliseconds, 0 without messages. ``files`` are
    `DataFile` values as JSON. ``checksum`` covers all other fields. Rows of earlier versions have
    checksum 0 and none of the fields after it: ``asked_ms`` is when the source was asked for its
    offsets, ``queues`` the copied ranges, ``lost`` what cannot be read of them, and ``behind`` what
    else the source is known to have (`rocketlens.archive.copied`).
    """

    source: str
    number: int
    begin: str
    end: str
    messages: int
    first_ms: int
    last_ms: int
    topics: tuple[str, ...]
    brokers: tuple[str, ...]
    gaps: tuple[str, ...]
    files: tuple[str, ...]
    run: str
    archived_ms: int
    chosen: tuple[str, ...] = ()
    checksum: int = 0
    asked_ms: int = 0
    queues: str = ""
    lost: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    @property
    def expected_checksum(self) -> int:
        """The CRC-32 of the other fields, as JSON."""
        values = {**asdict(self), "checksum": 0}
        if not self.asked_ms:
            values = {name: value for name, value in values.items() if name not in _SINCE_0_2}
        return crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())

    @property
    def is_of_cluster(self) -> bool:
        """True if the source is a cluster, False if it is the store of one broker."""
        return "/" not in self.source

    @property
    def end_offsets(self) -> Any:
        return json.loads(self.end)

    @property
    def ranges(self) -> list[QueueRange]:
        return ranges_from_json(self.queues)

    def new_files(self, table: str) -> list[DataFile]:
        """Return the files that the batch adds to a table."""
        return [each for each in map(DataFile.from_json, self.files) if each.table == table]


def _journal_schema() -> "pa.Schema":
    texts = pa.list_(pa.field("element", pa.string()))
    types: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), tuple[str, ...]: texts}
    return pa.schema([pa.field(each.name, types[each.type]) for each in fields(ArchivedBatch)])


class ArchiveTables:
    """The three tables of an archive, as of the last refresh.

    :raises ArchiveError: in all methods, if a table cannot be read or written.
    """

    def __init__(self, root: str | ArchiveLocation, *, create: bool = False) -> None:
        """Open the tables; with ``create``, create missing ones.

        :raises ArchiveError: if it is not an archive, or its version is not supported.
        :raises BadInput: if the path is not valid.
        :raises PackageMissing: if deltalake is not installed.
        """
        self.location: Final = (
            root if isinstance(root, ArchiveLocation) else ArchiveLocation.of(root)
        )
        self.location.check_path()
        self.root: Final = self.location.root
        self.run: Final = str(uuid.uuid4())
        self._paths: Final = {name: self.location.path(name) for name in (JOURNAL, MESSAGES, KEYS)}

        self._read: Final[dict[str, list[ArchivedBatch]]] = {}
        self._copied: Final[dict[str, Copied]] = {}
        self._checked: Final[set[tuple[str, int]]] = set()
        self.added_rows: Final[dict[str, Counter[str]]] = {MESSAGES: Counter(), KEYS: Counter()}
        """The number of rows of each day that the batches seen by `check_files` added."""
        with self.location.archive_errors():
            self.messages = self._open(MESSAGES, message_schema(), create=create)
            self.keys = self._open(KEYS, key_schema(), create=create)
            self.journal = self._open(JOURNAL, _journal_schema(), create=create)

    @property
    def is_decoded(self) -> bool:
        """True if ``messages`` has columns for decoded bodies."""
        return self._lacks_decoded() == []

    def add_decoded(self) -> None:
        """Add columns for decoded bodies to ``messages``, if it has none."""
        if missing := self._lacks_decoded():
            with self.location.archive_errors():
                self.messages.alter.add_columns(missing)

    def _lacks_decoded(self) -> list[Any]:
        return _missing_columns(self.messages, decoded_schema(), self.location.path(MESSAGES))

    def _open(self, name: str, columns: "pa.Schema", *, create: bool) -> Any:
        path, options = self.location.path(name), self.location.delta_options
        self.location.check_log(name, "_delta_log")
        partitions = [] if name == JOURNAL else [DAY]
        with_day = pa.schema([*columns, *(pa.field(each, pa.date32()) for each in partitions)])
        if create:
            delta().DeltaTable.create(
                path,
                with_day,
                mode="ignore",
                partition_by=partitions,
                configuration={_VERSION_PROPERTY: str(ARCHIVE_VERSION)},
                raise_if_key_not_exists=False,
                storage_options=options,
            )
        try:
            table = delta().DeltaTable(path, storage_options=options)
        except delta().exceptions.TableNotFoundError as error:
            raise ArchiveError(
                f"{self.root} is not an archive: it has no {name}/_delta_log. "
                "`rocketlens archive run --table` makes one"
            ) from error
        _check_protocol(table, path)
        _check_columns(table, name, path)
        missing = _missing_columns(table, with_day, path)
        if create and missing:
            table.alter.add_columns(missing)
        return table

    def refresh(self) -> None:
        """Read new commits.

        Messages and keys come last, so they have at least the files of the journal's rows.
        """
        with self.location.archive_errors():
            for name, table in self._named().items():
                # Every query refreshes, and delta-rs takes milliseconds to find no new commit.
                following = f"{self._paths[name]}/_delta_log/{table.version() + 1:020d}.json"
                if self.location.may_exist(following):
                    self.location.check_log(name, "_delta_log")
                    table.update_incremental()

    def _named(self) -> dict[str, Any]:
        return {JOURNAL: self.journal, MESSAGES: self.messages, KEYS: self.keys}

    def files(self, name: str) -> list[DataFile]:
        return self.files_of(self._named()[name], name)

    def files_of(self, table: Any, name: str) -> list[DataFile]:
        """Return the files of a version of a table."""
        with self.location.archive_errors():
            listed = table.get_add_actions(flatten=True)
        # Not `pa.table`, which would import pandas if that is installed.
        actions = pa.RecordBatchReader.from_stream(listed).read_all().to_pylist()
        return [_listed_file(name, each, self.location.path(name)) for each in actions]

    def path(self, table: str, relative: str) -> str:
        return f"{self._paths[table]}/{relative}"

    def messages_at(self, version: int) -> Any:
        """Return the table of messages at a version; raise ArchiveError if it no longer exists."""
        try:
            with self.location.archive_errors():
                return delta().DeltaTable(
                    self.location.path(MESSAGES),
                    version=version,
                    storage_options=self.location.delta_options,
                )
        except ArchiveError as error:
            raise ArchiveError(
                f"{self.root} no longer has version {version} of its messages: begin the search "
                "again"
            ) from error

    def batches(self, messages: Any = None) -> list[ArchivedBatch]:
        """Return the rows of the journal whose messages are committed, by their numbers.

        ``messages``: the table of messages at some version (None: the current one).
        """
        table, rows = self.messages if messages is None else messages, self._rows()
        last = self._last_numbers(table, rows)
        return [each for each in rows if last[each.source] >= each.number]

    def _last_numbers(self, table: Any, batches: Iterable[ArchivedBatch]) -> dict[str, int]:
        sources = {each.source for each in batches}
        return {source: self._version(table, source) for source in sources}

    def _rows(self) -> list[ArchivedBatch]:
        rows: list[ArchivedBatch] = []
        for each in self.files(JOURNAL):
            path = self.path(JOURNAL, each.path)
            if path not in self._read:
                self._read[path] = _read_batches(self.location, path)
            rows += self._read[path]
        for source, batches in groupby(sorted(rows, key=_BY_SOURCE), attrgetter("source")):
            numbers = [each.number for each in batches]
            if numbers != [*range(1, self._version(self.journal, source) + 1)]:
                raise ArchiveError(
                    f"{self.location.path(JOURNAL)} is damaged: it does not have each batch of "
                    f"{printable(source)[:200]} once"
                )
        return sorted(rows, key=lambda each: (each.number, each.source))

    def check_files(self, batches: Iterable[ArchivedBatch], listed: Iterable[DataFile]) -> None:
        """Check that the table logs agree with the journal on each listed file that a batch added.

        ``batches`` are all batches; each is checked once.

        :raises ArchiveError: if not: the log of a table is damaged.
        """
        there = {(each.table, each.path): each for each in listed}
        for batch in batches:
            if (batch.source, batch.number) in self._checked:
                continue
            self._checked.add((batch.source, batch.number))
            for file in map(DataFile.from_json, batch.files):
                self.added_rows[file.table][file.day] += file.rows
                if there.get((file.table, file.path), file) != file:
                    raise ArchiveError(
                        f"{self._paths[file.table]}/_delta_log is damaged: it has another day, "
                        f"size or bounds of {file.path} than the journal"
                    )

    def batches_of(self, source: str) -> list[ArchivedBatch]:
        """Return the batches of a source; the last one may lack commits."""
        return [each for each in self._rows() if each.source == source]

    def copied(self, source: str) -> Copied:
        """Return the ranges of queues that the batches of a source copied."""
        copied = self._copied.setdefault(source, Copied())
        copied.add(self.batches_of(source))
        return copied

    def last_batch(self, source: str) -> ArchivedBatch | None:
        """Return the newest batch of a source; it may lack commits."""
        return next(reversed(self.batches_of(source)), None)

    def missing_keys(self, batches: Collection[ArchivedBatch]) -> list[DataFile]:
        """Return the files of keys that are not committed, of batches whose messages are."""
        last = self._last_numbers(self.keys, batches)
        return [
            file
            for batch in batches
            if last[batch.source] < batch.number
            for file in batch.new_files(KEYS)
        ]

    def repair(self, source: str) -> None:
        """Add the missing commits of a source's last batch, after a job was killed."""
        last = self.last_batch(source)
        if last is not None:
            self._add(self.messages, last, last.new_files(MESSAGES))
            self._add(self.keys, last, last.new_files(KEYS))

    def repair_all(self) -> None:
        """Add the missing commits of the last batches of all sources."""
        for source in {each.source for each in self._rows()}:
            self.repair(source)

    def unused(self, name: str, hours: int) -> list[str]:
        """Return files of at least this age that the table has not had for this many hours."""
        table = self._named()[name]
        with self.location.archive_errors():
            # By the age of a file, not by the time of its removal.
            listed = table.vacuum(hours, dry_run=True, full=True, enforce_retention_duration=False)
            before = delta().DeltaTable(
                self.location.path(name), storage_options=self.location.delta_options
            )
            before.load_as_version(datetime.now(UTC) - timedelta(hours=hours))
        kept = {each.path for part in (table, before) for each in self.files_of(part, name)}
        return sorted(each for each in {*listed} - kept if each.endswith(".parquet"))

    def replacement_count(self, name: str) -> int:
        """Return how often files of a table were replaced."""
        return self._version(self._named()[name], _EXCHANGES)

    @property
    def first_day(self) -> int | None:
        """The first day whose messages are kept, counted from 1970; None if all are."""
        with self.location.archive_errors():
            day: int | None = self.messages.transaction_version(RETENTION)
        return day

    def replace_files(
        self,
        name: str,
        added: Sequence[DataFile],
        removed: Sequence[str],
        transaction: tuple[str, int] | None = None,
    ) -> None:
        """Add files to a table and remove others, in one commit.

        These commits are numbered; Delta refuses a number that another job has used since the last
        refresh.
        """
        table, now_ms = self._named()[name], time.time_ns() // 1_000_000
        number = self._version(table, _EXCHANGES) + 1
        are_rows_deleted = not added
        actions = [
            delta().transaction.RemoveAction(
                each, are_rows_deleted, now_ms, partition_values={DAY: each[len(DAY) + 1 :][:10]}
            )
            for each in removed
        ]
        actions += _adds(added, now_ms, data_change=False)
        numbered = [(_EXCHANGES, number), *([transaction] if transaction else [])]
        properties = delta().CommitProperties(
            app_transactions=[delta().Transaction(*each) for each in numbered]
        )
        with self.location.archive_errors():
            table.create_write_transaction(
                actions, "append", table.schema(), [DAY], commit_properties=properties
            )
        self.refresh()

    def commit(self, batch: ArchivedBatch) -> None:
        """Add a batch, if its predecessor was the last batch at the last refresh.

        :raises ArchiveTaken: if another archiver has added a batch of that number. Nothing was
            added.
        """
        if self._version(self.journal, batch.source) != batch.number - 1:
            raise self._taken(batch)
        row = pa.Table.from_pylist([asdict(batch)], schema=_journal_schema())
        try:
            with self.location.archive_errors():
                delta().write_deltalake(
                    self.journal, row, mode="append", commit_properties=_properties(batch)
                )
        except ArchiveError:
            self.refresh()
            last = self.last_batch(batch.source)
            if last is None or last.number < batch.number:
                raise
            if (last.number, last.run) != (batch.number, batch.run):
                raise self._taken(batch) from None
            # The commit succeeded, and its confirmation was lost.
        self.refresh()
        self.repair(batch.source)
        if len(self.files(JOURNAL)) >= _COMPACTED_FILES:
            with self.location.archive_errors():
                self.journal.optimize.compact()
        self.refresh()

    def _version(self, table: Any, source: str) -> int:
        """Return the number of the last batch of a source in a table; 0 without one."""
        with self.location.archive_errors():
            version = table.transaction_version(source)
        return 0 if version is None else int(version)

    def _taken(self, batch: ArchivedBatch) -> ArchiveTaken:
        self.refresh()
        last = self.last_batch(batch.source)
        by = f" (run {last.run})" if last is not None else ""
        return ArchiveTaken(
            f"{self.root}: another archiver{by} has added batch {batch.number} of {batch.source}: "
            "nothing of this one was added. One job archives a source: stop one of them"
        )

    def _add(self, table: Any, batch: ArchivedBatch, files: Sequence[DataFile]) -> None:
        if self._version(table, batch.source) >= batch.number:
            return
        adds = _adds(files, batch.archived_ms, data_change=True)
        try:
            with self.location.archive_errors():
                table.create_write_transaction(
                    adds, "append", table.schema(), [DAY], commit_properties=_properties(batch)
                )
        except ArchiveError:
            # Another archiver that repairs the same row may have added it.
            self.refresh()
            if self._version(table, batch.source) < batch.number:
                raise
        self.refresh()


def _listed_file(table: str, listed: Mapping[str, Any], root: str) -> DataFile:
    """Return a file of a Delta log, with its day and bounds, which searches need to skip files.

    :raises ArchiveError: if a value is missing: the log of the table is damaged.
    """
    # A relative path, percent-encoded once; `file_uris` are encoded twice.
    path = unquote(str(listed.get("path")))
    if not (JOURNAL_FILE if table == JOURNAL else FILE_NAME).fullmatch(path):
        raise ArchiveError(
            f"{root}/_delta_log names {printable(path)[:200]!r}, which is not the name of a file "
            "of an archive: the log is damaged, or another program has changed the table"
        )
    bounded = BOUNDED.get(table, ())
    expected = ["num_records", "size_bytes", *(["partition.day"] if bounded else [])]
    expected += [f"{end}.{column}" for end in ("min", "max") for column in bounded]
    for each in expected:
        if listed.get(each) is None:
            raise ArchiveError(f"{root}/_delta_log is damaged: it has no {each} of the file {path}")
    bounds = {name: (listed[f"min.{name}"], listed[f"max.{name}"]) for name in bounded}
    day = str(listed.get("partition.day"))
    return DataFile(table, path, listed["size_bytes"], day, listed["num_records"], bounds)


def _check_protocol(table: Any, path: str) -> None:
    protocol = table.protocol()
    unknown = set(protocol.reader_features or ()) - _READER_FEATURES
    if protocol.min_reader_version > _MAX_READER_VERSION or unknown:
        what = ", ".join(sorted(unknown)) or f"version {protocol.min_reader_version}"
        raise ArchiveError(
            f"{path} was changed by a program that uses {what} of Delta, which is not "
            "supported here: read it with that program"
        )
    version = table.metadata().configuration.get(_VERSION_PROPERTY, str(ARCHIVE_VERSION))
    if version != str(ARCHIVE_VERSION):
        raise ArchiveError(
            f"{path} has archive version {version}, and this program reads version "
            f"{ARCHIVE_VERSION}: use a newer RocketLens"
        )


def _check_columns(table: Any, name: str, path: str) -> None:
    """Check that a table is one of an archive of any version; raise ArchiveError if not."""
    there = {field.name for field in table.schema().fields}
    for column in _COLUMNS[name]:
        if column not in there:
            raise ArchiveError(
                f"{path} has no column {column}: it is a Delta table, but not one of an archive"
            )


def _missing_columns(table: Any, columns: "pa.Schema", path: str) -> list[Any]:
    """Return the fields that a table of an older version lacks."""
    there = {field.name: field.type for field in table.schema().fields}
    missing = []
    for field in delta().Schema.from_arrow(columns).fields:
        if field.name not in there:
            missing.append(field)
        elif there[field.name] != field.type:
            raise ArchiveError(
                f"{path} has the column {field.name} with another type, {there[field.name]}: it is "
                "no table of an archive"
            )
    return missing


def _read_batches(location: ArchiveLocation, path: str) -> list[ArchivedBatch]:
    """Read a file of the journal; raise ArchiveError if that fails."""
    try:
        with location.parquet(path) as file:
            return [
                _batch_of(row)
                for row in file.read(columns=list(ArchivedBatch.__struct_fields__)).to_pylist()
            ]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveError(f"{path} cannot be read: {location.reason(error)}") from error


def _batch_of(row: dict[str, Any]) -> ArchivedBatch:
    """Parse a row of the journal; raise ValueError if it is damaged."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.items()
        if value is not None
    }
    try:
        batch = ArchivedBatch(**values)
    except TypeError as error:
        raise ValueError("a row lacks a value") from error
    if batch.checksum and batch.checksum != batch.expected_checksum:
        raise ValueError("a row is damaged")
    wrong = contradiction(batch, batch.ranges) if batch.asked_ms else None
    if wrong is not None:
        raise ValueError(
            f"batch {batch.number} of {printable(batch.source)[:200]} contradicts its files: "
            f"{printable(wrong)[:200]}"
        )
    return batch


def next_batch(
    source: str,
    last: ArchivedBatch | None,
    offsets: tuple[Any, Any],
    files: Iterable[DataFile],
    *,
    topics: Iterable[str],
    brokers: Iterable[str],
    lost: Iterable[Missing],
    run: str,
    chosen: Iterable[str],
    asked_ms: int,
    queues: Iterable[QueueRange],
    behind: Iterable[Missing],
) -> ArchivedBatch:
    """Return the batch of a source that follows ``last``, between two of the source's offsets."""
    missing = list(dict.fromkeys(lost))
    written = list(files)
    of_messages = [each for each in written if each.table == MESSAGES]
    times = [each.bounds["store_timestamp_ms"] for each in of_messages]
    begin, end = (json.dumps(each, separators=(",", ":")) for each in offsets)
    batch = ArchivedBatch(
        source=source,
        number=1 if last is None else last.number + 1,
        begin=begin,
        end=end,
        messages=sum(each.rows for each in of_messages),
        first_ms=min((low for low, _ in times), default=0),
        last_ms=max((high for _, high in times), default=0),
        topics=tuple(sorted(topics)),
        brokers=tuple(sorted(brokers)),
        gaps=tuple(dict.fromkeys(each.what for each in missing)),
        files=tuple(each.to_json() for each in written),
        run=run,
        archived_ms=time.time_ns() // 1_000_000,
        chosen=tuple(sorted(chosen)),
        asked_ms=asked_ms,
        queues=ranges_to_json(queues),
        lost=tuple(each.to_json() for each in missing),
        behind=tuple(each.to_json() for each in behind),
    )
    return replace(batch, checksum=batch.expected_checksum)


def _adds(files: Sequence[DataFile], written_ms: int, *, data_change: bool) -> list[Any]:
    return [
        delta().transaction.AddAction(
            path=each.path,
            size=each.size,
            partition_values={DAY: each.day},
            modification_time=written_ms,
            data_change=data_change,
            stats=each.stats(),
        )
        for each in files
    ]


def _properties(batch: ArchivedBatch) -> Any:
    package = delta()
    return package.CommitProperties(
        app_transactions=[package.Transaction(batch.source, batch.number)]
    )

"""``rocketlens export``: messages to a file, as Parquet, Arrow, CSV or JSON lines."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rocketlens.cli.printing import MessageOutput
from rocketlens.cli.source import add_selection, choose_source, read_into, selection_of
from rocketlens.errors import BadInput
from rocketlens.model import arrow
from rocketlens.model.arrow import batches_of, package, schema
from rocketlens.model.message import MessageExt
from rocketlens.model.text.counted import counted
from rocketlens.terminal.body_view import BODY_FORMS, BodyView
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.query.lookup.by_time import Scan

_TABLES: Final = ("parquet", "arrow")
_FORMATS: Final = (*_TABLES, "csv", "jsonl")
_SUFFIXES: Final = {
    **{f".{name}": name for name in _FORMATS},
    ".pq": "parquet",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".ndjson": "jsonl",
}
_GROUP_BYTES: Final = 64 << 20
"""Of messages that are written at once."""
EXAMPLES: Final = (
    ("rocketlens export shop.parquet -t Shop --since 1d", "a day of a topic, for pandas or DuckDB"),
    (
        "rocketlens export paid.jsonl -t 'order-*' --where 'body.$.amount > 100' --body decoded",
        "messages by what is in their bodies, whatever their format",
    ),
    ("rocketlens export all.arrow --store /data/rocketmq/store", "a whole store"),
    (
        "rocketlens export pay.csv -t 'order-*' --fields time,keys,body -n 127.0.0.1:9876",
        "for a spreadsheet program, from a running cluster",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "The file appears when it is whole. What an incomplete answer has is written to\n"
        f"FILE{INCOMPLETE} instead, with exit code 3, and FILE stays as it was.\n"
        f"{SEARCH_EXIT_CODES}"
    )
    parser.add_argument(
        "file", metavar="FILE", help="where to write: .parquet, .arrow, .csv or .jsonl"
    )
    add_selection(parser)
    parser.add_argument(
        "--as", dest="form", choices=_FORMATS, help="the format (default: by the suffix of FILE)"
    )
    parser.add_argument(
        "--fields",
        metavar="A,B",
        help="only these columns, in this order; in CSV and JSON lines those of `rocketlens find`",
    )
    parser.add_argument(
        "--body",
        choices=BODY_FORMS,
        help="bodies in CSV and JSON lines, as `rocketlens find` has it",
    )
    add_overwrite(parser)


def run(arguments: Namespace) -> ExitCode:
    """Export messages; the exit code says whether everything was read."""
    path = Path(arguments.file)
    form = arguments.form or _SUFFIXES.get(path.suffix.lower())
    selection = selection_of(arguments)
    if form is None:
        raise BadInput(
            f"--as: which format has {path.name[:80]!r}? Its suffix is none of "
            + ", ".join(_SUFFIXES)
        )
    if form in _TABLES and arguments.body:
        raise BadInput(f"--body is for CSV and JSON lines: {form} has the bytes")
    with OutputFile(arguments.file, overwrite=arguments.overwrite) as file:
        sink = _table_sink(file.partial, form, arguments) if form in _TABLES else None
        with sink or _TextSink(file.partial, form, arguments) as opened:
            answer = read_into(opened, selection, choose_source(arguments))
        is_whole = answer.complete and not answer.truncated
        target = file.finish(is_whole=is_whole)
    print_notes(answer, opened.count)
    note(f"wrote {counted(opened.count, 'message')} to {target}")
    if not is_whole:
        note(f"{path} was not written, because messages are missing")
        return ExitCode.INCOMPLETE
    return ExitCode.OK if opened.count else ExitCode.NO


class TableSink:
    """Writes messages to a file of Arrow batches; memory holds about `_GROUP_BYTES`."""

    def __init__(
        self, schema: "pa.Schema", columns: list[str] | None, open_writer: Callable[[Any], Any]
    ) -> None:
        """Write these columns, all without; ``open_writer`` opens the file for a schema."""
        import pyarrow as pa

        self.count = 0
        self._columns: Final = columns or schema.names
        self._writer: Final = open_writer(pa.schema([schema.field(name) for name in self._columns]))
        self._kept: list[MessageExt] = []
        self._kept_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, message: MessageExt) -> None:
        """Write a message, as soon as there are enough for a batch."""
        self._kept.append(message)
        self._kept_bytes += len(message.body)
        if len(self._kept) >= arrow.BATCH_ROWS or self._kept_bytes >= arrow.BATCH_BYTES:
            self._write_kept()

    def add_scan(self, scan: "Scan | ArchiveScan") -> None:
        """Write the messages of a scan, many at once."""
        self._add_batches(scan.record_batches(with_body="body" in self._columns))

    def _add_batches(self, batches: "Iterator[pa.RecordBatch]") -> None:
        """Write batches as they come, several at once: each write is a row group of Parquet."""
        for batch in batches:
            kept = batch.select(self._columns)
            self._batches.append(kept)
            self._size += kept.nbytes
            self.count += kept.num_rows
            if self._size >= _GROUP_BYTES:
                self._write_batches()

    def _write_batches(self) -> None:
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches, self._size = [], 0

    def _write_kept(self) -> None:
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        self._add_batches(batches_of(kept))

    def __enter__(self) -> Self:
        """Return the sink."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is left, and close the file."""
        try:
            self._write_kept()
            self._write_batches()
        finally:
            self._writer.close()


def parquet_sink(path: Path, columns: list[str] | None = None) -> TableSink:
    """Return a sink that writes Parquet.

    :raises PackageMissing: without pyarrow.
    """
    parquet = package("pyarrow.parquet", "arrow", "Parquet")
    return TableSink(
        schema(), columns, lambda kept: parquet.ParquetWriter(path, kept, compression="zstd")
    )


def _table_sink(path: Path, form: str, arguments: Namespace) -> TableSink:
    package("pyarrow", "arrow", f"export as {form}")
    names = schema().names
    columns = [name.strip() for name in arguments.fields.split(",")] if arguments.fields else None
    for column in columns or ():
        if column not in names:
            from rocketlens.query.topic_choice import suggestion

            meant = suggestion(column, names) or f"; there are {', '.join(names)}"
            raise BadInput(f"--fields: there is no column {column[:80]!r}{meant}")
    if form == "parquet":
        return parquet_sink(path, columns)
    ipc = package("pyarrow.ipc", "arrow", "Arrow")
    return TableSink(schema(), columns, lambda kept: ipc.new_file(str(path), kept))


class _TextSink:
    """Writes messages as CSV or JSON lines, as `rocketlens find` prints them."""

    def __init__(self, path: Path, form: str, arguments: Namespace) -> None:
        self._path: Final = path
        self._output: Final = MessageOutput(
            form, fields=arguments.fields, bodies=BodyView.of(arguments), is_terminal=False
        )
        self._print: Final = self._output.line_printer
        self.count = 0

    def add(self, message: MessageExt) -> None:
        """Write one message."""
        self._print(message)
        self.count += 1

    def add_scan(self, scan: "Scan | ArchiveScan") -> None:
        """Write the messages of a scan, one by one."""
        for message in scan:
            self.add(message)

    def __enter__(self) -> Self:
        """Open the file; whatever is printed goes there."""
        self._file = self._path.open("x", encoding="utf-8", errors="backslashreplace", newline="\n")
        self._redirected = redirect_stdout(self._file)
        self._redirected.__enter__()
        self._output.print_header()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._redirected.__exit__(*sys.exc_info())
        self._file.close()


INCOMPLETE: Final = ".incomplete"
"""Suffix of the file that an incomplete answer is written to."""


def add_overwrite(parser: ArgumentParser) -> None:
    """Add ``--overwrite``."""
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


class OutputFile:
    """A file that is written under another name, `partial`, and renamed by `finish`."""

    def __init__(self, name: str, *, overwrite: bool) -> None:
        """Check that the file can be written.

        :raises BadInput: if it exists, and is not to be replaced, or its directory does not.
        """
        self.path: Final = Path(name)
        self._overwrite: Final = overwrite
        self.partial: Final = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        if self.path.is_dir():
            raise BadInput(f"{self.path} is a directory: name a file in it")
        if not self.path.parent.is_dir():
            raise BadInput(f"{self.path.parent} is not a directory")
        if self.path.exists() and not overwrite:
            raise BadInput(f"{self.path} exists: --overwrite replaces it")

    def __enter__(self) -> Self:
        """Return the file, whose `partial` the caller writes."""
        return self

    def finish(self, *, is_whole: bool) -> Path:
        """Rename what was written, durably; return its name: another one if it is not whole.

        :raises BadInput: if the file was made meanwhile; what was written has the other name.
        """
        _sync(self.partial)
        other = self.path.with_name(self.path.name + INCOMPLETE)
        if is_whole and not self._overwrite:
            try:
                # Unlike a rename, this fails if there is a file.
                os.link(self.partial, self.path)
            except FileExistsError:
                self.partial.replace(other)
                raise BadInput(
                    f"{self.path} was made by another program meanwhile, and is kept: the result "
                    f"is {other}, and is whole"
                ) from None
            except OSError:
                # A file system without hard links.
                self.partial.replace(self.path)
        else:
            self.partial.replace(self.path if is_whole else other)
        _sync(self.path.parent)
        return self.path if is_whole else other

    def __exit__(self, *_: object) -> None:
        """Remove what was not finished."""
        self.partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

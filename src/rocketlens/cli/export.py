"""``rocketlens export``: messages to a file, as Parquet, Arrow, CSV or JSON lines."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from rocketlens.cli.options import add_max, option
from rocketlens.cli.printing import MessageOutput
from rocketlens.cli.source import ChosenSource, add_selection, choose_source, selected
from rocketlens.errors import BadInput
from rocketlens.late import pa
from rocketlens.model.answer import Answer
from rocketlens.model.arrow import batches_of, package, schema
from rocketlens.model.fields import NAMES, TEXT_COLUMNS
from rocketlens.model.message import MessageExt
from rocketlens.model.text.counted import counted
from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.message_values import BODY_FORMS, BodyView
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note
from rocketlens.terminal.progress import SearchProgress

if TYPE_CHECKING:
    from rocketlens.query.request import FindRequest

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
_BODIES: Final = frozenset({"body", "body_error", *TEXT_COLUMNS})
Write = Callable[[Iterable[MessageExt]], int]
"""Writes messages, and returns how many there were."""
EXAMPLES: Final = """
rocketlens export shop.parquet -t Shop --since 1d  # a day of a topic, for pandas or DuckDB
# messages by what is in their bodies, whatever their format
rocketlens export paid.jsonl -t 'order-*' --where 'body.$.amount > 100' --body decoded
rocketlens export all.arrow --store /data/rocketmq/store  # a whole store
# for a spreadsheet program, from a running cluster
rocketlens export pay.csv -t 'order-*' --fields time,keys,body -n 127.0.0.1:9876
"""


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
    add_max(parser)
    add = partial(option, parser)
    add("--as", "the format (default: by the suffix of FILE)", dest="form", choices=_FORMATS)
    add(
        "--fields A,B",
        "only these columns, in this order; in CSV and JSON lines those of `rocketlens find`",
    )
    add("--body", "bodies in CSV and JSON lines, as `rocketlens find` has it", choices=BODY_FORMS)
    add_overwrite(parser)


def run(arguments: Namespace) -> ExitCode:
    """Export messages; the exit code says whether everything was read."""
    path = Path(arguments.file)
    form = arguments.form or _SUFFIXES.get(path.suffix.lower())
    request = selected(arguments, max_num=arguments.max)
    if form is None:
        raise BadInput(
            f"--as: which format has {path.name[:80]!r}? Its suffix is none of "
            + ", ".join(_SUFFIXES)
        )
    if form in _TABLES and arguments.body:
        raise BadInput(f"--body is for CSV and JSON lines: {form} has the bytes")
    with OutputFile(arguments.file, overwrite=arguments.overwrite) as file:
        writer = _table_writer if form in _TABLES else _text_writer
        write = writer(file.partial, form, arguments)
        answer, count = read_into(write, request, choose_source(arguments))
        # The newest N are all that were asked for.
        is_whole = answer.complete and (not answer.truncated or count == arguments.max)
        target = file.finish(is_whole=is_whole)
    print_notes(answer, count, verbose=arguments.verbose)
    note(f"wrote {counted(count, 'message')} to {target}")
    if not is_whole:
        note(f"{path} was not written, because messages are missing")
        return ExitCode.INCOMPLETE
    return ExitCode.OK if count else ExitCode.NO


def read_into(write: Write, request: "FindRequest", source: ChosenSource) -> tuple[Answer, int]:
    """Write the messages of a request; return what was searched, and how many there were.

    From the log of a store they come in its order, from an archive file by file; from a cluster in
    the order of their store times. Messages with a key are few, and are found first, as are those
    of an archive and another source, which come once, and the newest N.

    :raises TopicNotFound: when nothing was found, for want of a topic.
    """
    if request.text is not None or request.max_num is not None or source.is_merged:
        answer = source.find(request)
        return replace(answer, messages=()), write(answer.messages)
    with (
        SearchProgress() as progress,
        source.scan(request, progress, checks_topics=source.archive is not None) as scan,
    ):
        count = write(scan)
        if progress.is_interrupted:
            raise KeyboardInterrupt
        answer = Answer(request.query, (), scan.coverage)
    source.check_topics(request.topics, count)
    return answer, count


def batches_in(
    found: Iterable[MessageExt], *, with_body: bool, with_text: bool
) -> "Iterator[pa.RecordBatch]":
    """Return messages as record batches; the scan of a store or an archive makes none of them."""
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.query.lookup.by_time import Scan

    if isinstance(found, Scan | ArchiveScan):
        return found.record_batches(with_body=with_body, with_text=with_text)
    return batches_of(found, with_body=with_body, with_text=with_text)


def _table_writer(path: Path, form: str, arguments: Namespace) -> Write:
    """Return what writes messages to a file of Arrow batches; memory holds about `_GROUP_BYTES`.

    :raises PackageMissing: without pyarrow.
    :raises BadInput: naming a column that there is not.
    """
    package("pyarrow", "arrow", f"export as {form}")
    names = schema().names
    # The body as text would only repeat it.
    asked = [name for name in names if name not in TEXT_COLUMNS]
    if arguments.fields:
        asked = [name.strip() for name in arguments.fields.split(",")]
    columns = [NAMES.get(name, name) for name in asked]
    for column in columns:
        if column not in names:
            meant = suggestion(column, names) or f"; there are {', '.join(names)}"
            raise BadInput(f"--fields: there is no column {column[:80]!r}{meant}")
    parquet = package("pyarrow.parquet", "arrow", "Parquet")
    ipc = package("pyarrow.ipc", "arrow", "Arrow")

    def write(found: Iterable[MessageExt]) -> int:
        count = size = 0
        group: list[pa.RecordBatch] = []
        kept = pa.schema([schema().field(name) for name in columns])
        with (
            parquet.ParquetWriter(path, kept, compression="zstd")
            if form == "parquet"
            else ipc.new_file(str(path), kept)
        ) as writer:
            with_body, with_text = (
                not names.isdisjoint(columns) for names in (_BODIES, set(TEXT_COLUMNS))
            )
            for batch in batches_in(found, with_body=with_body, with_text=with_text):
                group.append(batch.select(columns))
                size += group[-1].nbytes
                count += batch.num_rows
                if size >= _GROUP_BYTES:
                    # Each write is a row group of Parquet.
                    writer.write_table(pa.Table.from_batches(group))
                    group, size = [], 0
            if group:
                writer.write_table(pa.Table.from_batches(group))
        return count

    return write


def _text_writer(path: Path, form: str, arguments: Namespace) -> Write:
    """Return what writes messages as CSV or JSON lines, as `rocketlens find` prints them."""
    output = MessageOutput(
        form, fields=arguments.fields, bodies=BodyView.of(arguments), is_terminal=False
    )
    print_message = output.line_printer

    def write(found: Iterable[MessageExt]) -> int:
        count = 0
        with (
            path.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
            redirect_stdout(file),
        ):
            output.print_header()
            for message in found:
                print_message(message)
                count += 1
        return count

    return write


INCOMPLETE: Final = ".incomplete"
"""Suffix of the file that an incomplete answer is written to."""


def add_overwrite(parser: ArgumentParser) -> None:
    """Add ``--overwrite``."""
    option(parser, "--overwrite", "replace FILE if it exists")


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
        self.partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

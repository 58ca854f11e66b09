"""``rocketlens export``: writes messages to a Parquet, Arrow, CSV or JSON lines file."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from rocketlens.cli.options import add_max, add_overwrite, option
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
"""Size of a row group."""
_BODIES: Final = frozenset({"body", "body_error", *TEXT_COLUMNS})
Write = Callable[[Iterable[MessageExt]], int]
"""Writes messages and returns their number."""
EXAMPLES: Final = """
rocketlens export shop.parquet -t Shop --since 1d  # the last day of a topic, as Parquet
# messages by values in their decoded bodies
rocketlens export paid.jsonl -t 'order-*' --where 'body.$.amount > 100' --body decoded
rocketlens export all.arrow --store /data/rocketmq/store  # a whole store
# from a running cluster, for a spreadsheet
rocketlens export pay.csv -t 'order-*' --fields time,keys,body -n 127.0.0.1:9876
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "FILE appears when it is complete. An incomplete answer is written to FILE"
        f"{INCOMPLETE}\ninstead, with exit code 3, and FILE is not changed.\n"
        f"{SEARCH_EXIT_CODES}"
    )
    parser.add_argument(
        "file", metavar="FILE", help="the file to write: .parquet, .arrow, .csv or .jsonl"
    )
    add_selection(parser)
    add_max(parser)
    add = partial(option, parser)
    add("--as", "the format (default: by the suffix of FILE)", dest="form", choices=_FORMATS)
    add(
        "--fields A,B",
        "only these columns, in this order; in CSV and JSON lines those of `rocketlens find`",
    )
    add("--body", "bodies in CSV and JSON lines, as for `rocketlens find`", choices=BODY_FORMS)
    add_overwrite(parser)


def run(arguments: Namespace) -> ExitCode:
    path = Path(arguments.file)
    form = arguments.form or _SUFFIXES.get(path.suffix.lower())
    request = selected(arguments, max_num=arguments.max)
    if form is None:
        raise BadInput(
            f"the suffix of {path.name[:80]!r} is none of {', '.join(_SUFFIXES)}: give --as FORMAT"
        )
    if form in _TABLES and arguments.body:
        raise BadInput(f"--body is for CSV and JSON lines: {form} contains the bytes")
    with OutputFile(arguments.file, overwrite=arguments.overwrite) as file:
        writer = _table_writer if form in _TABLES else _text_writer
        write = writer(file.partial, form, arguments)
        answer, count = read_into(write, request, choose_source(arguments))
        # With --max the newest N are the whole answer.
        is_whole = answer.complete and (not answer.truncated or count == arguments.max)
        target = file.finish(is_whole=is_whole)
    print_notes(answer, count, verbose=arguments.verbose)
    note(f"wrote {counted(count, 'message')} to {target}")
    if not is_whole:
        note(f"{path} was not written, because messages are missing")
        return ExitCode.INCOMPLETE
    return ExitCode.OK if count else ExitCode.NO


def read_into(write: Write, request: "FindRequest", source: ChosenSource) -> tuple[Answer, int]:
    """Pass the messages of a request to `write`; return what was searched and their number.

    Messages of a store come in log order, of an archive file by file, of a cluster in order of
    store time. Searches by key, searches of several sources and the newest N are held in memory
    first.

    :raises TopicNotFound: if no message was found and a topic does not exist.
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
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.query.lookup.by_time import Scan

    if isinstance(found, Scan | ArchiveScan):
        return found.record_batches(with_body=with_body, with_text=with_text)
    return batches_of(found, with_body=with_body, with_text=with_text)


def _table_writer(path: Path, form: str, arguments: Namespace) -> Write:
    """Return a writer of Arrow batches; it holds about `_GROUP_BYTES` in memory.

    :raises PackageMissing: without pyarrow.
    :raises BadInput: if --fields names an unknown column.
    """
    package("pyarrow", "arrow", f"export as {form}")
    names = schema().names
    # Text columns repeat the body.
    asked = [name for name in names if name not in TEXT_COLUMNS]
    if arguments.fields:
        asked = [name.strip() for name in arguments.fields.split(",")]
    columns = [NAMES.get(name, name) for name in asked]
    for column in columns:
        if column not in names:
            meant = suggestion(column, names) or f"; the columns are {', '.join(names)}"
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


class OutputFile:
    """A file that is written as `partial`; `finish` gives it its name."""

    def __init__(self, name: str, *, overwrite: bool) -> None:
        """:raises BadInput: if the file exists without `overwrite`, or has no directory."""
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
        """Sync and rename the file; an incomplete one gets the suffix `INCOMPLETE`. Return its
        path.

        :raises BadInput: if another program created the file; the result keeps the other name.
        """
        _sync(self.partial)
        other = self.path.with_name(self.path.name + INCOMPLETE)
        if is_whole and not self._overwrite:
            try:
                # Unlike a rename, this fails if the file exists.
                os.link(self.partial, self.path)
            except FileExistsError:
                self.partial.replace(other)
                raise BadInput(
                    f"{self.path} was made by another program meanwhile, and is kept: the complete "
                    f"result is {other}"
                ) from None
            except OSError:
                # The file system has no hard links.
                self.partial.replace(self.path)
        else:
            self.partial.replace(self.path if is_whole else other)
        _sync(self.path.parent)
        return self.path if is_whole else other

    def __exit__(self, *_: object) -> None:
        self.partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

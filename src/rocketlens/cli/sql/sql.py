"""``rocketlens sql``: runs a SELECT over the messages of a store or a cluster, with DuckDB."""

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rocketlens.cli.export import OutputFile, batches_in
from rocketlens.cli.find import exit_code
from rocketlens.cli.options import add_overwrite, option
from rocketlens.cli.printing import print_rows
from rocketlens.cli.source import ChosenSource, add_selection, choose_source, selected
from rocketlens.cli.sql.sql_plan import TABLE, SqlPlan, plan_of
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.late import pa
from rocketlens.model.answer import Answer
from rocketlens.model.arrow import package, schema
from rocketlens.model.fields import COLUMNS, NAMES
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.message_values import csv_row, safe_cell, utf8_text
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note
from rocketlens.terminal.progress import SearchProgress

if TYPE_CHECKING:
    from rocketlens.query.request import FindRequest

EXAMPLES: Final = """
rocketlens sql "select topic, count(*) from messages group by 1"  # messages per topic
# by a value in JSON bodies
rocketlens sql "select body_json->>'city' city, count(*) n from messages where topic = 'Shop' \
group by 1"
rocketlens sql --store /data/rocketmq/store  # a prompt; queries end with ;
# by a key, in a running cluster
rocketlens sql "select * from messages where 'ORDER-42' = any(keys)" -o json -n 127.0.0.1:9876
"""
_SETTINGS: Final = {
    "TimeZone": "'UTC'",
    # A query reads no variables of this program and nothing from the network.
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
}
_NO_FILES: Final = "enable_external_access"
"""Off once the table is registered, so that queries read no files."""
_FILE: Final = re.compile(r'Permission Error: Cannot access (?:file|directory) "(?P<path>[^"]*)"')
_MEMORY_PERCENT: Final = 25
"""Part of the machine's memory; DuckDB's default is 80."""
_MEMORY: Final = re.compile(r"[0-9]+(?:\.[0-9]+)? ?(?:%|[KMGT]i?B)", re.IGNORECASE)
_READ: Final = "rocketlens_messages"
_STREAM: Final = "rocketlens_stream"
_VIEW: Final = (
    "CREATE TEMP {kind} {table} AS SELECT * REPLACE (TRY(decode(body)) AS body_text, "
    "TRY_CAST(TRY(decode(body)) AS JSON) AS body_json) FROM {read}"
)
_MICROSECONDS: Final = "SELECT epoch_us(TRY_CAST(? AS TIMESTAMPTZ))"
"""Converts text as DuckDB does in comparisons with a timestamp."""
_SCALAR: Final = (
    "SELECT count(*) FROM (SELECT function_name FROM duckdb_functions() "
    "WHERE list_contains(?, function_name) GROUP BY 1 HAVING bool_and(function_type = 'scalar'))"
)
_NO_COLUMN: Final = re.compile(r'Binder Error: Referenced (?:column|table) "(?P<name>[^"]*)"')
_NO_TABLE: Final = re.compile(r"Catalog Error: Table with name (?P<name>\S+) does not exist")
_NULL: Final = "NULL"
_OUTPUTS: Final = ("table", "csv", "json", "jsonl", "parquet")
_PROMPT: Final = "messages> "
_MORE: Final = "     ...> "
_ENDS: Final = frozenset({".exit", ".quit", "exit", "quit"})
_HELP: Final = "a SELECT from messages, which ends with ; (.quit or Ctrl-D ends)"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "The table is messages. DESCRIBE messages lists its columns and reads no messages.\n"
        "body_text and body_json are the body, or NULL if it is not UTF-8 or JSON. Conditions on\n"
        "topic, tags, store_time, store_timestamp_ms and keys in the WHERE of a plain SELECT, and\n"
        "the options here, limit what is read; so does LIMIT, with ORDER BY store_time or without\n"
        "an order. A query reads and writes no files.\n"
        f"Needs the extra sql.\n{SEARCH_EXIT_CODES}"
    )
    parser.add_argument(
        "query",
        metavar="SELECT",
        nargs="?",
        help="one SELECT, in DuckDB's dialect (default: read queries at a prompt, or one from "
        "standard input)",
    )
    add_selection(parser)
    add = partial(option, parser)
    add("-o --output", "how to print the result", choices=_OUTPUTS, default="table")
    add("--to FILE", "the file of -o parquet")
    add_overwrite(parser)
    add(
        "--memory SIZE",
        "memory for DuckDB, such as 8GB or 60%%, before it uses temporary files "
        f"(default: {_MEMORY_PERCENT}%% of the machine's)",
        default=f"{_MEMORY_PERCENT}%",
    )


def run(arguments: Namespace) -> ExitCode:
    if (arguments.output == "parquet") != (arguments.to is not None):
        raise BadInput("-o parquet and --to FILE go together")
    if arguments.overwrite and arguments.to is None:
        raise BadInput("--overwrite is for the FILE of --to")
    if not _MEMORY.fullmatch(arguments.memory):
        raise BadInput(
            f"invalid --memory {arguments.memory[:40]!r}: expected a size such as 8GB or 60%"
        )

    duckdb = package("duckdb", "sql", "rocketlens sql")
    package("pyarrow", "sql", "rocketlens sql")
    if arguments.query is None and sys.stdin.isatty():
        return run_prompt(lambda query: _run_query(query, arguments, duckdb))
    return _run_query(arguments.query or sys.stdin.read(), arguments, duckdb)


def _run_query(query: str, arguments: Namespace, duckdb: Any) -> ExitCode:
    """Run one query, and print or write its result."""
    if arguments.to is None:
        answer, count = _execute(query, arguments, duckdb, None)
    else:
        with OutputFile(arguments.to, overwrite=arguments.overwrite) as file:
            answer, count = _execute(query, arguments, duckdb, file.partial)
            is_whole = answer is None or answer.complete
            target = file.finish(is_whole=is_whole)
        note(f"wrote {counted(count, 'row')} to {target}")
        if not is_whole:
            note(f"{file.path} was not written, because messages are missing")
    if answer is None:
        return ExitCode.OK
    print_notes(answer, count, "row", verbose=arguments.verbose)
    return exit_code(answer, count)


def _execute(
    query: str, arguments: Namespace, duckdb: Any, path: Path | None
) -> tuple[Answer | None, int]:
    """Print the result of a query, or write it to `path` as Parquet.

    Return what was searched, None if nothing was, and the number of rows.

    :raises BadInput: if the text is not one SELECT, or DuckDB rejects it.
    """
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="rocketlens-sql-") as directory,
        duckdb.connect() as connection,
    ):
        for name, value in _SETTINGS.items():
            connection.execute(f"SET {name} = {value}").fetchall()
        connection.execute("SET memory_limit = ?", [arguments.memory]).fetchall()
        # DuckDB's default is the current directory. Queries can read this one.
        connection.execute("SET temp_directory = ?", [directory]).fetchall()
        serialized = _value(connection, "SELECT json_serialize_sql(?)", query)
        plan = plan_of(
            serialized,
            lambda text: _value(connection, _MICROSECONDS, text),
            lambda names: _value(connection, _SCALAR, [*names]) == len(names),
        )
        if arguments.topic and plan.topics:
            # Options and query name topics: the LIMIT applies after both filters.
            plan = plan._replace(limit=None)
        messages = None
        try:
            with ExitStack() as opened:
                if plan.describes:
                    connection.register(_READ, schema().empty_table())
                    view = _VIEW.format(kind="TABLE", table=TABLE, read=_READ)
                    connection.execute(view).fetchall()
                    connection.unregister(_READ)
                elif plan.uses_table:
                    messages = _Messages(choose_source(arguments), selected(arguments, plan), plan)
                    opened.enter_context(messages.registered(connection, _READ))
                    connection.execute(_VIEW.format(kind="VIEW", table=TABLE, read=_READ))
                connection.execute(f"SET {_NO_FILES} = false").fetchall()
                result = _read_first_batch(connection.sql(query).to_arrow_reader(16_384))
                if messages is not None:
                    messages.check_topics()
                count = _print(result, arguments) if path is None else _write(result, path)
                return None if messages is None else messages.answer(), count
        except duckdb.OutOfMemoryException as error:
            raise BadInput(
                f"the query needs more memory than --memory {arguments.memory}: give more, such as "
                "8GB or 60%, or let it keep fewer rows"
            ) from error
        except duckdb.Error as error:
            failure = None if messages is None else messages.failure
            raise failure or BadInput(_reason(str(error))) from error


def _read_first_batch(result: "pa.RecordBatchReader") -> "pa.RecordBatchReader":
    """Read the first batch, so that an aggregate has read all of its input."""
    first = list(islice(result, 1))
    return pa.RecordBatchReader.from_batches(result.schema, chain(first, result))


def _reason(text: str) -> str:
    """Return DuckDB's error in one line, without its suggestions of internal tables."""
    file = _FILE.match(text)
    if file is not None:
        return f"a query reads the table {TABLE}, not files: {file['path']}"
    column = _NO_COLUMN.match(text)
    if column is not None:
        synonyms = {name: field for name, field in NAMES.items() if field in COLUMNS}
        meant = suggestion(column["name"], COLUMNS, {**synonyms, "prop": "properties"})
        name = f"there is no column or table {column['name']!r}"
        return name + (meant or "; DESCRIBE messages lists the columns")
    unknown = _NO_TABLE.match(text)
    if unknown is None:
        return text.partition("\n\n")[0].replace("\n", " ")
    meant = suggestion(unknown["name"], [TABLE])
    return f"there is no table {unknown['name']!r}{meant or f': the table is {TABLE}'}"


def _value(connection: Any, query: str, argument: str | list[str]) -> Any:
    # Fetch all rows: a connection is busy until the last one.
    ((value,),) = connection.execute(query, [argument]).fetchall()
    return value


class _Messages:
    """The messages that a query reads: streamed, or kept if the query reads them repeatedly."""

    def __init__(self, source: ChosenSource, request: "FindRequest", plan: SqlPlan) -> None:
        self._source: Final = source
        self._request = request
        self._plan: Final = plan
        self._is_scan = request.text is None and not source.is_merged
        self._is_read = False
        self._count = 0
        self._answer: Answer | None = None
        self._scan: Any = None
        self.failure: RocketLensError | None = None
        """The error of the source; DuckDB raises its own with only the text."""

    @contextmanager
    def registered(self, connection: Any, name: str) -> Iterator[None]:
        """Register the table."""
        is_streamed = self._plan.is_streamed and self._source.is_local
        with ExitStack() as opened:
            progress = None if is_streamed else opened.enter_context(SearchProgress())
            self._answer = self._resolve_limit()
            if self._answer is not None:
                self._is_scan = False
            elif self._is_scan:
                scan = self._source.scan(self._request, progress, checks_topics=False)
                self._scan = opened.enter_context(scan)
            else:
                self._answer = self._source.find(self._request)
            batches = pa.RecordBatchReader.from_batches(schema(), self._batches())
            if is_streamed:
                connection.register(name, batches)
            else:
                connection.register(_STREAM, batches)
                connection.execute(f"CREATE TEMP TABLE {name} AS FROM {_STREAM}").fetchall()
            if progress is not None:
                if progress.is_interrupted:
                    raise KeyboardInterrupt
                progress.close()
            yield

    def _resolve_limit(self) -> Answer | None:
        """Return the messages that a LIMIT needs, or None after narrowing the request.

        A store finds the oldest or newest messages by log position, not by time, which differ if a
        clock was set back. So for an order by time they only bound the times to read.
        """
        limit, source = self._plan.limit, self._source
        is_store = source.is_local and source.archive is None
        if (
            limit is None
            or self._request.text is not None
            or (source.is_local and not limit.column)
        ):
            return None
        is_in_log = limit.column == "physical_offset"
        if is_in_log and not is_store:
            return None
        request = replace(
            self._request, max_num=limit.rows, oldest=limit.oldest, only_delivered=True
        )
        if limit.oldest and source.cluster is not None and self._is_scan:
            # A find would read all. The time of any messages is a bound: the oldest are before it.
            with source.scan(replace(request, max_num=None), checks_topics=False) as scan:
                times = [each.store_timestamp_ms for each in islice(scan, limit.rows)]
            if len(times) == limit.rows:
                self._request = replace(self._request, end=max(times))
            return None
        answer = source.find(request)
        times = [each.store_timestamp_ms for each in answer.messages]
        if len(times) < limit.rows:
            # These are all, unless the answer was cut.
            return None if answer.truncated else answer
        if is_in_log or (limit.is_only and not is_store):
            return replace(answer, truncated=False)
        if limit.oldest:
            self._request = replace(self._request, end=max(times))
        else:
            self._request = replace(self._request, begin=min(times))
        return None

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        found = self._scan if self._answer is None else self._answer.messages
        try:
            for batch in batches_in(found, with_body=self._plan.with_body, with_text=False):
                self._count += batch.num_rows
                yield batch
        except RocketLensError as error:
            self.failure = error
            raise
        self._is_read = True

    def check_topics(self) -> None:
        """:raises TopicNotFound: if no message was read and a topic does not exist."""
        if self._is_read and self._is_scan:
            self._source.check_topics(self._request.topics, self._count)

    def answer(self) -> Answer:
        """Return what was searched; the part that a LIMIT needs counts as complete."""
        if self._answer is not None:
            return replace(self._answer, messages=())
        return Answer("", (), self._scan.coverage if self._is_read else self._scan.coverage_so_far)


def _print(result: "pa.RecordBatchReader", arguments: Namespace) -> int:
    """Print the rows of a result; return their number."""
    names = result.schema.names
    columns = ([column.to_pylist() for column in batch.columns] for batch in result)
    rows = (row for each in columns for row in zip(*each, strict=True))
    count = 0
    if arguments.output == "table":
        cells = [[_NULL if value is None else _cell(value) for value in row] for row in rows]
        if cells:
            print_rows(names, cells, as_given=True)
        return len(cells)
    if arguments.output == "csv":
        for number, row in enumerate(chain([names], rows)):
            texts = [safe_cell(_cell(value)) for value in row]
            if sys.stdout.isatty():
                texts = [printable(each, keep="\n\t") for each in texts]
            sys.stdout.write(csv_row(texts))
            count = number
        return count
    is_array = arguments.output == "json"
    sys.stdout.write("[" if is_array else "")
    for count, row in enumerate(rows, 1):
        line = json_line({n: _json_value(v) for n, v in zip(names, row, strict=True)})
        sys.stdout.write(
            ("," if is_array and count > 1 else "") + line + ("" if is_array else "\n")
        )
    sys.stdout.write("]\n" if is_array else "")
    return count


def _write(result: "pa.RecordBatchReader", path: Path) -> int:
    parquet = package("pyarrow.parquet", "sql", "Parquet")
    count = 0
    with parquet.ParquetWriter(path, result.schema, compression="zstd") as writer:
        for batch in result:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _json_value(value: Any) -> Any:
    """Return a value for JSON; bytes as text, or in base64 if they are not UTF-8."""
    if isinstance(value, bytes):
        text = utf8_text(value)
        return {"base64": b64encode(value).decode("ascii")} if text is None else text
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _json_value(each) for name, each in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and all(isinstance(each, tuple) and len(each) == 2 for each in value)
        if is_map:
            return {str(name): _json_value(each) for name, each in value}
        return [_json_value(each) for each in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _cell(value: Any) -> Any:
    shown = _json_value(value)
    if isinstance(value, datetime) and sys.stdout.isatty():
        return str(value)
    if isinstance(value, bytes) and not isinstance(shown, str):
        return f"0x{value.hex()}"
    is_plain = isinstance(shown, str | int | float | None)
    return shown if is_plain else json.dumps(shown, ensure_ascii=False)


def run_prompt(run_query: Callable[[str], object]) -> ExitCode:
    """Run each query typed at a prompt; errors are printed.

    Ctrl-C discards the input, or ends the running query.
    """
    with suppress(ImportError):
        # Line editing and history.
        import readline  # noqa: F401 - the import enables it
    note(_HELP)
    typed = ""
    while True:
        try:
            line = input(_MORE if typed else _PROMPT)
            if not typed and line.strip().rstrip(";").lower() in _ENDS:
                return ExitCode.OK
            typed = f"{typed}{line}\n" if typed or line.strip() else ""
            if not typed.rstrip().endswith(";"):
                continue
            query, typed = typed.rstrip().rstrip(";"), ""
            if query.strip():
                run_query(query)
        except EOFError:
            print()
            return ExitCode.OK
        except KeyboardInterrupt:
            typed = ""
            print()
        except RocketLensError as error:
            note(str(error))

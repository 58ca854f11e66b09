"""Prints messages and rows as tables, CSV, JSON or a template."""

import re
import shutil
import sys
import unicodedata
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice
from typing import Final, NamedTuple, Self

from rocketlens.cli.options import option
from rocketlens.errors import BadInput
from rocketlens.model.answer import Coverage
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.message_values import (
    AS_IT_IS,
    BODY_FORMS,
    PIPED_COLUMNS,
    BodyView,
    Template,
    csv_row,
    safe_cell,
    shown,
    value_names,
)
from rocketlens.terminal.output import (
    BOLD,
    COLOUR_CHOICES,
    DIM,
    MATCH,
    choose_colour,
    coloured,
    has_colour,
    iso_text,
    size_text,
    time_text,
    zone_text,
)

# On a terminal. Ids, positions and the searched key are never cut, because people copy them.
_MAX_WIDTHS: Final = {"TAGS": 16, "KEYS": 32}
_MIN_WIDTH: Final = 8
NOT_KNOWN: Final = "?"
_GAP: Final = 2
_FITTED_ROWS: Final = 200
"""Messages that determine the widths of columns."""
_MIN_BODY_COLUMNS: Final = 24


class Moment(NamedTuple):
    """A time in a row of `print_rows`."""

    epoch_ms: int


def print_rows(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    has_titles: bool = True,
    as_given: bool = False,
) -> None:
    """Print rows in columns on a terminal, else as tab-separated values; None is printed as ``?``.

    Columns of numbers are aligned to the right. On a terminal, times are printed to the second with
    the zone in the title, empty columns are left out, and columns that do not fit continue on
    indented lines. `as_given` keeps the case of titles and the empty columns.
    """
    is_terminal = sys.stdout.isatty()
    values = [tuple(row) for row in rows]
    if not is_terminal:
        lines = [tuple(titles)] if has_titles else []
        for line in [*lines, *(tuple(map(_piped_cell, row)) for row in values)]:
            print("\t".join(line))
        return
    columns = list(zip(*values, strict=True)) if values else [()] * len(titles)
    filled = [as_given or not column or any(cell != "" for cell in column) for column in columns]
    titles, columns = list(compress(titles, filled)), list(compress(columns, filled))
    shown = [
        _column(title if as_given else title.upper(), column)
        for title, column in zip(titles, columns, strict=True)
    ]
    is_number = [
        any(isinstance(cell, int) for cell in column)
        and all(isinstance(cell, int | None) for cell in column)
        for column in columns
    ]
    widths = [max(map(cells, column)) for column in shown]
    folds = list(_folds(widths, shutil.get_terminal_size((100, 24)).columns))
    for number, line in enumerate(zip(*shown, strict=True)):
        if not number and not has_titles:
            continue
        fitted = [
            text.rjust(width) if right else padded(text, width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        ]
        for begin, end in folds:
            text = (" " * _GAP * bool(begin) + (" " * _GAP).join(fitted[begin:end])).rstrip()
            if text or not begin:
                print(text if number else coloured(text, BOLD, sys.stdout))


def print_csv(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV. Unknown values are empty, and no cell is a formula."""
    sys.stdout.write(csv_row(titles))
    for row in rows:
        values = (iso_text(each.epoch_ms) if isinstance(each, Moment) else each for each in row)
        sys.stdout.write(csv_row([safe_cell(each) for each in values]))


def print_list(output: str, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as the options of `add_list_output` say; ``json`` prints a line per row."""
    if output == "csv":
        print_csv(titles, rows)
    elif output == "json":
        for row in rows:
            print(json_line(dict(zip(titles, row, strict=True))))
    else:
        values = list(rows)
        if values:
            print_rows(titles, values)


def print_listing(
    name: str, values: Sequence[object], coverage: Iterable[Coverage], **fields: object
) -> None:
    """Print a list and its coverage as one JSON object."""
    print(json_line({**fields, name: values, "coverage": [*coverage]}))


def _column(title: str, column: Sequence[object]) -> list[str]:
    """Return the texts of a column for a terminal, the title first."""
    zones = {zone_text(cell.epoch_ms) for cell in column if isinstance(cell, Moment)}
    zone = zones.pop() if len(zones) == 1 else ""
    texts = [
        _moment_text(cell, zone) if isinstance(cell, Moment) else _piped_cell(cell)
        for cell in column
    ]
    return [f"{title} ({zone})" if zone else title, *texts]


def _moment_text(moment: Moment, zone: str) -> str:
    """Return a time to the second, with its zone if `zone` is empty."""
    text, dot, _ = time_text(moment.epoch_ms).partition(".")
    return text if zone or not dot else f"{text}{zone_text(moment.epoch_ms)}"


def _piped_cell(cell: object) -> str:
    if cell is None:
        return NOT_KNOWN
    return iso_text(cell.epoch_ms) if isinstance(cell, Moment) else printable(str(cell))


def _folds(widths: Sequence[int], columns: int) -> Iterator[tuple[int, int]]:
    """Return the first and last column of each line of a row."""
    begin = used = 0
    for number, width in enumerate(widths):
        if number > begin and used + width > columns:
            yield begin, number
            begin, used = number, _GAP
        used += width + _GAP
    yield begin, len(widths)


def one_line(message: MessageExt, bodies: BodyView = AS_IT_IS) -> str:
    """Return a message as one line for a terminal."""
    time, position, tags, keys, size = _row(message, zone_text(message.store_timestamp_ms))
    start = bodies.preview(message)
    parts = (time, position, tags, keys, printable(message.msg_id), size, start)
    return (" " * _GAP).join(filter(None, parts))


def terminal_lines(
    messages: Iterable[MessageExt],
    columns: int,
    searched: str | None = None,
    *,
    has_titles: bool = True,
    bodies: BodyView = AS_IT_IS,
) -> Iterable[str]:
    """Yield the lines of a table for a terminal of `columns` columns.

    Rows that do not fit put the id and the start of the body on a second line. `searched` is
    highlight in keys, positions and ids, and never cut. Column widths fit all messages of a
    sequence, else the first `_FITTED_ROWS`.
    """
    coming: Iterator[MessageExt] = iter(())
    first = messages if isinstance(messages, Sequence) else ()
    if not isinstance(messages, Sequence):
        coming = iter(messages)
        first = list(islice(coming, _FITTED_ROWS))
    if not first:
        return
    zones = {zone_text(message.store_timestamp_ms) for message in first}
    zone = zones.pop() if len(zones) == 1 else ""
    titles = [f"TIME ({zone})" if zone else "TIME", "POSITION", "TAGS", "KEYS", "SIZE"]
    # Rows are created twice, because keeping those of a large answer would double its memory.
    widths = [cells(title) for title in titles]
    id_width = match_width = 0
    for message in first:
        row = _row(message, zone)
        for number, cell in enumerate(row):
            widths[number] = max(widths[number], cells(cell))
        id_width = max(id_width, cells(printable(message.msg_id)))
        if searched is not None and searched in message.keys:
            match_width = cells(printable(searched)) + len(" …") * (len(message.keys) > 1)
    keys = titles.index("KEYS")
    for number, title in enumerate(titles):
        widths[number] = min(_MAX_WIDTHS.get(title, 1 << 20), widths[number])
    widths[keys] = max(widths[keys], match_width)
    used = sum(widths) + _GAP * len(widths)
    one_line = used + id_width + _GAP + _MIN_BODY_COLUMNS <= columns
    if not one_line:
        least = {"KEYS": max(_MIN_WIDTH, match_width), "TAGS": _MIN_WIDTH}
        _narrow(widths, titles, least, used - _GAP - columns)
    head = _line(titles, widths)
    if one_line and has_titles:
        yield coloured(f"{head}  {fit('ID', id_width)}  BODY", BOLD, sys.stdout)
    elif has_titles:
        yield coloured(head, BOLD, sys.stdout)
        yield coloured("  ID, start of the body", BOLD, sys.stdout)
    for message in chain(first, coming):
        row, text = _row(message, zone), printable(message.msg_id)
        if cells(row[keys]) > widths[keys] and searched in message.keys:
            row[keys] = printable(" ".join(sorted(message.keys, key=searched.__ne__)))
        body = bodies.preview(message)
        if one_line:
            line = f"{_line(row, widths)}  {padded(text, id_width)}"
            room = max(columns - cells(line) - _GAP, 1)
            yield f"{highlight(line, searched)}  {cut(body, room)}"
        else:
            yield highlight(_line(row, widths), searched)
            room = columns - max(id_width, cells(text)) - 2 * _GAP
            start = f"  {cut(body, room)}" if room >= _MIN_BODY_COLUMNS // 2 else ""
            line = highlight(f"  {padded(text, id_width)}", searched, DIM)
            yield line + (coloured(start, DIM, sys.stdout) if start else "")


def highlight(text: str, searched: str | None, code: str = "") -> str:
    """Return text in which whole words equal to `searched` stand out."""
    if not has_colour(sys.stdout):
        return text
    word = re.escape(printable(searched)) if searched else "(?!)"
    parts = re.split(rf"(?<!\S)({word})(?!\S)", text, flags=re.IGNORECASE)
    plain = (lambda part: coloured(part, code, sys.stdout)) if code else str
    return "".join(
        coloured(part, MATCH, sys.stdout) if number % 2 else part and plain(part)
        for number, part in enumerate(parts)
    )


def _row(message: MessageExt, zone: str) -> list[str]:
    """Return the cells of a row; a time has its zone if that differs from `zone`."""
    moment = message.store_timestamp_ms
    own_zone = zone_text(moment)
    return [
        time_text(moment) if own_zone == zone else f"{time_text(moment)}{own_zone}",
        printable(message.position),
        printable(message.tags or ""),
        printable(" ".join(message.keys)),
        size_text(len(message.body)),
    ]


def _narrow(
    widths: list[int], titles: Sequence[str], least: Mapping[str, int], excess: int
) -> None:
    """Narrow columns in the order of `least`, each to its minimum, by `excess` in total."""
    for title, minimum in least.items():
        number = titles.index(title)
        less = max(0, min(excess, widths[number] - minimum))
        widths[number] -= less
        excess -= less


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    *texts, size = row
    *text_widths, size_width = widths
    # A position wider than its column takes space from the keys.
    excess = max(0, cells(texts[1]) - text_widths[1])
    text_widths[-1] = max(text_widths[-1] - excess, min(text_widths[-1], _MIN_WIDTH))
    # Time and position are never cut.
    fitted = [
        padded(text, width) if number < 2 else fit(text, width)
        for number, (text, width) in enumerate(zip(texts, text_widths, strict=True))
    ]
    return (" " * _GAP).join([*fitted, " " * (size_width - len(size)) + size])


def cells(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"  # changes the emoji before it
    if is_skin_tone or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """Return text of at most `width` columns; ``…`` marks a cut."""
    if cells(text) <= width:
        return text
    room = width - 1
    kept = []
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def fit(text: str, width: int) -> str:
    return padded(cut(text, width), width)


def padded(text: str, width: int) -> str:
    """Pad to at least `width` columns."""
    return text + " " * (width - cells(text))


OUTPUTS: Final = ("table", "csv", "json", "jsonl")
_HEADED: Final = frozenset({"table", "csv"})
NO_VALUE: Final = "-"
"""An unknown value in a table."""


def add_output(
    parser: ArgumentParser,
    *,
    outputs: Sequence[str] = OUTPUTS,
    help_text: str = "table (default; tab-separated when piped), CSV, one JSON object, or one JSON "
    "line per message",
) -> None:
    add = partial(option, parser)
    add("-o --output", help_text, choices=outputs, default="table")
    add(
        "--fields A,B",
        "only these values, in this order: time, topic, tags, keys, id, position, size, body, "
        "other fields of a message, prop.NAME for a property, or body.$.PATH",
    )
    add(
        "--format TEMPLATE",
        "print each message as this text, with names of values in braces: "
        "'{time} {keys} {body}'; \\n, \\t and \\0 are escapes, and a newline follows unless it "
        "ends with \\n or \\0",
    )
    add("--no-header", "without the line that names the columns")
    add(
        "--body",
        "bodies as text (if not UTF-8: 0x and hex, in JSON base64), as JSON, in base64, or "
        "decoded by their format (default: text; in tables the start of it, decoded if it is "
        "not UTF-8)",
        choices=BODY_FORMS,
    )
    add_colour(parser)


def add_colour(parser: ArgumentParser) -> None:
    option(
        parser,
        "--color",
        "colour always, never, or on terminals unless NO_COLOR is set (default)",
        choices=COLOUR_CHOICES,
        default="auto",
    )


class MessageOutput:
    """Prints messages as the options of `add_output` say."""

    def __init__(
        self,
        output: str,
        *,
        fields: str | None = None,
        template: str | None = None,
        has_header: bool = True,
        bodies: BodyView = AS_IT_IS,
        searched: str | None = None,
        more: Mapping[str, Callable[[MessageExt], str | None]] | None = None,
        is_terminal: bool | None = None,
    ) -> None:
        """Use the values of the options; `searched` is highlight.

        `more` are additional values by name: columns before the body, and members in JSON.
        `is_terminal` None: ask stdout.

        :raises BadInput: if options exclude each other, or a field is unknown.
        """
        self._searched: Final = searched
        self._bodies: Final = bodies
        self._output: Final = output
        self._is_terminal: Final = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._more: Final = more or {}
        self._names = None
        if fields is not None:
            self._names = value_names(fields, self._more)
        elif self._more and output in _HEADED and template is None:
            self._names = (*PIPED_COLUMNS[:-1], *self._more, PIPED_COLUMNS[-1])
        self._template: Final = None if template is None else Template(template)
        self._needs_header = has_header and output in _HEADED
        if self._template and (fields or output != "table"):
            raise BadInput("--format excludes --fields and -o")
        if not has_header and (self._template or output not in _HEADED):
            raise BadInput("--no-header: only tables and CSV have a header")

    @classmethod
    def of(
        cls,
        arguments: Namespace,
        searched: str | None = None,
        more: Mapping[str, Callable[[MessageExt], str | None]] | None = None,
    ) -> Self:
        """Use the options of a command line, and choose the colour."""
        choose_colour(arguments.color)
        return cls(
            arguments.output,
            fields=arguments.fields,
            template=arguments.format,
            has_header=not arguments.no_header,
            bodies=BodyView.of(arguments),
            searched=searched,
            more=more,
        )

    @property
    def printer(self) -> Callable[[MessageExt], None] | None:
        """The function that prints one message; None for terminal tables and one JSON object."""
        if self._template:
            return partial(self._print_template, self._template)
        if self._output == "jsonl":
            return partial(self._write_json, end="\n")
        if self._output == "csv":
            return self._print_csv
        if self._output == "table" and not self._is_terminal:
            return self._print_tabbed
        return None

    @property
    def is_plain_json(self) -> bool:
        """Whether each message is printed whole, as a line of JSON."""
        return self._output == "jsonl" and not self._names and self._bodies.form in (None, "text")

    @property
    def line_printer(self) -> Callable[[MessageExt], None]:
        """The function that prints one message; on a terminal as one line without a header."""
        return self.printer or self._print_line

    def print_all(self, messages: Iterable[MessageExt]) -> None:
        """Print messages in any format except one JSON object."""
        printer = self.printer
        if printer:
            for message in messages:
                printer(message)
        elif self._names:
            rows = (
                [self._short(message, name) for name in self._names or ()] for message in messages
            )
            print_rows(self._names, rows, has_titles=self._needs_header)
        else:
            columns = shutil.get_terminal_size((100, 24)).columns
            for line in terminal_lines(
                messages,
                columns,
                self._searched,
                has_titles=self._needs_header,
                bodies=self._bodies,
            ):
                print(line)

    def print_object(self, fields: Mapping[str, object], messages: Iterable[MessageExt]) -> None:
        """Print one JSON object: `fields`, then the messages as its last member."""
        sys.stdout.write(f'{json_line(fields)[:-1]},"messages":[')
        for number, message in enumerate(messages):
            if number:
                sys.stdout.write(",")
            self._write_json(message, "")
        sys.stdout.write("]}\n")

    def _print_line(self, message: MessageExt) -> None:
        if self._names:
            print("  ".join(printable(str(self._short(message, name))) for name in self._names))
        else:
            columns = shutil.get_terminal_size((100, 24)).columns
            line = cut(one_line(message, self._bodies), columns)
            print(highlight(line, self._searched))

    def _print_template(self, template: Template, message: MessageExt) -> None:
        text = template.text(message, self._bodies)
        sys.stdout.write(printable(text, keep="\n\t\0") if self._is_terminal else text)

    def _write_json(self, message: MessageExt, end: str) -> None:
        from rocketlens.terminal.as_json import write_message

        more = {name: value_of(message) for name, value_of in self._more.items()}
        write_message(message, end, names=self._names, bodies=self._bodies, more=more)

    def _print_csv(self, message: MessageExt) -> None:
        self.print_header()
        cells = [
            safe_cell(
                self._more[name](message)
                if name in self._more
                else shown(message, name, self._bodies)
            )
            for name in self._names or PIPED_COLUMNS
        ]
        if self._is_terminal:
            cells = [printable(cell, keep="\n\t") for cell in cells]
        sys.stdout.write(csv_row(cells))

    def print_header(self) -> None:
        """Print the header of CSV once, if there is one."""
        if self._needs_header and self._output == "csv":
            self._needs_header = False
            sys.stdout.write(csv_row(self._names or PIPED_COLUMNS))

    def _print_tabbed(self, message: MessageExt) -> None:
        names = self._names or PIPED_COLUMNS
        if self._needs_header:
            self._needs_header = False
            print("\t".join(names))
        print("\t".join(printable(str(self._short(message, name))) for name in names))

    def _short(self, message: MessageExt, name: str) -> object:
        """Return a cell of a table; a body is cut unless --body chose its form."""
        if name in self._more:
            return self._more[name](message) or NO_VALUE
        if name == "body" and self._bodies.form is None:
            return self._bodies.preview(message)
        return shown(message, name, self._bodies)

"""How commands print messages: the options, and what prints them.

Table on a terminal, tab-separated values in a pipe, CSV, JSON, or a template of the user's own.
"""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.terminal.body_view import BODY_FORMS, BodyView
from rocketlens.terminal.output import COLOUR_CHOICES, choose_colour

if TYPE_CHECKING:
    from rocketlens.model.message import MessageExt

OUTPUTS: Final = ("table", "csv", "json", "jsonl")
_HEADED: Final = frozenset({"table", "csv"})
NO_VALUE: Final = "-"
"""In a table, a value that is not known."""


def add_output(
    parser: ArgumentParser,
    *,
    outputs: Sequence[str] = OUTPUTS,
    help_text: str = "table (default; tab-separated when piped), CSV, one JSON object, or one JSON "
    "line per message",
) -> None:
    """Add the options that say how messages are printed, for `MessageOutput`."""
    parser.add_argument("-o", "--output", choices=outputs, default="table", help=help_text)
    parser.add_argument(
        "--fields",
        metavar="A,B",
        help="only these values, in this order: time, topic, tags, keys, id, position, size, body, "
        "properties.NAME for one property, or any member of a message in JSON",
    )
    parser.add_argument(
        "--format",
        metavar="TEMPLATE",
        help="print each message as this text, with names of values in braces: "
        "'{time} {keys} {body}'; \\n, \\t and \\0 are characters, and a newline follows unless it "
        "ends with \\n or \\0",
    )
    parser.add_argument(
        "--no-header", action="store_true", help="without the line that names the columns"
    )
    parser.add_argument(
        "--body",
        choices=BODY_FORMS,
        help="bodies as text (if not UTF-8: 0x and hex, in JSON base64), as JSON, in base64, or "
        "decoded whatever their format (default: text, the start of it in tables decoded if it is "
        "not UTF-8)",
    )
    add_colour(parser)


def add_colour(parser: ArgumentParser) -> None:
    """Add ``--color``."""
    parser.add_argument(
        "--color",
        choices=COLOUR_CHOICES,
        default="auto",
        help="colour always, never, or (default) on terminals, unless NO_COLOR is set",
    )


class MessageOutput:
    """Prints messages as the options of a command line say."""

    def __init__(
        self,
        arguments: Namespace,
        searched: str | None = None,
        *,
        more: "Mapping[str, Callable[[MessageExt], str | None]] | None" = None,
        is_terminal: bool | None = None,
    ) -> None:
        """Check the options; ``searched`` is highlighted where it is found.

        ``more`` are values beside those of a message, by name: columns before the body, and members
        in JSON. ``is_terminal`` None: whatever stdout is now.

        :raises BadInput: naming options that do not go together, or a value that messages lack.
        """
        # Late: help must not pay for the fields of a message.
        from rocketlens.terminal.message_values import PIPED_COLUMNS, Template, value_names

        choose_colour(arguments.color)
        self._searched: Final = searched
        self._bodies: Final = BodyView.of(arguments)
        self._output: Final[str] = arguments.output
        self._is_terminal: Final = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._more: Final = more or {}
        self._names = None
        if arguments.fields is not None:
            self._names = value_names(arguments.fields, self._more)
        elif self._more and self._output in _HEADED and arguments.format is None:
            self._names = (*PIPED_COLUMNS[:-1], *self._more, PIPED_COLUMNS[-1])
        self._template: Final = None if arguments.format is None else Template(arguments.format)
        self._needs_header = not arguments.no_header and self._output in _HEADED
        if self._template and (arguments.fields or self._output != "table"):
            raise BadInput("--format says how to print messages, and so do --fields and -o")
        if arguments.no_header and (self._template or self._output not in _HEADED):
            raise BadInput("--no-header: there is a header in tables and CSV only")

    @property
    def printer(self) -> "Callable[[MessageExt], None] | None":
        """What prints messages one by one; None for a table on a terminal and one JSON object."""
        if self._template:
            return self._print_template
        if self._output == "jsonl":
            return self._print_json
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
    def line_printer(self) -> "Callable[[MessageExt], None]":
        """What prints messages one by one, on a terminal a line each without a header."""
        return self.printer or self._print_line

    def print_all(self, messages: "Iterable[MessageExt]") -> None:
        """Print messages as they come, in any way but as one JSON object."""
        printer = self.printer
        if printer:
            for message in messages:
                printer(message)
        elif self._names:
            from rocketlens.cli.table import print_rows

            rows = (
                [self._short(message, name) for name in self._names or ()] for message in messages
            )
            print_rows(self._names, rows, has_titles=self._needs_header)
        else:
            from rocketlens.cli.table import print_messages

            print_messages(
                messages, self._searched, has_titles=self._needs_header, bodies=self._bodies
            )

    def print_array(self, messages: "Iterable[MessageExt]") -> None:
        """Print messages as a JSON array."""
        sys.stdout.write("[")
        for number, message in enumerate(messages):
            if number:
                sys.stdout.write(",")
            self._write_json(message, "")
        sys.stdout.write("]")

    def _print_line(self, message: "MessageExt") -> None:
        from rocketlens.cli import table

        if self._names:
            print("  ".join(printable(str(self._short(message, name))) for name in self._names))
        else:
            columns = shutil.get_terminal_size((100, 24)).columns
            line = table.cut(table.one_line(message, self._bodies), columns)
            print(table.highlighted(line, self._searched))

    def _print_template(self, message: "MessageExt") -> None:
        assert self._template is not None  # noqa: S101 - what `printer` chose by
        text = self._template.text(message, self._bodies)
        sys.stdout.write(printable(text, keep="\n\t\0") if self._is_terminal else text)

    def _print_json(self, message: "MessageExt") -> None:
        self._write_json(message, "\n")

    def _write_json(self, message: "MessageExt", end: str) -> None:
        from rocketlens.terminal.as_json import write_message

        more = {name: value_of(message) for name, value_of in self._more.items()}
        write_message(message, end, names=self._names, bodies=self._bodies, more=more)

    def _print_csv(self, message: "MessageExt") -> None:
        self.print_header()
        from rocketlens.terminal.message_values import csv_cell, csv_row, defused

        cells = [
            defused(self._more[name](message))
            if name in self._more
            else csv_cell(message, name, self._bodies)
            for name in self._csv_names()
        ]
        if self._is_terminal:
            cells = [printable(cell, keep="\n\t") for cell in cells]
        sys.stdout.write(csv_row(cells))

    def print_header(self) -> None:
        """Print the line that names the columns of CSV, once, if there is one."""
        if self._needs_header and self._output == "csv":
            from rocketlens.terminal.message_values import csv_row

            self._needs_header = False
            sys.stdout.write(csv_row(self._csv_names()))

    def _csv_names(self) -> Sequence[str]:
        from rocketlens.terminal.message_values import PIPED_COLUMNS

        return self._names or PIPED_COLUMNS

    def _print_tabbed(self, message: "MessageExt") -> None:
        from rocketlens.cli.table import piped_row
        from rocketlens.terminal.message_values import PIPED_COLUMNS, text_of

        if self._needs_header:
            self._needs_header = False
            print("\t".join(self._names or PIPED_COLUMNS))
        if self._names:
            print("\t".join(printable(str(self._short(message, name))) for name in self._names))
        elif self._bodies.form:
            *row, _ = piped_row(message)
            print("\t".join([*row, printable(text_of(message, "body", self._bodies))]))
        else:
            print("\t".join(piped_row(message, self._bodies)))

    def _short(self, message: "MessageExt", name: str) -> object:
        """Return a cell of a table: a body is cut unless its form was chosen."""
        from rocketlens.terminal.message_values import text_of, value_of

        if name in self._more:
            return self._more[name](message) or NO_VALUE
        if name == "body" and self._bodies.form is None:
            return self._bodies.preview(message)
        value = None if name == "body" else value_of(message, name)
        return value if isinstance(value, int) else text_of(message, name, self._bodies)

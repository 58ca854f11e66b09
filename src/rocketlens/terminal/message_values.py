"""Printable values of a message: its body, and the values for ``--fields`` and ``--format``."""

import csv
import io
import json
import re
from argparse import Namespace
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final

from rocketlens.decode.tree import FIELD_PATH, field_text
from rocketlens.errors import BadInput
from rocketlens.model.fields import FIELDS, NAMES, TIME_COLUMNS, field_of, property_name
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.json_text import compact, json_of
from rocketlens.terminal.output import iso_text

if TYPE_CHECKING:
    from rocketlens.decode.bodies import DecodedBody
    from rocketlens.decode.rules import BodyRules

DECODED: Final = "decoded"
BODY_FORMS: Final = ("text", "json", "base64", DECODED)
PREVIEW_BYTES: Final = 240
_MAX_PREVIEWED_BYTES: Final = 1 << 16
"""Larger bodies are not decoded for a preview."""


class BodyView:
    """How to show bodies: as which bytes, and in which form."""

    def __init__(self, form: str | None = None, rules_file: str | None = None) -> None:
        """``form`` is one of BODY_FORMS, or None for the default of each output.

        :raises BadInput: if the file of rules cannot be read, or is not needed.
        """
        self.form: Final = form
        self._rules_file: Final = rules_file
        self._rules: BodyRules | None = None
        if rules_file is not None:
            self._read_rules()

    @classmethod
    def of(cls, arguments: Namespace) -> "BodyView":
        return cls(arguments.body, getattr(arguments, "body_rules", None))

    def shown(self, message: MessageExt) -> tuple[bytes, str | None]:
        """Return the bytes to show for a body, and their form, as in ``--body``.

        A decoded body is JSON, or UTF-8 text, or unchanged if it is binary.
        """
        if self.form != DECODED:
            return message.body, self.form
        decoded = self.decoded(message)
        text = decoded.as_json()
        if text is not None:
            return text.encode("utf-8", "surrogatepass"), "json"
        if decoded.text is not None:
            return decoded.text.encode("utf-8", "surrogatepass"), "text"
        return message.body, "text"

    def preview(self, message: MessageExt) -> str:
        """Return the start of a body on one line, safe to print.

        Without a form, this is the text of the body, decoded if it is not UTF-8, or else hex.
        """
        body, form = self.shown(message)
        if form in {"json", "base64"}:
            return printable(body_text(body, form)[:PREVIEW_BYTES])
        start = text_start(body)
        if start is None and self.form is None and len(body) <= _MAX_PREVIEWED_BYTES:
            decoded = self.decoded(message)
            text = decoded.as_json() or decoded.text
            start = None if text is None else text[:PREVIEW_BYTES]
        return f"0x{body[: PREVIEW_BYTES // 4].hex()}" if start is None else printable(start)

    def decoded(self, message: MessageExt) -> "DecodedBody":
        """Decode a body by a rule, or by detecting its format."""
        return self._read_rules().decode(message)

    def _read_rules(self) -> "BodyRules":
        if self._rules is None:
            # Late: text needs no decoders.
            from rocketlens.decode.rules import BodyRules

            file = self._rules_file
            self._rules = BodyRules() if file is None else BodyRules.from_file(Path(file))
        return self._rules


AS_IT_IS: Final = BodyView()
"""The default of each output."""


def utf8_text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def body_text(body: bytes, form: str | None) -> str:
    """Return a body as text.

    ``text`` or None: its text, or ``0x`` and hex if it is not UTF-8. ``json``: one line of JSON,
    either the body itself, or a string with its text, or an object with its base64. ``base64``.
    """
    if form == "base64":
        return b64encode(body).decode("ascii")
    if form == "json":
        value = json_of(body)
        if value is not None:
            return compact(value)
    text = utf8_text(body)
    if text is None and form == "json":
        return json.dumps({"base64": b64encode(body).decode("ascii")})
    if text is None:
        return f"0x{body.hex()}"
    return json.dumps(text, ensure_ascii=False) if form == "json" else text


def hex_lines(body: bytes, most: int) -> Iterator[str]:
    """Yield lines with offset, 16 bytes in hex, and ASCII, for the first ``most`` bytes."""
    for start in range(0, min(len(body), most), 16):
        row = body[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {text}"


def text_start(body: bytes) -> str | None:
    """Return the start of a UTF-8 body; None if the start is not UTF-8."""
    start = body[:PREVIEW_BYTES]
    try:
        return start.decode("utf-8")
    except UnicodeDecodeError as error:
        # The end of a cut start can be an incomplete character.
        if len(start) == len(body) or error.start < len(start) - 3:
            return None
        return start[: error.start].decode("utf-8")


PIPED_COLUMNS: Final = ("time", "topic", "tags", "keys", "id", "position", "size", "body")
"""The default columns of tab-separated values and CSV."""
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters of cells that spreadsheet programs evaluate."""


def value_names(
    text: str, more: Collection[str] = (), *, where: str = "--fields", sign: str = ""
) -> tuple[str, ...]:
    """Return the names in an option; ``more`` are valid besides the values of messages.

    Names can have the prefix ``sign``.

    :raises BadInput: if messages have no such value; suggests a name.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in more:
            check_value_name(name.removeprefix(sign), where)
    return names


def sort_messages(
    messages: Sequence[MessageExt], names: Sequence[str], bodies: BodyView
) -> tuple[MessageExt, ...]:
    """Sort messages by values; ``-`` before a name reverses the order.

    Numbers come first, then texts, then messages without the value.
    """
    ordered = list(messages)
    for name in reversed(names):
        ranks = {id(each): _rank(each, name.removeprefix("-"), bodies) for each in messages}
        ordered.sort(key=lambda each: ranks[id(each)], reverse=name.startswith("-"))
        ordered.sort(key=lambda each: not ranks[id(each)])
    return tuple(ordered)


def _rank(message: MessageExt, name: str, bodies: BodyView) -> tuple[object, ...]:
    value = shown(message, TIME_COLUMNS.get(NAMES.get(name, ""), name), bodies)
    if isinstance(value, int) or _NUMBER.fullmatch(value):
        return 0, Decimal(value)
    return (1, value) if value else ()


def check_value_name(name: str, where: str) -> None:
    """Check that messages have a value of this name.

    :raises BadInput: otherwise.
    """
    if name in NAMES or property_name(name) or FIELD_PATH.fullmatch(name):
        return
    meant = suggestion(name, NAMES) or (
        f"; there are {', '.join(FIELDS)}, prop.NAME and body.$.NAME"
    )
    raise BadInput(f"{where}: messages have no value {printable(name)[:80]!r}{meant}")


def value_of(message: MessageExt, name: str, bodies: BodyView = AS_IT_IS) -> object:
    """Return a value of a message; times and values in its body are texts."""
    milliseconds = TIME_COLUMNS.get(NAMES.get(name, ""))
    if milliseconds is not None:
        return iso_text(getattr(message, milliseconds))
    if not FIELD_PATH.fullmatch(name):
        return field_of(message, name)
    body_json = bodies.decoded(message).as_json()
    return None if body_json is None else field_text(body_json, name)


def shown(message: MessageExt, name: str, bodies: BodyView) -> int | str:
    """Return a value as a number or text; missing values are empty."""
    if name == "body":
        return body_text(*bodies.shown(message))
    value = value_of(message, name, bodies)
    if NAMES.get(name) == "keys":
        return " ".join(message.keys)
    if name == "properties":
        return json.dumps(dict(message.properties), ensure_ascii=False)
    return value if isinstance(value, int) else "" if value is None else str(value)


def safe_cell(value: object) -> str:
    """Return a CSV cell that spreadsheet programs do not evaluate.

    A foreign text that looks like a formula gets an apostrophe in front; numbers are unchanged.
    """
    text = "" if value is None else str(value)
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def csv_row(cells: Iterable[str]) -> str:
    """Return a CSV row with its line feed.

    Cells with a carriage return are quoted, or else spreadsheet programs would split the row.
    """
    line = io.StringIO(newline="")
    # In Python 3.11, the writer quotes only characters of its line terminator.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[: -len("\r\n")] + "\n"


class Template:
    r"""A template of ``--format``: ``{topic} {keys} {body}\n``."""

    def __init__(self, template: str) -> None:
        """Parse a template.

        :raises BadInput: if it is malformed, or names an unknown value.
        """
        text = re.sub(r"\\[nt0\\]", lambda match: _ESCAPES[match[0]], template)
        # One line per message, unless the template has its own end.
        self._parts: Final[Sequence[tuple[str, str]]] = list(
            _parts(text if text.endswith(("\n", "\0")) else f"{text}\n")
        )

    def text(self, message: MessageExt, bodies: BodyView) -> str:
        return "".join(
            literal + (str(shown(message, name, bodies)) if name else "")
            for literal, name in self._parts
        )


def _parts(text: str) -> Iterable[tuple[str, str]]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise BadInput(f"--format: {error}; write {{{{ and }}}} for braces") from error
    for literal, name, form, conversion in parsed:
        if form or conversion or name == "":
            raise BadInput("--format: only the name of a value is allowed in braces")
        if name is not None:
            check_value_name(name, "--format")
        yield literal, name or ""

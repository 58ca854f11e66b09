"""The values of a message that can be printed: its body, and others by name for ``--fields``."""

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
"""Larger bodies are not decoded for the start of them."""


class BodyView:
    """The bytes and the form in which each body is shown."""

    def __init__(self, form: str | None = None, rules_file: str | None = None) -> None:
        """Use one of BODY_FORMS, or None for the default of each output.

        :raises BadInput: if the rules cannot be read, or have no use.
        """
        self.form: Final = form
        self._rules_file: Final = rules_file
        self._rules: BodyRules | None = None
        if rules_file is not None:
            self._read_rules()

    @classmethod
    def of(cls, arguments: Namespace) -> "BodyView":
        """Return the view that a command line asks for."""
        return cls(arguments.body, getattr(arguments, "body_rules", None))

    def shown(self, message: MessageExt) -> tuple[bytes, str | None]:
        """Return the bytes that are shown for a body, and their form: that of ``--body``.

        A decoded body is its JSON, or its text in UTF-8, or if it is binary as it was sent.
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

        Without a form, it is the text of the body, decoded if it is not UTF-8, else hex.
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
        """Return a body as a rule, or a look at its bytes, reads it."""
        return self._read_rules().decode(message)

    def _read_rules(self) -> "BodyRules":
        if self._rules is None:
            # Late: what shows text needs no decoders.
            from rocketlens.decode.rules import BodyRules

            file = self._rules_file
            self._rules = BodyRules() if file is None else BodyRules.from_file(Path(file))
        return self._rules


AS_IT_IS: Final = BodyView()
"""The default of each output."""


def utf8_text(body: bytes) -> str | None:
    """Return the text of a body, or None if it is not UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def body_text(body: bytes, form: str | None) -> str:
    """Return a body as text.

    ``text``, and None: its text, or ``0x`` and hex if it is not UTF-8. ``json``: always JSON on one
    line, that of the body, or a string with its text, or an object with its base64. ``base64``.
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
    """Yield lines of offset, 16 bytes in hex, and their ASCII, for the first ``most`` bytes."""
    for start in range(0, min(len(body), most), 16):
        row = body[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {text}"


def text_start(body: bytes) -> str | None:
    """Return the start of a body that begins as UTF-8 does; None if it does not."""
    start = body[:PREVIEW_BYTES]
    try:
        return start.decode("utf-8")
    except UnicodeDecodeError as error:
        # Only a long body's start can end in a character that was cut in two.
        if len(start) == len(body) or error.start < len(start) - 3:
            return None
        return start[: error.start].decode("utf-8")


PIPED_COLUMNS: Final = ("time", "topic", "tags", "keys", "id", "position", "size", "body")
"""Of tab-separated values and of CSV, where the caller does not choose."""
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that spreadsheet programs compute."""


def value_names(
    text: str, more: Collection[str] = (), *, where: str = "--fields", sign: str = ""
) -> tuple[str, ...]:
    """Return the names of an option, which may be some that messages do not have themselves.

    ``sign`` may stand before a name.

    :raises BadInput: naming one that a message does not have, and what was probably meant.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in more:
            check_value_name(name.removeprefix(sign), where)
    return names


def in_order_of(
    messages: Sequence[MessageExt], names: Sequence[str], bodies: BodyView
) -> tuple[MessageExt, ...]:
    """Return messages in the order of their values, with ``-`` before its name the largest first:
    numbers, then texts, then those without one.
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

    :raises BadInput: when they have not.
    """
    if name in NAMES or property_name(name) or FIELD_PATH.fullmatch(name):
        return
    meant = suggestion(name, NAMES) or (
        f"; there are {', '.join(FIELDS)}, prop.NAME and body.$.NAME"
    )
    raise BadInput(f"{where}: messages have no value {printable(name)[:80]!r}{meant}")


def value_of(message: MessageExt, name: str, bodies: BodyView = AS_IT_IS) -> object:
    """Return one value of a message, as Python has it; times and fields of its body as text."""
    milliseconds = TIME_COLUMNS.get(NAMES.get(name, ""))
    if milliseconds is not None:
        return iso_text(getattr(message, milliseconds))
    if not FIELD_PATH.fullmatch(name):
        return field_of(message, name)
    body_json = bodies.decoded(message).as_json()
    return None if body_json is None else field_text(body_json, name)


def shown(message: MessageExt, name: str, bodies: BodyView) -> int | str:
    """Return one value as a number or as text; what a message does not have is empty."""
    if name == "body":
        return body_text(*bodies.shown(message))
    value = value_of(message, name, bodies)
    if NAMES.get(name) == "keys":
        return " ".join(message.keys)
    if name == "properties":
        return json.dumps(dict(message.properties), ensure_ascii=False)
    return value if isinstance(value, int) else "" if value is None else str(value)


def defused(value: object) -> str:
    """Return a cell of CSV that no spreadsheet program computes: text of others may be a formula.

    A text that would be one gets an apostrophe before it. Numbers stay as they are.
    """
    text = "" if value is None else str(value)
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def csv_row(cells: Iterable[str]) -> str:
    """Return a row of CSV with its line feed.

    A cell with a carriage return is quoted: a row would begin behind it in spreadsheet programs.
    """
    line = io.StringIO(newline="")
    # The writer of Python 3.11 quotes what is in its line terminator only.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[: -len("\r\n")] + "\n"


class Template:
    r"""A template of ``--format``: ``{topic} {keys} {body}\n``."""

    def __init__(self, template: str) -> None:
        """Parse a template.

        :raises BadInput: when it is not well-formed, or names a value that messages do not have.
        """
        text = re.sub(r"\\[nt0\\]", lambda match: _ESCAPES[match[0]], template)
        # A line each, unless it says how a message ends.
        self._parts: Final[Sequence[tuple[str, str]]] = list(
            _parts(text if text.endswith(("\n", "\0")) else f"{text}\n")
        )

    def text(self, message: MessageExt, bodies: BodyView) -> str:
        """Return the template with the values of a message."""
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
            raise BadInput("--format: in braces stands the name of a value, and nothing else")
        if name is not None:
            check_value_name(name, "--format")
        yield literal, name or ""

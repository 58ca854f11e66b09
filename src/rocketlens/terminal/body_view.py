"""How commands show the bodies of messages: ``--body`` and ``--body-rules``."""

import json
from argparse import Namespace
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import compact, json_of

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

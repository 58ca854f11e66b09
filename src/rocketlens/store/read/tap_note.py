"""Reads and encodes ``rocketlens/tap.json``, the note of a store that is a copy of a broker's.

It is a note (:mod:`rocketlens.store.read.note`). A tap writes it at once when it finds a gap, and
every few seconds with its position.
"""

from pathlib import Path
from typing import Final, NamedTuple, Self

from msgspec import Struct, ValidationError, convert, to_builtins

from rocketlens import limits
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.note import decode_note, encode_note

_KIND: Final = "tap"


class TapGap(NamedTuple):
    """Physical offsets that the copy will never have: the broker had deleted them."""

    start: int
    stop: int
    noticed_ms: int

    def __str__(self) -> str:
        return "the broker deleted them before they were copied"


class TapNote(Struct, frozen=True, rename="camel"):
    """The content of ``tap.json``."""

    broker_name: str
    address: str
    begin_offset: int
    position: int = 0
    master_end_offset: int = 0
    last_record_ms: int = 0
    """The store time of the last copied message; 0 without one."""
    written_ms: int = 0
    gaps: tuple[TapGap, ...] = ()
    replaced: tuple[str, ...] = ()
    """Directories with copies of earlier logs of the broker, oldest first."""
    problem: str = ""

    @property
    def behind_bytes(self) -> int:
        """Known bytes of the master's log that are not copied yet."""
        return max(self.master_end_offset - self.position, 0)

    @property
    def behind_ms(self) -> int:
        """The age of the last copied message when the note was written; 0 without a lag."""
        return max(self.written_ms - self.last_record_ms, 0) if self.behind_bytes else 0

    def encode(self) -> bytes:
        return encode_note(_KIND, to_builtins(self), None)

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        note = decode_note(_KIND, content)
        try:
            return None if note is None else convert(note.value, cls)
        except ValidationError:
            return None


def read_tap_note(layout: StoreLayout) -> TapNote | None:
    """Read the note of a store; return None if the store is no tap's, or the note is damaged."""
    return read_note_file(layout.tap)


def read_note_file(path: Path) -> TapNote | None:
    content = fs.read_bytes(path, limits.MAX_STATE_BYTES)
    return None if content is None else TapNote.decode(content)

"""The note of a store that is a copy of a broker's: of which broker, how far, and what it lacks.

``rocketlens/tap.json`` is a note (:mod:`rocketlens.store.read.note`) that is written whole. A tap
writes it at once when there is a gap, and every few seconds with how far it has come.
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
        """Describe why they are missing."""
        return "the broker deleted them before they were copied"


class TapNote(Struct, frozen=True, rename="camel"):
    """The content of ``tap.json``."""

    broker_name: str
    address: str
    """Of the master, when it was asked last."""
    begin_offset: int
    """The physical offset at which the copy began."""
    position: int = 0
    """Up to where the log was copied."""
    master_end_offset: int = 0
    """Where the master's log ended, when it was asked last."""
    last_record_ms: int = 0
    """The store time of the last message that was copied; 0 without one."""
    written_ms: int = 0
    gaps: tuple[TapGap, ...] = ()
    replaced: tuple[str, ...] = ()
    """Directories with copies of logs that the broker had before this one, oldest first."""
    problem: str = ""
    """Why nothing is copied now; empty if it is."""

    @property
    def behind_bytes(self) -> int:
        """Bytes of the master's log that are not copied, as far as is known."""
        return max(self.master_end_offset - self.position, 0)

    @property
    def behind_ms(self) -> int:
        """How old the last message was that was copied; 0 if nothing was to be copied."""
        return max(self.written_ms - self.last_record_ms, 0) if self.behind_bytes else 0

    def encode(self) -> bytes:
        """Return the bytes of the note."""
        return encode_note(_KIND, to_builtins(self), None)

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        """Parse the note; return None if it is damaged or of another version."""
        note = decode_note(_KIND, content)
        try:
            return None if note is None else convert(note.value, cls)
        except ValidationError:
            return None


def read_tap_note(layout: StoreLayout) -> TapNote | None:
    """Read the note of a store; return None if it is no tap's, or the note is damaged.

    :raises OSError: when it is there and cannot be read now.
    """
    return read_note_file(layout.tap)


def read_note_file(path: Path) -> TapNote | None:
    """Read a note; see :func:`read_tap_note`."""
    content = fs.read_bytes(path, limits.MAX_STATE_BYTES)
    return None if content is None else TapNote.decode(content)

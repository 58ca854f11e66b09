"""``rocketlens/index.json``: up to where a store's index files are synced, and their headers then.

It is a note as :mod:`rocketlens.store.read.note` describes them, marked with the last record before
the safe offset. It is written whole, and synced, after the index files were synced. ``safeOffset``
is the physical offset below which every record has all its entries in them, but for a disk that
became full in the middle of a record: then ``entriesIn`` entries of the record there are in, too.
``files`` has the name and the header of each file, oldest first. The builder of index files writes
it, and everyone may read it, to know how far the index is behind the log.

``beside`` says that these files are still in ``rocketlens/index/``, and that ``index/`` has those
of another builder until the new ones cover as much of the log.
"""

from typing import Any, Final, NamedTuple

from msgspec import Struct

from rocketlens.errors import IndexFileError
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.index_file import Geometry, IndexHeader, decode_header
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.note import LogMark, Note, encode_note, read_note

MAX_INDEX_STATE_BYTES: Final = 64 * 1024 * 1024
"""Largest file of how far index files are safe that is read, in bytes."""
_KIND: Final = "index"


class ResumePoint(NamedTuple):
    """Where a builder resumes: a record's physical offset, and its entries that were written."""

    physical_offset: int
    entries_in: int


class IndexState(Struct, frozen=True):
    """The content of ``index.json``."""

    resume_point: ResumePoint
    with_tags: bool
    geometry: Geometry
    files: tuple[tuple[str, IndexHeader], ...]
    mark: LogMark | None
    """The last record before the safe offset; None if there is none."""
    slots_crc: int | None = None
    """CRC-32 of header and slots of the last file, if no entry was added after the last sync."""
    is_beside: bool = False
    kept_full: IndexHeader | None = None
    """While the files are beside: the header of the newest full file in ``index/``."""

    def newest_full(self) -> IndexHeader | None:
        """Return the header of the newest file in ``index/`` that has all entries it can have."""
        if self.is_beside:
            return self.kept_full
        entry_count = self.geometry.entry_count
        full = [header for _, header in self.files[-2:] if header.next_entry >= entry_count]
        return full[-1] if full else None

    def encode(self) -> bytes:
        """Return the bytes of the note."""
        value = {
            "safeOffset": self.resume_point.physical_offset,
            "entriesIn": self.resume_point.entries_in,
            "tags": self.with_tags,
            "geometry": list(self.geometry),
            "slotsCrc": self.slots_crc,
            "beside": self.is_beside,
            "keptFull": self.kept_full.encode().hex() if self.kept_full else None,
            "files": [[name, header.encode().hex()] for name, header in self.files],
        }
        return encode_note(_KIND, value, self.mark)


def _state_of(note: Note) -> IndexState | None:
    """Return the state in a note; None if :meth:`IndexState.encode` did not write it."""
    value: dict[str, Any] = note.value
    try:
        return IndexState(
            ResumePoint(int(value["safeOffset"]), int(value["entriesIn"])),
            value["tags"] is True,
            Geometry(*map(int, value["geometry"])),
            tuple((str(name), decode_header(bytes.fromhex(text))) for name, text in value["files"]),
            note.mark,
            value["slotsCrc"],
            value["beside"] is True,
            decode_header(bytes.fromhex(value["keptFull"])) if value["keptFull"] else None,
        )
    except (ValueError, KeyError, TypeError, IndexFileError):
        return None


def read_index_state(layout: StoreLayout) -> IndexState | None:
    """Return the content of ``index.json``; None if it is missing, damaged, or of an old form.

    Whether it speaks of the log that is there is not looked at.

    :raises OSError: if the file exists but cannot be read now.
    """
    note = read_note(layout.index_state, _KIND, max_bytes=MAX_INDEX_STATE_BYTES)
    return None if note is None else _state_of(note)


def safe_offset_of(layout: StoreLayout) -> int:
    """Return the safe offset of a store's index files, by any builder; 0 without one.

    :raises OSError: if ``index.json`` cannot be read now.
    """
    state = read_index_state(layout)
    return 0 if state is None else state.resume_point.physical_offset


def full_index_end(layout: StoreLayout, before: Checkpoint) -> tuple[int, int]:
    """Return the store time and physical offset up to which full index files reach; 0, 0 without
    any.

    A real broker that finds the store not closed deletes the index files that end after this time,
    and reads the log again from there. ``before`` is the checkpoint that was there: without a note
    of ours the files in ``index/`` are those it speaks of.

    :raises OSError: if ``index.json`` cannot be read now.
    """
    state = read_index_state(layout)
    if state is None:
        return max(before.index_msg_timestamp_ms, 0), 0
    full = state.newest_full()
    return (full.end_timestamp_ms, full.end_offset) if full else (0, 0)

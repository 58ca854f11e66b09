"""Reads and encodes ``rocketlens/index.json``: the index files' safe offset and headers.

It is a note (:mod:`rocketlens.store.read.note`) whose mark is the last record before the safe
offset. The builder of index files writes it whole and syncs it after it has synced the files.
``safeOffset`` is the physical offset below which the files have all entries of all records. If a
full disk interrupted a record there, the files also have the first ``entriesIn`` of its entries.
``files`` has the name and the header of each file, oldest first.

``beside``: these files are still in ``rocketlens/index/``, and ``index/`` has those of another
builder until the new ones cover as much of the log.
"""

from typing import Any, Final, NamedTuple

from msgspec import Struct

from rocketlens.errors import IndexFileError
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.index_file import Geometry, IndexHeader, decode_header
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.note import LogMark, Note, encode_note, read_note

MAX_INDEX_STATE_BYTES: Final = 64 * 1024 * 1024
_KIND: Final = "index"


class ResumePoint(NamedTuple):
    """The record at which a builder resumes, and the number of its entries already written."""

    physical_offset: int
    entries_in: int


class IndexState(Struct, frozen=True):
    """The content of ``index.json``."""

    resume_point: ResumePoint
    with_tags: bool
    geometry: Geometry
    files: tuple[tuple[str, IndexHeader], ...]
    mark: LogMark | None
    slots_crc: int | None = None
    """CRC-32 of header and slots of the last file, if no entry was added after the last sync."""
    is_beside: bool = False
    kept_full: IndexHeader | None = None
    """While the files are beside: the header of the newest full file in ``index/``."""

    def newest_full(self) -> IndexHeader | None:
        """Return the header of the newest full file in ``index/``, or None."""
        if self.is_beside:
            return self.kept_full
        entry_count = self.geometry.entry_count
        full = [header for _, header in self.files[-2:] if header.next_entry >= entry_count]
        return full[-1] if full else None

    def encode(self) -> bytes:
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

    Does not check that it belongs to the store's log.
    """
    note = read_note(layout.index_state, _KIND, max_bytes=MAX_INDEX_STATE_BYTES)
    return None if note is None else _state_of(note)


def safe_offset_of(layout: StoreLayout) -> int:
    """Return the safe offset of a store's index files; 0 without ``index.json``."""
    state = read_index_state(layout)
    return 0 if state is None else state.resume_point.physical_offset


def full_index_end(layout: StoreLayout, before: Checkpoint) -> tuple[int, int]:
    """Return the store time and physical offset at the end of the full index files, or 0, 0.

    After a crash a RocketMQ broker deletes the index files that end after this time, and reads the
    log again from there. ``before``: the current checkpoint, which describes the files in
    ``index/`` if ``index.json`` is missing.
    """
    state = read_index_state(layout)
    if state is None:
        return max(before.index_msg_timestamp_ms, 0), 0
    full = state.newest_full()
    return (full.end_timestamp_ms, full.end_offset) if full else (0, 0)

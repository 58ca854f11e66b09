"""``rocketlens/index.json``: how far a store's index files are synced, and what they were then.

Written whole, and synced, after the index files were synced. ``safeOffset`` is the physical offset
below which every record has all its entries in them, but for a disk that became full in the middle
of a record: then ``entriesIn`` entries of the record there are in, too. ``files`` has the name and
the header of each file, oldest first. Whoever builds index files writes it, and everyone may read
it, to know how far the index is behind the log.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from rocketlens.errors import IndexFileError
from rocketlens.formats.index_file import IndexHeader, decode_header
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout

_STATE_BYTES: Final = 64 * 1024 * 1024


class IndexPlace(NamedTuple):
    """Where a builder goes on: a record's physical offset, and its entries that are in already."""

    physical_offset: int
    entries_in: int


@dataclass(frozen=True, slots=True)
class IndexState:
    """The content of ``index.json``."""

    place: IndexPlace
    with_tags: bool
    is_clean: bool
    """Whether nothing was put in after it was written."""
    files: tuple[tuple[str, IndexHeader], ...]

    def newest_full(self, entry_count: int) -> IndexHeader | None:
        """Give the header of the newest file that has all the entries it can have."""
        full = [header for _, header in self.files[-2:] if header.next_entry >= entry_count]
        return full[-1] if full else None

    def encode(self) -> bytes:
        """Write it as JSON."""
        state = {
            "safeOffset": self.place.physical_offset,
            "entriesIn": self.place.entries_in,
            "tags": self.with_tags,
            "clean": self.is_clean,
            "files": [[name, header.encode().hex()] for name, header in self.files],
        }
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        """Read it; None when it is damaged."""
        try:
            state: Any = json.loads(content)
            return cls(
                IndexPlace(int(state["safeOffset"]), int(state["entriesIn"])),
                bool(state["tags"]),
                state["clean"] is True,
                tuple(
                    (str(name), decode_header(bytes.fromhex(header)))
                    for name, header in state["files"]
                ),
            )
        except (ValueError, KeyError, TypeError, RecursionError, IndexFileError):
            return None


def read_index_state(layout: StoreLayout) -> IndexState | None:
    """Read ``index.json``; None when it is not there or damaged."""
    content = fs.read_bytes(layout.index_state, _STATE_BYTES)
    return None if content is None else IndexState.decode(content)


def safe_offset_of(layout: StoreLayout) -> int:
    """Give the safe offset of a store's index files, whoever builds them; 0 without one."""
    state = read_index_state(layout)
    return 0 if state is None else state.place.physical_offset

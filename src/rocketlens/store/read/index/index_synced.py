"""Decides which index files are known to be complete on the disk.

RocketMQ writes to an index file through the page cache, and syncs it when it is full; after that
it puts the file's end time into the checkpoint. So a machine that lost power, and a snapshot of a
disk, can have an unfinished file of which some pages are as they were long ago. A slot of such a
page leads past the newest entries of its chain, and nothing in the file is wrong by itself.

===============================  =============================================================
known to be complete              because
===============================  =============================================================
any file, without ``abort``       the store was closed
any file, while a broker runs     what it wrote is in the page cache, where we read it, and when
                                  it started it removed or mended what was not synced
a full file, its end time at or   RocketMQ had synced it
before that of the checkpoint
a file whose header is that of    the builder had synced it and put nothing in since
``rocketlens/index.json``
===============================  =============================================================

RocketMQ deletes the others when it starts.
"""

from pathlib import Path

from rocketlens.errors import CheckpointError
from rocketlens.formats import checkpoint
from rocketlens.formats.index_file import Geometry, IndexHeader
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import read_index_state


class SyncedFiles:
    """Separates the index files of a store that are known to be complete from the others."""

    def __init__(self, layout: StoreLayout) -> None:
        """Read the state of the store once."""
        self._is_settled = not layout.abort.exists() or _is_in_use(layout.root)
        self._synced_to_ms = 0
        self._noted: dict[str, IndexHeader] = {}
        if not self._is_settled:
            self._synced_to_ms = _index_msg_timestamp_ms(layout.checkpoint)
            self._noted = _noted_files(layout)

    def has(self, path: Path, header: IndexHeader, geometry: Geometry | None) -> bool:
        """Return whether a file is known to be complete."""
        if self._is_settled or self._noted.get(path.name) == header:
            return True
        is_full = geometry is not None and header.next_entry >= geometry.entry_count
        return is_full and 0 < header.end_timestamp_ms <= self._synced_to_ms


def _noted_files(layout: StoreLayout) -> dict[str, IndexHeader]:
    """Return the files of ``index/`` in ``index.json``; empty if it cannot be read."""
    try:
        state = read_index_state(layout)
    except OSError:
        return {}
    return {} if state is None or state.is_beside else dict(state.files)


def _is_in_use(store: Path) -> bool:
    # Imported late: few look-ups need it, and it imports all that writing a file needs.
    from rocketlens.store.lock import is_locked

    try:
        return is_locked(store)
    except OSError:
        return False


def _index_msg_timestamp_ms(path: Path) -> int:
    try:
        content = fs.read_bytes(path, checkpoint.CHECKPOINT_BYTES)
        return checkpoint.decode(content or b"").index_msg_timestamp_ms
    except (OSError, CheckpointError):
        return 0

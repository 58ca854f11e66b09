"""A DLedger log: the copy of a replicated log that a broker with `enableDLegerCommitLog` has."""

from itertools import islice
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import NotAStore
from rocketlens.formats import dledger
from rocketlens.store import fs

_DATA = "data"
_INDEX = "index"
_CHECKPOINT = "checkpoint"


class Replica:
    """How far one copy of a replicated log is committed: what is behind may be taken back.

    The copy says so some seconds late. The broker puts entries in consume queues only once they
    are committed, so those show what is committed since.
    """

    def __init__(self, root: Path) -> None:
        """Read how far it is committed."""
        self._root = root
        self.data = root / _DATA
        self.committed_to = -1
        """The physical offset of the last record that is known to be committed; -1: of none."""
        self._index: int | None = None
        names = (entry.name for entry in fs.entries(self.data))
        self._first: Final = min((int(name) for name in names if name.isdigit()), default=0)
        self.look_again()

    @classmethod
    def beside(cls, commit_log: Path) -> "Replica | None":
        """Return the DLedger log of a store whose commit log would be in a directory.

        Where there is a commit log as well, the broker was switched to DLedger, and its log goes on
        behind that.

        :raises NotAStore: if there are several.
        """
        directory = commit_log.parent
        if commit_log.name == _DATA and directory.name.startswith("dledger-"):
            return cls(directory)
        roots = sorted(_dledger_logs(directory))
        if not roots:
            return None
        if len(roots) > 1:
            logs = ", ".join(map(str, roots))
            message = f"{directory} has more than one DLedger log ({logs}): copy it with one"
            raise NotAStore(message)
        return cls(roots[0])

    def has_committed(self, physical_offset: int) -> bool:
        """Return whether a record is known to be committed, or is of the log before this one."""
        return physical_offset <= self.committed_to or physical_offset < self._first

    def look_again(self) -> None:
        """Read again how far it is committed, if that moved. What cannot be read leaves it."""
        try:
            content = fs.read_bytes(self._root / _CHECKPOINT, limits.MAX_STATE_BYTES) or b""
            index = dledger.committed_index(content)
            if index is not None and index != self._index:
                self.committed_to = self._record_of(index)
                self._index = index
        except OSError:
            return

    def _record_of(self, index: int) -> int:
        """Return the physical offset of an entry's record; -1 if the index does not have it."""
        position = index * dledger.INDEX_ITEM.size
        bases = [int(e.name) for e in fs.entries(self._root / _INDEX) if e.name.isdigit()]
        base = max((base for base in bases if base <= position), default=None)
        if base is None:
            return -1
        path = self._root / _INDEX / f"{base:020}"
        item = fs.read_part(path, position - base, dledger.INDEX_ITEM.size) or b""
        if len(item) < dledger.INDEX_ITEM.size:
            return -1
        magic, offset, _, own_index, _ = dledger.INDEX_ITEM.unpack(item)
        is_item = magic == dledger.ENTRY_MAGIC and own_index == index
        return offset + dledger.ENTRY_HEADER_BYTES if is_item else -1


def _dledger_logs(directory: Path) -> list[Path]:
    try:
        found = islice(directory.glob("dledger-*"), limits.MAX_LOOKED_AT_ENTRIES)
        return [root for root in found if any(fs.entries(root / _DATA))]
    except OSError:
        return []

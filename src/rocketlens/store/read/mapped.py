"""Caches mapped files that are used often, within a bound."""

import errno
from dataclasses import dataclass
from pathlib import Path

from rocketlens.store import fs


@dataclass(slots=True)
class _Kept:
    size: int
    mapped: fs.MappedFile
    looked_at: int
    """The round in which the file was last checked."""


class MappedFiles:
    """Mapped files by path. A dropped one stays mapped as long as a caller holds it.

    Another process may put another file in a file's place, or cut it. So a caller says which file
    it means, and :meth:`look_again` has each one looked at again when it is next asked for.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self._files: dict[Path, _Kept] = {}
        self._round = 0

    def get(self, path: Path, size: int, file_id: fs.FileId | None = None) -> fs.MappedFile:
        """Return the first ``size`` bytes of a file; map it again if another size is needed.

        ``file_id``: the file that is meant, when that is known.

        :raises OSError: when it cannot be opened; ESTALE when another file is there now, or this
            one was cut after it was mapped.
        """
        entry = self._files.get(path)
        if (
            entry is not None
            and entry.size == size
            and (file_id is None or entry.mapped.file_id == file_id)
        ):
            if entry.looked_at == self._round:
                return entry.mapped
            entry.looked_at = self._round
            if not entry.mapped.is_cut():
                return entry.mapped
            del self._files[path]
            raise OSError(errno.ESTALE, "the file was cut short", str(path))
        mapped = self._mapped(path, size)
        if file_id is not None and mapped.file_id != file_id:
            raise OSError(errno.ESTALE, "another file is there now", str(path))
        self._files.pop(path, None)
        if len(self._files) >= fs.max_mapped_files():
            del self._files[next(iter(self._files))]
        self._files[path] = _Kept(size, mapped, self._round)
        return mapped

    def _mapped(self, path: Path, size: int) -> fs.MappedFile:
        try:
            return fs.MappedFile(path, size)
        except OSError as error:
            if error.errno not in fs.CANNOT_NOW_ERRORS or not self._files:
                raise
        # Mappings in this cache use the descriptors that are needed now.
        self._files.clear()
        return fs.MappedFile(path, size)

    def look_again(self) -> None:
        """Check each file again before it is next returned: it may have been cut."""
        self._round += 1

    def drop(self, path: Path) -> None:
        """Drop one file from the cache."""
        self._files.pop(path, None)

    def close(self) -> None:
        """Unmap all files that no caller holds."""
        for kept in self._files.values():
            kept.mapped.close()
        self._files.clear()

"""Keeps files mapped while they are used often, and never too many at once."""

from pathlib import Path
from typing import Final

from rocketlens.store import fs

MOST_MAPPED: Final = 256
"""Mappings kept at once: each holds an open file, of which a process has perhaps 1,024."""


class MappedFiles:
    """Mapped files by path. One that is given up stays mapped as long as someone holds it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._files: dict[Path, tuple[int, fs.MappedFile]] = {}

    def get(self, path: Path, size: int) -> fs.MappedFile:
        """Give the first ``size`` bytes of a file, mapped again when another size was asked before.

        :raises OSError: when it cannot be opened.
        """
        found = self._files.get(path)
        if found is not None and found[0] == size:
            return found[1]
        mapped = fs.MappedFile(path, size)
        self._files.pop(path, None)
        if len(self._files) >= MOST_MAPPED:
            del self._files[next(iter(self._files))]
        self._files[path] = size, mapped
        return mapped

    def drop(self, path: Path) -> None:
        """Give up one file, if it is there."""
        self._files.pop(path, None)

    def close(self) -> None:
        """Unmap all that nobody else holds."""
        for _, mapped in self._files.values():
            mapped.close()
        self._files.clear()

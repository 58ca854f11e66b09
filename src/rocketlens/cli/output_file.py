"""A file that a command writes: it appears when it is whole, and replaces none unasked."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Final, Self

from rocketlens.errors import BadInput

INCOMPLETE: Final = ".incomplete"
"""Suffix of the file that an incomplete answer is written to."""


def add_overwrite(parser: ArgumentParser) -> None:
    """Add ``--overwrite``."""
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


class OutputFile:
    """A file that is written under another name, `partial`, and renamed by `finish`."""

    def __init__(self, name: str, *, overwrite: bool) -> None:
        """Check that the file can be written.

        :raises BadInput: if it exists, and is not to be replaced, or its directory does not.
        """
        self.path: Final = Path(name)
        self._overwrite: Final = overwrite
        self.partial: Final = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        if self.path.is_dir():
            raise BadInput(f"{self.path} is a directory: name a file in it")
        if not self.path.parent.is_dir():
            raise BadInput(f"{self.path.parent} is not a directory")
        if self.path.exists() and not overwrite:
            raise BadInput(f"{self.path} exists: --overwrite replaces it")

    def __enter__(self) -> Self:
        """Return the file, whose `partial` the caller writes."""
        return self

    def finish(self, *, is_whole: bool) -> Path:
        """Rename what was written, durably; return its name: another one if it is not whole.

        :raises BadInput: if the file was made meanwhile; what was written has the other name.
        """
        _sync(self.partial)
        other = self.path.with_name(self.path.name + INCOMPLETE)
        if is_whole and not self._overwrite:
            try:
                # Unlike a rename, this fails if there is a file.
                os.link(self.partial, self.path)
            except FileExistsError:
                self.partial.replace(other)
                raise BadInput(
                    f"{self.path} was made by another program meanwhile, and is kept: the result "
                    f"is {other}, and is whole"
                ) from None
            except OSError:
                # A file system without hard links.
                self.partial.replace(self.path)
        else:
            self.partial.replace(self.path if is_whole else other)
        _sync(self.path.parent)
        return self.path if is_whole else other

    def __exit__(self, *_: object) -> None:
        """Remove what was not finished."""
        self.partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

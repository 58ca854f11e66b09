"""How many entries of an index a question reads, whatever is in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from rocketlens.formats.index_file import ENTRY_BYTES
from rocketlens.store.read.index.index import IndexFile

READS_OF_AN_ENTRY = 20
"""At most, of one question: a walk reads an entry and its neighbours; there are several walks."""

READS_OF_SAMPLES = 320 * 40
"""At most, of the first question to a file that is sampled: each sample is looked for twice."""


@contextmanager
def few_entries_read(store: Path) -> Iterator[None]:
    """Check that what is asked inside walks no chain of the store's index round and round."""
    read = 0
    entry = IndexFile.entry

    def counted(file: IndexFile, number: int):
        nonlocal read
        read += 1
        return entry(file, number)

    with patch.object(IndexFile, "entry", counted):
        yield
    index = store / "index"
    room = sum(path.stat().st_size for path in index.iterdir()) if index.is_dir() else 0
    assert read <= READS_OF_SAMPLES + READS_OF_AN_ENTRY * (room // ENTRY_BYTES + 1)

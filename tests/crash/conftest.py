"""What tests of crashes share."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """Give an empty directory in memory where there is such: thousands of stores are made there."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="rocketlens-", dir=MEMORY))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)

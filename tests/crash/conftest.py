"""What tests of crashes share."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketlens.store.read.index import tail
from rocketlens.store.read.log import scan

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


@pytest.fixture(params=["interpreted", "compiled"])
def reading(request, monkeypatch):
    """Read the log with and without the compiled kernels."""
    is_compiled = request.param == "compiled"
    if is_compiled:
        monkeypatch.setattr(scan, "_SHORT_BYTES", 0)
    monkeypatch.setattr(tail.Tail, "is_compiled", is_compiled)
    monkeypatch.setattr(scan.LogWalk, "is_compiled", is_compiled)

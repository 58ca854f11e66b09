"""Stores that tests of several modules begin with."""

import pytest
from msgspec.structs import replace

from tests.support.written_stores import QUIET, open_small, send_many


@pytest.fixture
def log_only(tmp_path):
    """A store of 200 messages without index files, and where its log ends."""
    path = tmp_path / "store"
    with open_small(path, options=replace(QUIET, build_index=False)) as store:
        send_many(store, 200)
        return path, store.end_offset

"""A store of RocketMQ's own files, for tests of what reads them."""

import pytest

from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import make_store, some_messages


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)


@pytest.fixture
def log(made):
    opened = CommitLog(made.path / "commitlog")
    yield opened
    opened.close()

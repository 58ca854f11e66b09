"""A store of sixty messages."""

import pytest

import rocketlens
from tests.support.made_stores import make_store, some_messages


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("find") / "store", some_messages(60))


@pytest.fixture
def store(made):
    with rocketlens.open_store(made.path) as opened:
        yield opened

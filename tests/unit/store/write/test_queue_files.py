"""Consume queue files of another size are refused and stay as they are."""

import shutil
from dataclasses import replace

import pytest

from rocketlens.errors import BadInput
from tests.unit.store.written_stores import (
    SMALL,
    content_of,
    open_small,
    send_many,
)


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("size", [300, 500, 900, 1200, 6_000_000])
def test_queue_files_of_another_size_are_refused_with_theirs_named_and_stay(
    tmp_path, size, with_state
):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    if not with_state:
        shutil.rmtree(tmp_path / "rocketlens")
    before = content_of(tmp_path)
    with pytest.raises(BadInput, match="mappedFileSizeConsumeQueue must be 600") as error:
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeConsumeQueue=size))
    assert str(size) in str(error.value)
    assert not (tmp_path / "abort").exists()
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []


def test_a_queue_file_that_is_too_long_is_refused_and_not_cut(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    file = min((tmp_path / "consumequeue/Orders/1").iterdir())
    with file.open("ab") as longer:
        longer.write(bytes(20))
    with pytest.raises(BadInput, match=f"{file.name} has 620 bytes"):
        open_small(tmp_path)
    assert file.stat().st_size == 620

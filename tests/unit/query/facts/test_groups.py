"""Consumer groups of store directories that real brokers wrote, and of damaged ones."""

import shutil

import pytest

import rocketlens


@pytest.fixture
def store(golden, tmp_path):
    shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    return tmp_path / "store"


def groups_of(store):
    with rocketlens.open_store(store) as opened:
        return opened.groups()


def test_groups_are_those_that_the_files_name(store):
    config = store / "config"
    (config / "consumerOffset.json").write_text(
        '{"offsetTable":{"PayTopic@g":{0:1},"T@h":{"x":1}}}'
    )
    answer = groups_of(store)
    assert answer.complete
    [group] = [each for each in answer.groups if each.name == "g"]
    [queue] = group.queues
    assert (queue.topic, queue.queue_id, queue.consumer_offset) == ("PayTopic", 0, 1)
    assert queue.lag == queue.max_offset - 1
    assert group.members is None
    assert "TOOLS_CONSUMER" not in [each.name for each in answer.groups]


@pytest.mark.parametrize("content", [None, "{", "[]", '{"offsetTable":7}'])
def test_a_file_that_cannot_be_used_makes_it_incomplete(store, content):
    for each in (store / "config").glob("consumerOffset.json*"):
        each.unlink()
    if content is not None:
        (store / "config" / "consumerOffset.json").write_text(content)
    answer = groups_of(store)
    assert not answer.complete
    assert [each.source for each in answer.coverage if each.is_failure] == [
        "config/consumerOffset.json"
    ]

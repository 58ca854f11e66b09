"""The files of a store say where groups go on, and not which clients they had."""

import json

import pytest

import rocketlens
from tests.support.story_world import KEY

OFFSETS = {
    "T@late": {"0": 0},
    "T@past": {"0": 1},
    "T@reset": {"0": 9_000},
    "T@elsewhere": {"1": 5},
    "U@other": {"0": 1},
    "T@TOOLS_CONSUMER": {"0": 1},
}
FILES = {
    "consumerOffset.json": {"offsetTable": OFFSETS, "pullOffsetTable": {"T@reset": {"0": 0}}},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": {"past": {"groupName": "past", "retryMaxTimes": 3}}
    },
}


@pytest.fixture
def store(write_store):
    path = write_store({"properties": {"UNIQ_KEY": KEY}})
    (path / "config").mkdir()
    for name, content in FILES.items():
        (path / "config" / name).write_text(json.dumps(content))
    return path


def story_of(path, **options):
    with rocketlens.open_store(path) as store:
        return store.story(KEY, **options)


def test_each_group_with_an_offset_in_the_topic_has_a_state(store):
    story = story_of(store)
    assert {each.group: each.state.value for each in story.groups} == {
        "elsewhere": "not_yet",
        "late": "not_yet",
        "past": "passed",
        "reset": "passed_by_reset",
    }
    assert {each.source for each in story.groups} == {"config/consumerOffset.json"}
    assert [each.max_retries for each in story.groups] == [None, None, 3, None]
    assert "which clients were online" in story.unlearnt[-1].what
    assert story.complete


def test_a_group_that_is_asked_for_is_told_of_alone(store):
    [group] = story_of(store, group="other").groups
    assert (group.state.value, group.rests_on) == (
        "never_subscribed",
        "it has no offset in topic T",
    )


@pytest.mark.parametrize("content", [None, "{"])
def test_offsets_that_cannot_be_read_are_not_known_and_not_absent(store, content):
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    story = story_of(store, group="past")
    assert [each.state.value for each in story.groups] == ["unknown"]
    assert not story.complete


def test_a_file_without_pull_offsets_is_one_of_rocketmq_4(store):
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@reset":{"0":9000}}}')
    story = story_of(store)
    assert [each.state.value for each in story.groups] == ["passed"]
    assert story.complete


@pytest.mark.parametrize(
    ("retry_topic", "given"),
    [
        ("%RETRY%a_b_T", {"ORIGIN_GROUP": "a_b"}),
        ("%RETRY%a_b_T", {}),
        ("%RETRY%a_b+T", {"ORIGIN_GROUP": "a_b"}),
    ],
)
@pytest.mark.parametrize("text", [KEY, "T/0/0"])
def test_retries_of_pop_are_those_of_their_group(write_store, retry_topic, given, text):
    pop = {"UNIQ_KEY": KEY, "1ST_POP_TIME": "1", **given}
    path = write_store(
        {"properties": {"UNIQ_KEY": KEY}},
        *(
            {"topic": retry_topic, "properties": pop, "queue_offset": n, "reconsume_times": n + 1}
            for n in range(2)
        ),
    )
    (path / "config").mkdir()
    offsets = {"T@a_b": {"0": 1}, f"{retry_topic}@a_b": {"0": 2}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    with rocketlens.open_store(path) as store:
        story = store.story(text)
        groups = store.groups().groups
    [group] = story.groups
    assert (group.group, group.state, group.retries) == ("a_b", "consumed", 2)
    assert "it goes on there at 2" in group.rests_on
    assert [each.text for each in story.events if each.kind == "retry"] == [
        f"retry {n} of group a_b stored as {retry_topic}/0/{n - 1}" for n in (1, 2)
    ]
    assert [(each.name, each.lag, each.to_retry) for each in groups] == [("a_b", 0, 0)]

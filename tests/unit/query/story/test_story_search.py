"""A story is gathered from all topics and sources, and names what failed."""

import asyncio
import json

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import limits
from rocketlens.errors import BadInput, CallTimeout, TopicNotFound
from rocketlens.query.request import FindRequest, StoryRequest
from rocketlens.query.story.store_story import StoreStorySource
from rocketlens.query.story.story_search import find_story
from rocketlens.query.threaded_source import ThreadedSource
from tests.support.story_world import KEY
from tests.unit.conftest import NOON_MS

UNIQUE = {"UNIQ_KEY": KEY, "KEYS": "order-1"}
WAITS = {**UNIQUE, "REAL_TOPIC": "%RETRY%g", "DELAY": "3"}
TRACE = "\x01".join(
    ("SubAfter", "r1", KEY, "5", "true", "order-1", "0", str(NOON_MS + 900), "h", "\x02")
)


def messages():
    return (
        {"properties": UNIQUE},
        {"topic": "SCHEDULE_TOPIC_XXXX", "reconsume_times": 1, "properties": WAITS},
        {"topic": "%RETRY%g", "reconsume_times": 1, "properties": UNIQUE},
        {"topic": "RMQ_SYS_TRACE_TOPIC", "body": TRACE.encode(), "properties": {"KEYS": KEY}},
        {"topic": "T", "properties": {"KEYS": "order-1", "UNIQ_KEY": KEY[::-1]}},
    )


@pytest.fixture
def store(write_store):
    path = write_store(*messages())
    (path / "config").mkdir()
    offsets = {"T@g": {"0": 1}, "%RETRY%g@g": {"0": 0}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return path


@pytest.mark.parametrize("text", [KEY, "T/0/0", "order-1", "%RETRY%g/0/2"])
def test_the_story_is_the_same_by_any_name_of_the_message(store, text):
    with rocketlens.open_store(store) as opened:
        story = opened.story(text, one=True)
    assert story.message.topic == "T"
    assert story.message.unique_key == KEY
    topics = [each.topic for each in story.events if each.topic]
    assert topics == ["T", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"]
    assert [(each.group, each.state.value) for each in story.groups] == [
        ("g", "retrying"),
        ("h", "consumed"),
    ]
    assert story.others == (("T/0/4",) if text == "order-1" else ())
    assert story.complete


def test_the_story_of_a_business_key_is_that_of_each_message(write_store):
    paid = {"KEYS": "order-1", "UNIQ_KEY": "P"}
    waits = {"KEYS": "order-1", "UNIQ_KEY": "W", "REAL_TOPIC": "pay", "DELAY": "18"}
    path = write_store(
        *messages(),
        {"topic": "pay", "properties": paid},
        {"topic": "%DLQ%billing", "properties": paid},
        {"topic": "SCHEDULE_TOPIC_XXXX", "properties": waits},
    )
    with rocketlens.open_store(path) as opened:
        story = opened.story("order-1")
        alone = opened.story("order-1", one=True)
    # The worst one first, and each message once, whatever its records are.
    positions = [each.message.position for each in (story, *story.more)]
    assert positions == ["pay/0/5", "T/0/0", "SCHEDULE_TOPIC_XXXX/0/7", "T/0/4"]
    assert story.summary.startswith("order-1: 4 messages; pay/0/5 is a dead letter of billing ")
    assert story.others == ()
    assert (alone.message.position, alone.more, alone.summary) == ("T/0/0", (), "")
    assert alone.others == ("T/0/4", "pay/0/5", "SCHEDULE_TOPIC_XXXX/0/7")


def test_nothing_found_is_a_story_without_a_message(store):
    with rocketlens.open_store(store) as opened:
        story = opened.story("nothing")
        assert (story.message, story.complete, story.events) == (None, True, ())
        with pytest.raises(TopicNotFound):
            opened.story("order-1", "U")
        with pytest.raises(BadInput):
            opened.story("order-1", kind="queue-offset")


class Failing:
    """The source of a store, of which some questions fail."""

    def __init__(self, store, fails):
        self.inner, self.fails = ThreadedSource(store.source), fails
        self.source, self.knowing = self, StoreStorySource(store.source)
        self.name, self.kind, self.is_one_log = "failing", store.source.kind, True

    async def find(self, request, findings):
        if self.fails(request):
            raise CallTimeout("10.0.0.5:10911", "no answer in 5 s")
        await self.inner.find(request, findings)

    async def check_topics(self, names, findings):
        await self.inner.check_topics(names, findings)

    async def facts(self, *asked):
        if self.fails(None):
            raise CallTimeout("10.0.0.5:10911", "no answer in 5 s")
        return self.knowing.facts(*asked)

    def copy_topics(self, messages):
        return self.knowing.copy_topics(messages)

    def said_by(self, message):
        return self.knowing.said_by(message)


def is_copies(request):
    return request is not None and request.kind == "unique-key"


def is_trace(request):
    return request is not None and "RMQ_SYS_TRACE_TOPIC" in request.topics


def is_hand_out(request):
    return request is not None and any(each.startswith("rmq_sys_REVIVE") for each in request.topics)


@pytest.mark.parametrize(
    ("fails", "what"),
    [
        (is_copies, "copies of the message"),
        (is_trace, "its trace"),
        (is_hand_out, "whether POP handed it out"),
        (lambda request: request is None, "what groups did"),
    ],
)
def test_what_fails_is_named_and_makes_the_story_incomplete(store, fails, what):
    with rocketlens.open_store(store) as opened:
        asked = [Failing(opened, fails)]
        story = asyncio.run(find_story(StoryRequest(FindRequest("T/0/0")), asked))
    assert story.message is not None
    assert not story.complete
    [failed] = [each for each in story.unlearnt if each.is_failure]
    assert (failed.what, "no answer in 5 s" in failed.why) == (what, True)


def test_more_records_than_a_story_is_told_from_are_named(store, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STORY_RECORDS", 2)
    with rocketlens.open_store(store) as opened:
        story = opened.story(KEY)
    assert not story.complete
    why = "more than 2 records have its unique key: the oldest were left out"
    assert ("all records of the message", why) in [(each.what, each.why) for each in story.unlearnt]


def test_more_matches_than_a_story_is_told_from_are_named(store, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STORY_RECORDS", 1)
    with rocketlens.open_store(store) as opened:
        story = opened.story("order-1")
    assert not story.complete
    why = "more than 1 messages match order-1: the oldest were left out"
    assert why in [each.why for each in story.unlearnt]


@pytest.mark.parametrize(
    ("trace_topic", "said"), [("U", "has no trace of it"), ("V", "does not exist")]
)
def test_a_message_without_a_trace_says_what_a_trace_needs(write_store, trace_topic, said):
    path = write_store({"properties": UNIQUE}, {"topic": "U"})
    with rocketlens.open_store(path) as opened:
        story = opened.story(KEY, trace_topic=trace_topic)
    why = f"topic {trace_topic} {said}: clients write traces only if that is switched on"
    assert ("what its clients reported (trace)", why, False) in [
        (each.what, each.why, each.is_failure) for each in story.unlearnt
    ]


def test_a_damaged_trace_is_named(write_store):
    broken = {"topic": "traces", "body": b"Pub\x01x\x02", "properties": {"KEYS": KEY}}
    path = write_store({"properties": UNIQUE}, broken)
    with rocketlens.open_store(path) as opened:
        story = opened.story(KEY, trace_topic="traces")
    [damaged] = [each for each in story.unlearnt if each.what == "part of its trace"]
    assert damaged.why.startswith("a trace message has a Pub record of 2 fields")


def test_a_message_that_still_waits_has_no_groups(write_store):
    half = {**UNIQUE, "REAL_TOPIC": "T", "TRAN_MSG": "true"}
    path = write_store({"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "properties": half})
    with rocketlens.open_store(path) as opened:
        story = opened.story(KEY)
    assert ([each.kind for each in story.events], story.groups) == (["sent", "half"], ())


RETRIED = "\x01".join(
    ("SubAfter", "r1", KEY, "5", "true", "order-1", "0", str(NOON_MS + 900), "g", "\x02")
)
RETRY_BEGAN = "\x01".join(("SubBefore", str(NOON_MS), "R", "g", "r1", KEY, "1", "order-1", "\x02"))


class Growing(Failing):
    """The source of a store, whose retry is stored after the first search."""

    def __init__(self, store):
        super().__init__(store, lambda _: False)
        self.searches = 0

    async def find(self, request, findings):
        self.searches += 1
        if self.searches == 1:
            request = replace(request, topics=("T",))
        await self.inner.find(request, findings)


def test_a_retry_that_is_stored_and_consumed_meanwhile_is_told(write_store):
    path = write_store(
        {"properties": UNIQUE},
        {"topic": "%RETRY%g", "reconsume_times": 1, "properties": UNIQUE},
        *(
            {"topic": "RMQ_SYS_TRACE_TOPIC", "body": each.encode(), "properties": {"KEYS": KEY}}
            for each in (RETRY_BEGAN, RETRIED)
        ),
    )
    with rocketlens.open_store(path) as opened:
        story = asyncio.run(find_story(StoryRequest(FindRequest(KEY)), [Growing(opened)]))
    assert [each.topic for each in story.events if each.topic] == ["T", "%RETRY%g"]
    [group] = story.groups
    assert (group.group, group.state.value, group.retries) == ("g", "consumed", 1)

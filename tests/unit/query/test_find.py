"""Questions to any source: keywords, narrowing by topics and times, and what waits for a topic."""

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.model.life import time_text
from rocketlens.query import options
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest, StoryRequest, tail_filter
from rocketlens.query.source import Source, run, run_in_loop
from rocketlens.query.store_reader import StoreReader
from rocketlens.query.store_source import StoreSource
from rocketlens.query.threaded_source import ThreadedSource
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.doors import DOORS, console
from tests.support.made_stores import Sent, make_store
from tests.unit.conftest import NOON_MS
from tests.unit.tap.tapping import log_of, reaches, tapped


def test_an_answer_ends_at_its_bytes_and_says_so(tmp_path, monkeypatch):
    sent = [Sent(keys="k", body=b"x" * 1000) for _ in range(10)]
    made = make_store(tmp_path / "store", sent)
    monkeypatch.setattr(
        limits, "MAX_ANSWER_BYTES", 3 * (1000 + limits.MESSAGE_OVERHEAD_BYTES) + 1500
    )
    with rocketlens.open_store(made.path) as store:
        for answer in (store.find("k"), store.find(topic="Orders")):
            assert [m.physical_offset for m in answer] == [
                r.physical_offset for r in made.records[-3:]
            ]
            assert answer.truncated


class EndlessSource:
    """Has one message, and then goes on for ever."""

    name, kind, is_one_log = "endless", SourceKind.BROKER, False

    def __init__(self, message):
        self.message = message
        self.is_under_way = asyncio.Event()

    async def find(self, _, findings):
        findings.add(self.message)
        self.is_under_way.set()
        await asyncio.Event().wait()


def test_a_cancelled_search_ends_with_what_it_found_if_that_is_wanted(store):
    message = next(iter(store.scan()))

    async def cancelled(**options):
        source = EndlessSource(message)
        search = asyncio.create_task(find(FindRequest.parse(None, "Orders"), source, **options))
        await source.is_under_way.wait()
        search.cancel()
        return await search

    told = []
    answer = asyncio.run(cancelled(on_cancelled=lambda: told.append("cancelled")))
    assert (list(answer), told) == ([message], ["cancelled"])
    assert not answer.complete
    (coverage,) = answer.coverage
    assert (coverage.source, coverage.state) == ("endless", SourceState.FAILED)
    assert coverage.error == "interrupted"
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
LATER_MS = 4_102_444_800_000


def kept(topic, unique_key, real="pay", **given):
    properties = {"REAL_TOPIC": real, "KEYS": "order-1", "UNIQ_KEY": unique_key, **given}
    return {"topic": topic, "properties": properties, "store_timestamp_ms": NOON_MS}


def timer(unique_key="U1", **given):
    return kept(TIMER, unique_key, TIMER_OUT_MS=str(LATER_MS), **given)


def delivered(unique_key, **given):
    properties = {"KEYS": "order-1", "UNIQ_KEY": unique_key}
    given = {"store_timestamp_ms": NOON_MS + 9, **given}
    return {"topic": "pay", "properties": properties, **given}


def found(path, *question, **options):
    with rocketlens.open_store(path) as store:
        answer = store.find(*question, **options)
    return answer, [each.note for each in answer.coverage if each.source == "waiting"]


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (("order-1", "pay"), {}),
        (("U1", "pay"), {}),
        (("order-1", "p*"), {}),
        ((None, "pay"), {"max_num": 3}),
        ((None, "pay"), {"begin": NOON_MS - 5, "max_num": 3}),
    ],
)
def test_a_message_that_waits_is_found_by_its_topic(write_store, monkeypatch, question, options):
    monkeypatch.setattr("time.time_ns", lambda: (NOON_MS + 1) * 1_000_000)
    path = write_store(timer(), timer("U2", REAL_TOPIC="other"), {"topic": "pay"})
    answer, notes = found(path, *question, **options)
    assert answer.complete
    assert [each.topic for each in answer if each.topic != "pay"] == [TIMER]
    assert len(notes) == 1
    assert notes[0].startswith(f"{TIMER}/0/0 waits for pay: due ")
    alone, notes = found(path, *question, only_delivered=True, **options)
    assert TIMER not in [each.topic for each in alone]
    assert notes == []


@pytest.mark.parametrize("question", [("order-1", "pay"), (None, "pay")])
def test_what_waits_in_a_copied_store_is_not_called_late(write_store, run, question):
    path = write_store(kept(SCHEDULE, "U1", DELAY="3"), delivered("U2"))
    answer, notes = found(path, *question, max_num=3)
    assert [each.unique_key for each in answer if each.topic == SCHEDULE] == ["U1"]
    due, end = (time_text(NOON_MS + after_ms) for after_ms in (10_000, 9))
    known = (
        f"due {due} (delay level 3, 10s by default); the newest message there was stored at {end}"
    )
    assert notes == [f"{SCHEDULE}/0/0 waits for pay: {known}"]
    with rocketlens.open_store(path) as store:
        assert any(known in each.text for each in store.story("U1").events)
    assert known in run("show", "U1", "--store", path).out


def test_its_id_finds_it_too(write_store):
    path = write_store(timer(), {"topic": "other"})
    msg_id = found(path, "order-1")[0].messages[0].offset_msg_id
    assert len(found(path, msg_id, "pay")[0]) == 1
    assert len(found(path, msg_id, "other")[0]) == 0


@pytest.mark.parametrize("topic", [SCHEDULE, HALF])
def test_what_was_delivered_is_there_once(write_store, topic):
    path = write_store(kept(topic, "U1", DELAY="3"), kept(topic, "U2", DELAY="3"), delivered("U1"))
    answer, notes = found(path, "order-1", "pay")
    assert [each.position for each in answer] == [f"{topic}/0/1", "pay/0/2"]
    assert len(notes) == 1


def test_a_recalled_message_is_said_to_be_recalled(write_store):
    path = write_store(timer(), timer(TIMER_DEL_UNIQKEY="U1"))
    answer, notes = found(path, "order-1", "pay")
    assert len(answer) == 1
    assert "recalled at" in notes[0]


def test_what_was_delivered_is_not_among_the_newest(write_store):
    path = write_store(kept(SCHEDULE, "U1", DELAY="3"), delivered("U1"))
    assert [each.topic for each in found(path, None, "pay", max_num=9)[0]] == ["pay"]


def test_system_topics_are_searched_alone(write_store):
    path = write_store(timer(), {"topic": SCHEDULE, "properties": {"KEYS": "order-1"}})
    assert [each.topic for each in found(path, "order-1", SCHEDULE)[0]] == [SCHEDULE]


TOPIC, KEY = "Payments", "order-4713"
TWO_HOURS = 18
"""The delay level."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    directory = tmp_path_factory.mktemp("waiting")
    with cluster(directory / "broker", flushDiskType="SYNC_FLUSH") as running:
        with running.producer() as producer:
            producer.send(Message(TOPIC, "there", keys="order-1"))
            producer.send(Message(TOPIC, "waits", keys=KEY, delay_level=TWO_HOURS))
            producer.send(Message("Other", "waits", keys=KEY, delay_level=TWO_HOURS))
        archive_store(directory / "lake", running.store)
        where = {"store": running.store, "cluster": running.name_server}
        lake, taps = directory / "lake", directory / "taps"
        asyncio.run(tap(running.store, taps))
        copies = {"archive": lake, "tap": taps / "broker-a"}
        yield {**where, **copies, "several": [*where.values(), *copies.values()]}


async def tap(store, directory):
    with rocketlens.open_store(store) as opened:
        newest = opened.find(topic="*", all_topics=True, max_num=1).messages[0]
    end = newest.physical_offset + newest.store_size
    async with tapped(directory, log_of(store, 0, end)) as (_, running):
        await reaches(running, end)


ALL_DOORS = [*DOORS, *((door, "tap") for door, kind in DOORS if kind == "store")]


@pytest.mark.parametrize("door", ALL_DOORS, ids=lambda each: f"{each[0].__name__} {each[1]}")
def test_a_delayed_message_is_found_by_its_topic(places, door):
    opened, kind = door
    with opened("store" if kind == "tap" else kind, places[kind]) as ask:
        answer = ask(text=KEY, topic=TOPIC)
        assert (answer.positions, answer.complete) == (["SCHEDULE_TOPIC_XXXX/17/0"], True)
        answer = ask(topic=TOPIC, max_num=5)
        assert sorted(each.partition("/")[0] for each in answer.positions) == [
            TOPIC,
            "SCHEDULE_TOPIC_XXXX",
        ]
        assert answer.complete
        if opened is console:
            return
        # The console always shows what waits.
        answer = ask(text=KEY, topic=TOPIC, only_delivered=True)
        assert (answer.positions, answer.complete) == ([], True)
        answer = ask(topic=TOPIC, max_num=5, only_delivered=True)
        assert [each.partition("/")[0] for each in answer.positions] == [TOPIC]


def test_a_store_and_a_cluster_are_sources(made):
    reader = StoreReader(made.path)
    store, cluster = ThreadedSource(StoreSource(reader)), MQAdmin("127.0.0.1:9876").source
    for source, kind, name in (
        (store, SourceKind.COMMIT_LOG, str(made.path)),
        (cluster, SourceKind.BROKER, "127.0.0.1:9876"),
    ):
        assert isinstance(source, Source)
        assert (source.kind, source.name) == (kind, name)
    reader.close()


@pytest.mark.parametrize("other", [object(), "store", None])
def test_what_cannot_find_is_not_a_source(other):
    assert not isinstance(other, Source)


FUNCTIONS = {
    options.FindOptions: (
        FindRequest.parse,
        rocketlens.Store.find,
        rocketlens.MQAdmin.find,
        rocketlens.SyncMQAdmin.find,
        rocketlens.find,
        rocketlens.find_async,
    ),
    options.ScanOptions: (FindRequest.parse, rocketlens.Store.scan, rocketlens.MQAdmin.scan),
    options.TailOptions: (tail_filter, rocketlens.Store.tail, rocketlens.MQAdmin.tail),
    options.StoryOptions: (
        StoryRequest.parse,
        rocketlens.Store.story,
        rocketlens.MQAdmin.story,
        rocketlens.SyncMQAdmin.story,
        rocketlens.story,
        rocketlens.story_async,
    ),
}


@pytest.mark.parametrize(
    ("declared", "function"),
    [(declared, each) for declared, functions in FUNCTIONS.items() for each in functions],
    ids=lambda one: one.__qualname__,
)
def test_every_function_shows_the_keywords_with_one_default(declared, function):
    first = inspect.signature(FUNCTIONS[declared][0]).parameters
    shown = inspect.signature(function).parameters
    assert {name: shown[name].default for name in declared.__annotations__} == {
        name: first[name].default for name in declared.__annotations__
    }
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in shown.values()}


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda one: one.__name__)
def test_the_meaning_of_each_keyword_is_told_where_it_is_declared(declared):
    text = Path(options.__file__).read_text(encoding="utf-8")
    for name in declared.__annotations__:
        assert f"``{name}``" in text


def test_a_keyword_that_is_not_taken_is_refused_with_what_was_meant(tmp_path):
    log = tmp_path / "commitlog" / "00000000000000000000"
    log.parent.mkdir()
    log.write_bytes(bytes(1024))
    with rocketlens.open_store(tmp_path) as store:
        with pytest.raises(TypeError, match=r"find\(\) has no argument 'max'.*max_num"):
            store.find("k", max=1)
        for name, meant in (("since", "begin"), ("until", "end"), ("limit", "max_num")):
            with pytest.raises(TypeError, match=rf"argument '{name}'; did you mean {meant}\?$"):
                store.find("k", **{name: 1})
        with pytest.raises(TypeError, match=r"argument 'limit'; did you mean newest\?$"):
            store.tail("T", limit=1)
        with pytest.raises(TypeError, match=r"tail\(\) has no argument 'tag'.*tags"):
            store.tail("T", tag="A")
    with pytest.raises(TypeError, match=r"find_async\(\) has no argument 'topics'"):
        asyncio.run(rocketlens.find_async("k", sources=[tmp_path], topics="T"))


def test_a_function_that_is_awaited_is_one_still():
    assert inspect.iscoroutinefunction(rocketlens.MQAdmin.find)


class Endless:
    """Reads until nothing waits for it any more."""

    name, kind, is_one_log = "endless", SourceKind.COMMIT_LOG, True

    def __init__(self):
        self.is_under_way, self.has_ended = threading.Event(), threading.Event()

    def find(self, _request, findings):
        self.is_under_way.set()
        while findings.report_read(1, None, 1):
            pass
        self.has_ended.set()


class Recording:
    """Remembers in which thread what was asked."""

    name, kind, is_one_log = "recording", SourceKind.COMMIT_LOG, True

    def __init__(self):
        self.calls = []

    def find(self, request, _findings):
        self.calls.append((request.text, threading.current_thread()))

    def check_topics(self, names, _findings):
        self.calls.append((names, threading.current_thread()))


def nothing():
    return Findings(AnswerMessages(None))


async def test_a_search_whose_caller_is_cancelled_ends_at_its_next_step():
    local = Endless()
    searching = asyncio.create_task(ThreadedSource(local).find(FindRequest("k"), nothing()))
    await asyncio.to_thread(local.is_under_way.wait)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    await asyncio.to_thread(local.has_ended.wait)


async def test_a_source_is_asked_in_another_thread():
    local = Recording()
    source = ThreadedSource(local)
    await source.find(FindRequest("k"), nothing())
    await source.check_topics(["T"], nothing())
    assert [asked for asked, _ in local.calls] == ["k", ["T"]]
    assert threading.current_thread() not in [thread for _, thread in local.calls]
    assert (await source.oldest_ms(), await source.lacks(["T"])) == ({}, False)


def test_steps_get_the_answer_or_the_error_of_each_question():
    def steps():
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            first = yield lambda: 1
        return first + (yield lambda: 2)

    assert run(steps()) == 3
    assert asyncio.run(run_in_loop(steps())) == 3

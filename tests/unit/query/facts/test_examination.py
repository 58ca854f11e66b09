"""The log, queues and offsets of a store against each other, and what groups did with messages."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens import limits
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.status import StoreClosing
from rocketlens.query.facts.examination import Depth, QueueFaultKind, StoreExamination, writer_of
from rocketlens.query.facts.group_state import GroupFacts, GroupState, Subscribed, judge, passes
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from tests.support.made_stores import Sent, make_store
from tests.support.written_stores import open_small, send_many
from tests.unit.conftest import record

ENTRY = 20


@pytest.fixture
def reader(golden, tmp_path):
    """Open a copy of a golden store, which is closed afterwards."""
    opened = []

    def open_copy(change=lambda _: None, version="5.5.0"):
        store = shutil.copytree(golden(version).store, tmp_path / "store")
        change(store)
        opened.append(StoreReader(store))
        return opened[0]

    yield open_copy
    for each in opened:
        each.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_sound_store_has_no_fault(reader, version):
    opened = reader(version=version)
    examined = StoreExamination(opened, Depth.LOG)
    contents = examined.contents
    assert (contents.damage, contents.torn_at) == ([], None)
    for name, span in contents.spans.items():
        assert span.stop == opened.queues.queue(*name).max_offset
    assert list(examined.queue_faults()) == []
    assert list(examined.offset_faults()) == []


def fault_of(opened):
    (fault,) = StoreExamination(opened, Depth.LOG).queue_faults()
    return fault.kind, fault.name.topic, fault.name.queue_id, fault.first


def cut(store, count, queue="PayTopic/1"):
    (file,) = (store / "consumequeue" / queue).iterdir()
    content = file.read_bytes()
    file.write_bytes(content[: count * ENTRY].ljust(len(content), b"\0"))


def test_a_queue_that_was_cut_is_short(reader):
    opened = reader(lambda store: cut(store, 7))
    assert fault_of(opened) == (QueueFaultKind.SHORT, "PayTopic", 1, 7)


def test_a_queue_without_files_is_missing(reader):
    opened = reader(lambda store: shutil.rmtree(store / "consumequeue" / "PayTopic" / "1"))
    assert fault_of(opened) == (QueueFaultKind.MISSING, "PayTopic", 1, 0)


def test_a_last_entry_that_leads_to_another_record_is_astray(reader):
    def change(store):
        (file,) = (store / "consumequeue" / "PayTopic" / "1").iterdir()
        content = bytearray(file.read_bytes())
        end = len(content.rstrip(b"\0")) // ENTRY * ENTRY
        last = StoreReader(store).queues.queue("PayTopic", 1).max_offset - 1
        assert last * ENTRY < end + ENTRY
        content[last * ENTRY : last * ENTRY + 8] = (0).to_bytes(8, "big")
        file.write_bytes(content)

    opened = reader(change)
    faults = list(StoreExamination(opened, Depth.LOG).queue_faults())
    assert [each.kind for each in faults] == [QueueFaultKind.ASTRAY]


def test_a_file_between_others_that_is_missing_is_a_hole(tmp_path):
    with open_small(tmp_path / "store") as store:
        send_many(store, 200)
    opened = StoreReader(tmp_path / "store")
    name = opened.queues.names()[0]
    queue = opened.queues.queue(*name)
    assert len(queue.files) > 2
    lost = queue.files[1]
    lost.path.unlink()
    opened.close()
    opened = StoreReader(tmp_path / "store")
    (fault,) = [
        each
        for each in StoreExamination(opened, Depth.LOG).queue_faults()
        if each.kind is QueueFaultKind.HOLE
    ]
    assert (fault.name, fault.first) == (name, lost.first_queue_offset)
    assert fault.stop == lost.first_queue_offset + lost.entry_count
    opened.close()


def test_the_newest_messages_of_a_killed_broker_are_not_yet_dispatched(reader):
    def change(store):
        opened = StoreReader(store)
        newest = max(
            (opened.queues.queue(*name).last_entry().physical_offset, name)
            for name in opened.queues.names()
            if opened.queues.queue(*name).last_entry()
        )[1]
        end = opened.queues.queue(*newest).max_offset
        opened.close()
        cut(store, end - 1, f"{newest.topic}/{newest.queue_id}")

    opened = reader(change)
    assert fault_of(opened)[0] is QueueFaultKind.NOT_YET


def test_messages_of_a_deleted_topic_lack_no_queue(reader):
    def change(store):
        shutil.rmtree(store / "consumequeue" / "T22")
        topics = store / "config" / "topics.json"
        for path in (topics, topics.with_name("topics.json.bak")):
            if path.exists():
                path.write_text(path.read_text().replace('"T22"', '"T23"'))

    opened = reader(change)
    assert list(StoreExamination(opened, Depth.LOG).queue_faults()) == []


def test_a_log_that_is_too_long_is_not_read(reader, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TOPIC_SCAN_BYTES", 1000)
    opened = reader(lambda store: cut(store, 7))
    examined = StoreExamination(opened, Depth.LOG)
    assert examined.contents is None
    assert list(examined.queue_faults()) == []
    # What the queue lacks shows in the offset of a group that has consumed it.
    (fault,) = examined.offset_faults()
    assert (fault.group, fault.queue.queue_id, fault.queue.max_offset) == ("golden_cg", 1, 7)
    assert fault.is_beyond


@pytest.fixture
def store(golden, tmp_path):
    shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    return tmp_path / "store"


def status_of(store):
    with rocketlens.open_store(store) as opened:
        return opened.status()


def test_facts_agree_with_the_listings_that_they_are_taken_from(store):
    with rocketlens.open_store(store) as opened:
        status, topics, groups = opened.status(), opened.topics(), opened.groups()
        records = list(opened.scan(all_topics=True))
    assert status.complete
    assert status.groups == groups.groups
    assert status.newest_ms == max(each.store_timestamp_ms for each in records)
    assert status.oldest_ms == min(each.oldest_ms for each in topics.topics if each.oldest_ms)
    last = max(records, key=lambda each: each.physical_offset)
    assert status.end_offset == last.physical_offset + last.store_size
    # The last file is filled only in part.
    assert status.log_bytes == status.end_offset - status.min_offset
    assert status.log_bytes < sum(each.stat().st_size for each in (store / "commitlog").iterdir())
    files = (store / "consumequeue").rglob("0*")
    assert status.queue_bytes == sum(each.stat().st_size for each in files if each.is_file())


def test_without_groups_it_is_not_incomplete_for_want_of_their_files(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    with rocketlens.open_store(made.path) as opened:
        with_groups, without = opened.status(), opened.status(with_groups=False)
    assert (with_groups.complete, without.complete) == (False, True)
    assert without.groups == ()
    assert without.messages == with_groups.messages


def test_how_it_was_closed_follows_from_lock_and_abort(store):
    assert status_of(store).closing is StoreClosing.CLEAN
    (store / "abort").touch()
    assert status_of(store).closing is StoreClosing.KILLED
    with StoreLock(store):
        assert status_of(store).closing is StoreClosing.IN_USE


def test_log_that_no_index_file_covers_is_counted(store):
    before = status_of(store).index
    shutil.rmtree(store / "index")
    after = status_of(store)
    assert before.uncovered_bytes < 1000
    assert (after.index.files, after.index.entries, after.index.newest_ms) == (0, 0, None)
    assert after.index.uncovered_bytes == after.end_offset


@pytest.mark.parametrize(
    ("made", "writer"),
    [
        ((), "RocketMQ"),
        (("config/topics.json",), "RocketMQ 4"),
        (("timerwheel",), "RocketMQ 5"),
        (("rocksdbstore/",), "RocketMQ 5.5"),
        (("lock", "rocksdbstore/"), "RocketLens"),
    ],
)
def test_the_last_broker_is_named_as_precisely_as_files_tell(tmp_path, made, writer):
    content = {"config/topics.json": '{"topicConfigTable":{"T":{}}}', "lock": "lens"}
    for name in made:
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content.get(name, ""))
    assert writer_of(StoreLayout(tmp_path)) == writer


def test_a_log_alone_has_a_status(store):
    for each in store.iterdir():
        if each.name != "commitlog":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    status = status_of(store)
    assert (status.messages, status.written_by, status.queue_bytes) == (1703, "RocketMQ", 0)
    assert not status.complete


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


MESSAGE = message_of(record(0, queue_offset=7, properties=b"TAGS\x01A\x02amount\x0112\x02"))
ALL = Subscribed("TAG", "*", ("*",))
SUBSCRIBED = "its next offset is {}, and its clients subscribe to it; a reset would look the same"


def facts(**given):
    ours = {"is_online": True, "subscribes": True, "subscribed": ALL, "has_offsets": True}
    return GroupFacts("g", **{**ours, "consumer_offset": 8, **given})


@pytest.mark.parametrize(
    ("given", "state", "rests_on"),
    [
        ({}, "consumed", SUBSCRIBED.format(8)),
        ({"consumer_offset": 7}, "not_yet", "its next offset is 7"),
        (
            {"consumer_offset": 7, "is_online": False},
            "not_yet",
            "its next offset is 7; no client is online",
        ),
        (
            {"consumer_offset": 7, "subscribes": False},
            "not_yet",
            "its next offset is 7; its clients do not subscribe to the topic now",
        ),
        ({"consumer_offset": None}, "not_yet", "it has no offset in this queue"),
        (
            {"is_online": False, "subscribes": None},
            "passed_offline",
            (
                "its next offset is 8; no client is online: it consumed it before, or a reset "
                "skipped it"
            ),
        ),
        (
            {"is_online": None, "subscribes": None},
            "passed",
            (
                "its next offset is 8; it is not recorded whether it consumed, filtered or skipped "
                "it"
            ),
        ),
        (
            {"subscribes": False, "subscribed": None},
            "passed",
            "its next offset is 8, but its clients do not subscribe to the topic now",
        ),
        (
            {"subscribed": Subscribed("TAG", "B || C", ("B", "C"))},
            "filtered",
            "its next offset is 8; its clients subscribe to B || C",
        ),
        (
            {"subscribed": Subscribed("TAG", "", ("B",))},
            "filtered",
            "its next offset is 8; its clients subscribe to nothing",
        ),
        (
            {"subscribed": Subscribed("SQL92", "amount > 20")},
            "filtered",
            "its next offset is 8; its clients subscribe to amount > 20",
        ),
        ({"subscribed": Subscribed("SQL92", "amount > 10")}, "consumed", SUBSCRIBED.format(8)),
        ({"subscribed": Subscribed("SQL92", "amount >")}, "consumed", SUBSCRIBED.format(8)),
        (
            {"consumer_offset": 5_000, "pull_offset": 7},
            "passed_by_reset",
            (
                "its next offset is 5000, but its last pull began at 7: a reset moved it past the "
                "message"
            ),
        ),
        ({"consumer_offset": 5_000, "pull_offset": 8}, "consumed", SUBSCRIBED.format(5000)),
        ({"consumer_offset": 5_000, "pull_offset": -1}, "consumed", SUBSCRIBED.format(5000)),
        ({"consumer_offset": 1_000, "pull_offset": 7}, "consumed", SUBSCRIBED.format(1000)),
        ({"has_offsets": None}, "unknown", "its offsets are unknown"),
        (
            {"has_offsets": False, "consumer_offset": None},
            "not_yet",
            "it has no offset in this queue",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "subscribes": False},
            "never_subscribed",
            "it has no offset in topic T, and its clients do not subscribe to it",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "is_online": None, "subscribes": None},
            "never_subscribed",
            "it has no offset in topic T",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "message_model": "BROADCASTING"},
            "broadcasting",
            "it consumes by broadcasting: its clients keep their offsets themselves",
        ),
    ],
)
def test_each_row_of_the_table(given, state, rests_on):
    verdict = judge(facts(**given), MESSAGE)
    assert (verdict.state, verdict.rests_on) == (state, rests_on)


@given(
    st.builds(
        GroupFacts,
        group=st.just("g"),
        is_online=st.sampled_from([True, False, None]),
        message_model=st.sampled_from(["CLUSTERING", "BROADCASTING", None]),
        subscribes=st.sampled_from([True, False, None]),
        subscribed=st.sampled_from([None, ALL, Subscribed("TAG", "B", ("B",))]),
        has_offsets=st.sampled_from([True, False, None]),
        consumer_offset=st.none() | st.integers(0, 3_000),
        pull_offset=st.none() | st.integers(-1, 3_000),
    )
)
def test_a_group_is_said_to_be_past_a_message_exactly_if_its_offset_is(known):
    is_past = (known.consumer_offset or 0) > MESSAGE.queue_offset
    state = judge(known, MESSAGE).state
    past = {
        GroupState.CONSUMED,
        GroupState.FILTERED,
        GroupState.PASSED,
        GroupState.PASSED_OFFLINE,
        GroupState.PASSED_BY_RESET,
    }
    if known.has_offsets is None:
        assert state is GroupState.UNKNOWN
    else:
        assert (state in past) == is_past
    if state is GroupState.CONSUMED:
        assert known.is_online
        assert known.subscribes


def test_a_message_without_a_tag_passes_only_subscriptions_to_all():
    untagged = message_of(record(0))
    assert passes(ALL, untagged)
    assert not passes(Subscribed("TAG", "A", ("A",)), untagged)

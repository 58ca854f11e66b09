"""What a store has in each topic, from its queues, its log and a broker, and what waits in it."""

import errno
import json
import os
import re
import shutil
from collections import defaultdict
from datetime import UTC, datetime

import pytest

import rocketlens
from rocketlens.errors import TopicNotFound
from rocketlens.model import properties as props
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import lite_topic
from rocketlens.model.topic import LiteTopics, TopicSettings
from rocketlens.query.facts.topic_list import settings_in_store, writer_names
from rocketlens.query.facts.waiting import newest_ms, waiting_messages
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER
from rocketlens.store.read.consumequeue import ConsumeQueue
from tests.support.made_stores import QUEUE_ENTRY, Sent, make_store, overwrite, some_messages
from tests.support.story_world import KEY, copy
from tests.unit.conftest import NOON_MS

ALICE = "%LMQ%$Sessions$alice"
ROW = re.compile(r"^\S+ +(\d+) +(\d+) +(\d+) +(\S+ \S+)$", re.MULTILINE)


def topics_of(path, topic=None):
    with rocketlens.open_store(path) as store:
        return store.topics(topic)


def numbers(answer):
    """Each queue that has messages: offsets, times and size."""
    return {
        (topic.name, queue.queue_id): (
            queue.min_offset,
            queue.max_offset,
            queue.oldest_ms,
            queue.newest_ms,
            queue.size_bytes,
        )
        for topic in answer.topics
        for queue in topic.queues or ()
        if queue.messages
    }


def counted(records):
    """The same, from all records."""
    queues = defaultdict(list)
    for record in records:
        queues[record.topic, record.queue_id].append(record)
    return {
        queue: (
            of_queue[0].queue_offset,
            of_queue[-1].queue_offset + 1,
            of_queue[0].store_timestamp_ms,
            of_queue[-1].store_timestamp_ms,
            sum(record.total_size for record in of_queue),
        )
        for queue, of_queue in queues.items()
    }


@pytest.fixture
def own(tmp_path):
    """A store that a test may change."""
    return make_store(tmp_path / "store", some_messages(300))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_queues_have_what_the_real_topic_status_printed(golden, version):
    store = golden(version)
    printed = (store.path / "mqadmin" / "topicStatus.txt").read_text()
    name = re.search(r"-t (\S+)", printed)[1]
    answer = topics_of(store.store)
    assert answer.complete
    [topic] = [each for each in answer.topics if each.name == name]
    found = [
        (each.queue_id, each.min_offset, each.max_offset, each.newest_ms)
        for each in topic.queues
        if each.messages
    ]
    rows = [
        (int(queue), int(low), int(high), _epoch_ms(time))
        for queue, low, high, time in ROW.findall(printed)
    ]
    assert rows
    assert found == [row for row in rows if row[1] < row[2]]


def _epoch_ms(text):
    moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def test_messages_times_and_sizes_are_those_of_the_log(made):
    answer = topics_of(made.path)
    assert answer.complete
    assert numbers(answer) == counted(made.records)
    for topic in answer.topics:
        records = [record for record in made.records if record.topic == topic.name]
        times = [record.store_timestamp_ms for record in records]
        assert (topic.messages, topic.oldest_ms, topic.newest_ms, topic.size_bytes) == (
            len(records),
            min(times),
            max(times),
            sum(record.total_size for record in records),
        )


def test_a_store_without_its_queues_is_counted_from_the_log(own):
    shutil.rmtree(own.path / "consumequeue")
    answer = topics_of(own.path)
    assert answer.complete
    assert numbers(answer) == counted(own.records)


def test_messages_behind_the_ends_of_queues_are_counted(own):
    behind = own.records[200].physical_offset
    for path in (own.path / "consumequeue").rglob("0*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            for start in range(0, len(content), 20):
                if int.from_bytes(content[start : start + 8]) >= behind:
                    content[start : start + 20] = bytes(20)
            path.write_bytes(content)
    (own.path / "abort").touch()
    answer = topics_of(own.path)
    assert numbers(answer) == counted(own.records)
    # Queues are synced one by one, so after a crash one can lack what another has.
    assert [each.relies_on for each in answer.coverage if each.relies_on] == [
        f"consume queues lack nothing before {behind}"
    ]


def test_messages_that_the_log_no_longer_has_are_not_counted(tmp_path):
    made = make_store(tmp_path / "store", some_messages(300), segment_bytes=16_384)
    first, *_ = sorted((made.path / "commitlog").iterdir())
    first.unlink()
    left = [record for record in made.records if record.physical_offset >= 16_384]
    assert len(left) < 300
    assert numbers(topics_of(made.path)) == counted(left)


def test_a_configured_topic_without_messages_has_its_queues(own):
    config = own.path / "config"
    config.mkdir(exist_ok=True)
    table = {"Empty": {"topicName": "Empty", "readQueueNums": 3, "writeQueueNums": 2}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    [topic] = topics_of(own.path, "Empty").topics
    assert [(each.queue_id, each.messages) for each in topic.queues] == [(0, 0), (1, 0), (2, 0)]
    assert (topic.messages, topic.oldest_ms, topic.size_bytes) == (0, None, 0)


def test_a_table_of_topics_that_cannot_be_read_is_named(own):
    config = own.path / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":')
    answer = topics_of(own.path)
    assert numbers(answer) == counted(own.records)
    assert [
        each.source for each in answer.coverage if each.error and each.source.startswith("config")
    ] == ["config/topics.json"]


def test_a_topic_that_was_deleted_is_listed_as_such(tmp_path):
    made = make_store(tmp_path / "store", [Sent(topic="Gone"), *some_messages(20)])
    shutil.rmtree(made.path / "consumequeue" / "Gone")
    [gone] = topics_of(made.path, "Gone").topics
    assert (gone.queues, gone.messages, gone.is_deleted) == (None, None, True)


def test_a_queue_that_cannot_be_read_makes_its_topic_unknown_and_the_answer_incomplete(
    own, monkeypatch
):
    mapped = ConsumeQueue._map

    def fails(self, file):
        if file.path.parent.parent.name == "Topic1":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return mapped(self, file)

    monkeypatch.setattr(ConsumeQueue, "_map", fails)
    answer = topics_of(own.path)
    assert not answer.complete
    unknown = [topic.name for topic in answer.topics if topic.queues is None]
    assert unknown == ["Topic1"]
    assert {each.error for each in answer.coverage if each.is_failure} == {
        os.strerror(errno.EMFILE)
    }


def test_an_entry_that_leads_to_another_record_is_told_and_no_time_is_made_of_it(own):
    record = own.records[0]
    path = own.path / "consumequeue" / record.topic / str(record.queue_id)
    other = next(each for each in own.records if each.topic != record.topic)
    overwrite(min(path.iterdir()), 0, other.physical_offset.to_bytes(8))
    answer = topics_of(own.path)
    assert not answer.complete
    [topic] = [each for each in answer.topics if each.name == record.topic]
    assert topic.queues[record.queue_id].oldest_ms is None
    [failure] = [each for each in answer.coverage if each.is_failure]
    assert failure.source == f"consumequeue/{record.topic}/{record.queue_id}"
    assert failure.error == "its entry 0 leads to another record"


def test_a_damaged_stretch_of_log_behind_the_queues_makes_it_incomplete(own):
    shutil.rmtree(own.path / "consumequeue")
    record = own.records[150]
    overwrite(own.segment_path(record.physical_offset), record.physical_offset + 4, bytes(4))
    answer = topics_of(own.path)
    assert not answer.complete
    [failure] = [each for each in answer.coverage if each.is_failure]
    assert f"physical offsets {record.physical_offset} to" in failure.error


def test_topics_are_chosen_by_names_and_patterns_and_an_unknown_one_is_refused(made):
    names = sorted({record.topic for record in made.records})
    assert [topic.name for topic in topics_of(made.path, "Topic*").topics] == names
    assert [topic.name for topic in topics_of(made.path, names[1]).topics] == names[1:2]
    with pytest.raises(TopicNotFound, match="no topic 'topic1'; did you mean Topic1"):
        topics_of(made.path, ["Topic*", "topic1"])
    with pytest.raises(TopicNotFound, match=r"no topic matches 'x[*]'"):
        topics_of(made.path, "x*")


OF_CLUSTER = {"perm": 7, "readQueueNums": 16, "writeQueueNums": 16}
OF_BROKER = {"perm": 7, "readQueueNums": 1, "writeQueueNums": 1}


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        ({"east": OF_CLUSTER, "broker-b": OF_BROKER, "TBW102": OF_BROKER}, ("broker-b", "east")),
        ({"east": OF_CLUSTER | {"perm": 1}, "b": OF_BROKER | {"perm": 1}}, ("b", "east")),
        ({"east": OF_CLUSTER, "old": OF_BROKER, "new": OF_BROKER}, (None, "east")),
        ({"T": OF_BROKER | {"perm": 6}, "one": OF_BROKER, "x": 1}, ("one", None)),
        ({}, (None, None)),
    ],
)
def test_a_store_is_of_the_broker_and_cluster_under_whose_names_it_has_topics(
    tmp_path, topics, names
):
    (tmp_path / "config").mkdir()
    (tmp_path / TOPICS_FILE).write_text(json.dumps({TOPICS_MEMBER: topics}))
    assert writer_names(tmp_path) == names


def written(path, entry):
    (path / "config").mkdir()
    table = {"topicConfigTable": {"T": entry}, "dataVersion": {}}
    (path / "config" / "topics.json").write_text(json.dumps(table))
    return settings_in_store(path, "T")


def test_the_file_of_topics_tells_permission_queues_order_and_attributes(tmp_path):
    entry = {
        "topicName": "T",
        "perm": 4,
        "readQueueNums": 8,
        "writeQueueNums": 2,
        "order": True,
        "attributes": {"message.type": "FIFO"},
    }
    expected = TopicSettings(None, 4, 8, 2, is_ordered=True, attributes={"message.type": "FIFO"})
    assert written(tmp_path, entry) == expected


def test_a_topic_that_no_file_names_has_no_settings(tmp_path):
    assert settings_in_store(tmp_path, "T") is None


@pytest.mark.parametrize("entry", [None, 7, [], "text"])
def test_an_entry_that_is_no_object_is_none(tmp_path, entry):
    assert written(tmp_path, entry) is None


def test_a_value_that_rocketmq_does_not_write_is_not_known(tmp_path):
    entry = {"perm": True, "readQueueNums": "8", "order": "x", "attributes": [1]}
    assert written(tmp_path, entry) == TopicSettings(None, None, None, None)


def test_a_damaged_file_is_named_beside_what_its_backup_says(tmp_path):
    written(tmp_path, {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4})
    path = tmp_path / "config" / "topics.json"
    path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    path.write_text("{")
    found = settings_in_store(tmp_path, "T")
    assert found.perm == 6
    assert found.error.startswith("config/topics.json: ")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_topics_of_a_real_broker_can_be_read_and_written(golden, version):
    found = settings_in_store(golden(version).store, "PayTopic")
    assert (found.perm, found.read_queues, found.error) == (6, 4, None)


SEARCHED = (Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED),)


def delayed(at_ms, level, topic="T"):
    given = {"REAL_TOPIC": topic, "DELAY": str(level)}
    return copy("SCHEDULE_TOPIC_XXXX", at_ms, at_ms, given)


def timed(due, topic="T"):
    given = {"REAL_TOPIC": topic, "TIMER_OUT_MS": str(NOON_MS + due)}
    return copy("rmq_sys_wheel_timer", 0, 3, given)


def answer(*messages, truncated=False, coverage=SEARCHED):
    return Answer("q", messages, coverage, truncated=truncated)


def test_those_that_are_due_later_wait():
    delays = answer(delayed(0, 1), delayed(0, 3), delayed(1, 18, "U"))
    timers = answer(timed(1), timed(90_000), timed(90_000, "U"))
    found = waiting_messages([delays, timers], NOON_MS + 5000)
    assert (found.counts, found.is_exact) == ({"T": 2, "U": 2}, True)
    assert waiting_messages([delays, timers], NOON_MS + 2**40).counts == {}


def test_the_number_is_not_exact_if_older_ones_can_wait():
    cut = answer(delayed(0, 18), truncated=True)
    assert not waiting_messages([cut], NOON_MS + 1000).is_exact
    # Older ones are delivered by then.
    assert waiting_messages([cut], NOON_MS + 3 * 3_600_000).is_exact
    # A topic that could not be searched has an unknown number.
    assert waiting_messages([answer(delayed(0, 18), coverage=())], NOON_MS) is None


def test_the_time_of_a_store_is_that_of_its_newest_message():
    assert newest_ms([answer(delayed(7, 1))], [None, NOON_MS + 3]) == NOON_MS + 7
    assert newest_ms([], [None]) == 0


def test_recalled_messages_and_checkpoints_of_pop_do_not_wait():
    recall = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(NOON_MS + 9), "TIMER_DEL_UNIQKEY": KEY}
    checkpoint = {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_c", "TIMER_OUT_MS": str(NOON_MS + 9)}
    timers = [
        copy("rmq_sys_wheel_timer", 0, n, each) for n, each in enumerate((recall, checkpoint))
    ]
    assert waiting_messages([answer(timed(9), *timers)], NOON_MS).counts == {}


def lite_store(path, *, with_queues):
    sent = [Sent(topic="Sessions", named=((props.MULTI_DISPATCH, ALICE),)) for _ in range(3)]
    made = make_store(path, sent, with_queues=with_queues)
    config = made.path / "config"
    config.mkdir(exist_ok=True)
    attributes = {"message.type": "LITE", "lite.topic.expiration": "60"}
    tables = {
        "topics.json": ("topicConfigTable", {"Sessions": {"attributes": attributes}, "Plain": {}}),
        "subscriptionGroup.json": (
            "subscriptionGroupTable",
            {name: {"attributes": {"lite.bind.topic": name}} for name in ("Sessions", "Plain")},
        ),
    }
    for name, (table, entries) in tables.items():
        (config / name).write_text(json.dumps({table: entries}))
    if with_queues:
        queue = made.path / "consumequeue" / ALICE / "0"
        queue.mkdir(parents=True)
        entries = (QUEUE_ENTRY.pack(r.physical_offset, r.total_size, 0) for r in made.records)
        (queue / f"{0:020d}").write_bytes(b"".join(entries).ljust(2000, b"\0"))
    return made.path


def test_a_parent_tells_its_lite_topics_and_these_are_counted(tmp_path):
    answer = topics_of(lite_store(tmp_path / "store", with_queues=True))
    by_name = {each.name: each for each in answer.topics}
    assert answer.complete
    assert by_name["Sessions"].lite == LiteTopics(1, 60, ("Sessions",))
    assert by_name["Plain"].lite is None
    assert (by_name[ALICE].messages, by_name[ALICE].kind) == (3, "light")
    [alice] = topics_of(tmp_path / "store", lite_topic("Sessions", "*")).topics
    assert alice == by_name[ALICE]
    # A parent has none at first, and that is no mistake.
    assert topics_of(tmp_path / "store", lite_topic("Plain", "*")).topics == ()
    with pytest.raises(TopicNotFound):
        topics_of(tmp_path / "store", lite_topic("Sessions", "bob"))


def test_without_queues_the_lite_topics_are_not_known(tmp_path):
    answer = topics_of(lite_store(tmp_path / "store", with_queues=False), "Sessions")
    [parent] = answer.topics
    assert parent.lite == LiteTopics(None, 60, ("Sessions",))
    assert not answer.complete
    assert any("lite topics of Sessions" in (each.error or "") for each in answer.failures)

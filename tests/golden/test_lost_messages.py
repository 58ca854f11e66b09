"""Messages that the begin of a log lost, or its end before a broker was started on it again."""

import shutil

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import AnswerIncomplete, MessageNotFound, StoreError
from tests.golden.test_lost_end import lose_end, messages_of

VERSIONS = ("4.9.7", "5.5.0")
both_versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def store(golden, version, tmp_path):
    return shutil.copytree(golden(version).store, tmp_path / "store")


def take_first_file(store):
    """Take away the first file of a log, and return the messages that were in it."""
    messages = messages_of(store)
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    return [each for each in messages if each.physical_offset < int(second.name)]


def clean_like_rocketmq(store):
    """Delete files of queues and of the index as RocketMQ does after those of the log."""
    least = min(int(path.name) for path in (store / "commitlog").iterdir())
    *indexes, _ = sorted((store / "index").iterdir())
    for path in indexes:
        if int.from_bytes(path.read_bytes()[24:32], "big") < least:
            path.unlink()
    for queue in (store / "consumequeue").glob("*/*"):
        *files, _ = sorted(queue.iterdir())
        for path in files:
            if int.from_bytes(path.read_bytes()[-20:-12], "big") >= least:
                break
            path.unlink()


def assert_incomplete(store, messages):
    with rocketlens.open_store(store) as opened:
        for message in messages:
            assert not opened.find(topic=message.topic).complete
            moment = message.store_timestamp_ms
            assert not opened.find(topic=message.topic, begin=moment, end=moment).complete
            assert not opened.find(message.unique_key or message.keys[0]).complete
            with pytest.raises(AnswerIncomplete):
                opened.view_message(message.offset_msg_id)
            with pytest.raises(AnswerIncomplete):
                opened.query_by_queue_offset(message.topic, message.queue_id, message.queue_offset)
        scan = opened.scan()
        assert list(scan)
        assert not scan.complete


@both_versions
def test_a_first_file_that_no_broker_deleted_makes_answers_incomplete(store):
    lost = take_first_file(store)
    named = [each for each in lost if each.unique_key and each.topic == "PayTopic"]
    assert_incomplete(store, named[::40])
    with rocketlens.open_store(store) as opened:
        failures = opened.find(topic="PayTopic").failures
        assert any("the log's first file is lost" in each.error for each in failures)
        assert any("index/" in each.error for each in failures)
        # What is sought is behind it.
        newest = messages_of(store)[-1]
        assert opened.find(topic=newest.topic, begin=newest.store_timestamp_ms).complete


@both_versions
@pytest.mark.parametrize("way", ["empty", "directory", "link to nothing"])
def test_a_first_file_that_is_there_and_cannot_be_read_makes_answers_incomplete(store, way):
    lost = take_first_file(store)
    clean_like_rocketmq(store)
    first = store / "commitlog" / f"{0:020d}"
    if way == "empty":
        first.touch()
    elif way == "directory":
        first.mkdir()
    else:
        first.symlink_to(store / "not mounted")
    # Nor does a running broker leave one.
    (store / "abort").write_text("4711")
    named = [each for each in lost if each.unique_key and each.topic == "PayTopic"]
    assert_incomplete(store, named[::40])
    with rocketlens.open_store(store) as opened:
        failures = opened.find(topic="PayTopic").failures
        assert any(str(first) in each.error for each in failures)
        newest = messages_of(store)[-1]
        assert opened.find(topic=newest.topic, begin=newest.store_timestamp_ms).complete
    with pytest.raises(StoreError, match="is empty or no file"):
        list(read_batches(store))


@both_versions
@pytest.mark.parametrize("way", ["cleaned", "running", "only the last"])
def test_a_first_file_that_a_broker_deleted_makes_no_answer_incomplete(store, way):
    lost = take_first_file(store)
    if way == "cleaned":
        clean_like_rocketmq(store)
    elif way == "running":
        # It is about to delete those of queues and of the index.
        (store / "abort").write_text("4711")
    else:
        shutil.rmtree(store / "consumequeue")
        for path in sorted((store / "index").iterdir())[1:]:
            path.unlink()
    with rocketlens.open_store(store) as opened:
        answer = opened.find(topic="PayTopic")
        assert answer.complete, answer.failures
        with pytest.raises(MessageNotFound):
            opened.view_message(lost[3].offset_msg_id)


def write_offsets(store, topic, queue_id, offset):
    path = store / "config" / "consumerOffset.json"
    content = path.read_text(encoding="utf-8")
    start = content.index(f'"{topic}@golden_cg":{{') + len(f'"{topic}@golden_cg":{{')
    end = content.index("}", start)
    offsets = dict(each.split(":") for each in content[start:end].split(","))
    offsets = {number.strip(): each.strip() for number, each in offsets.items()}
    offsets[str(queue_id)] = str(offset)
    text = ",".join(f"{number}:{each}" for number, each in offsets.items())
    path.write_text(content[:start] + text + content[end:], encoding="utf-8")


@pytest.mark.parametrize("version", ["5.5.0"])
def test_offsets_of_groups_alone_prove_a_lost_end(store):
    """As after a broker that was started on the rest, and cut queues, index and checkpoint."""
    messages = messages_of(store)
    lost = messages[len(messages) * 3 // 5 :]
    lose_end(store, lost[0].physical_offset, "cut")
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
    (store / "checkpoint").unlink()
    consumed = [each for each in lost if each.topic == "PayTopic"]
    assert_incomplete(store, consumed[:3])
    with rocketlens.open_store(store) as opened:
        failures = {each.error for each in opened.find(topic="PayTopic").failures}
        assert len(failures) == 4
        for queue_id in range(4):
            said = f"group golden_cg has consumed topic PayTopic, queue {queue_id}, up to"
            assert any(said in each for each in failures)
        assert not opened.topics().complete
    with pytest.raises(StoreError, match="golden_cg has consumed"):
        list(read_batches(store, topic="PayTopic"))
    assert list(read_batches(store, topic="PayTopic", failOnDataLoss=False))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("more", [0, 1])
def test_an_offset_behind_a_queue_makes_answers_of_its_topic_incomplete(store, more):
    with rocketlens.open_store(store) as opened:
        (topic,) = opened.topics("PayTopic").topics
        end = topic.queues[0].max_offset
        write_offsets(store, "PayTopic", 0, end + more)
        for answer in (
            opened.find(topic="PayTopic"),
            opened.find("order-42", topic="PayTopic"),
            opened.find(f"PayTopic/0/{end}"),
            opened.topics(),
        ):
            assert answer.complete == (not more)
        others = {each.topic for each in messages_of(store)} - {"PayTopic"}
        for other in sorted(others):
            assert opened.find(topic=other).complete
        # The message comes, or the offset is put right.
        write_offsets(store, "PayTopic", 0, end)
        assert opened.find(topic="PayTopic").complete


@pytest.mark.parametrize("version", ["5.5.0"])
def test_messages_that_only_the_log_has_yet_are_before_an_offset(store):
    """A copy that was made while a broker ran can have the log, and older queues."""
    for path in (store / "consumequeue" / "PayTopic").glob("*/0*"):
        path.unlink()
    with rocketlens.open_store(store) as opened:
        answer = opened.find(topic="PayTopic")
        assert answer.complete, answer.failures

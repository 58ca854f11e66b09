"""Every message that a real broker acknowledged is found, by all that can be known of it."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections import defaultdict

import pytest

import rocketlens
from rocketlens.errors import MessageNotFound
from rocketlens.formats.commitlog_record import message_of
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from tests.conftest import fingerprint
from tests.support.effort import sized
from tests.support.patience import PATIENCE_S

VERSIONS = ("4.9.7", "5.5.0")
HALF_MESSAGE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"

both_versions = pytest.mark.parametrize("version", VERSIONS)
both_stores = pytest.mark.parametrize("which", ["store", "crashed"])
every_state = pytest.mark.parametrize(
    "lost",
    [
        *[(), ("index",), ("index", "consumequeue", "config")],
        *sized(
            [], [("consumequeue",), ("config",), ("index", "config"), ("consumequeue", "config")]
        ),
    ],
    ids=lambda lost: "-".join(lost) or "whole",
)


@pytest.fixture
def store_path(golden, version, which, lost, tmp_path):
    whole = getattr(golden(version), which)
    if not lost:
        return whole
    copy = tmp_path / "store"
    shutil.copytree(whole, copy, ignore=lambda _, names: [name for name in names if name in lost])
    return copy


def is_body(message, sent):
    return hashlib.sha256(message.body).hexdigest() == sent["body_sha256"]


def by_brute_force(path):
    """Offsets of all messages by topic and key or unique key."""
    found = defaultdict(set)
    log = CommitLog(path / "commitlog")
    for record in LogWalk(log, 0).records():
        message = message_of(record)
        for text in {*message.keys, message.unique_key} - {None}:
            found[message.topic, text].add(message.physical_offset)
            found[None, text].add(message.physical_offset)
    return found


def topic_of(sent):
    """The topic under which a message is visible: what was rolled back is never delivered."""
    return HALF_MESSAGE_TOPIC if sent["kind"] == "tx-ROLLBACK_MESSAGE" else sent["topic"]


@both_versions
@both_stores
@every_state
def test_every_message_is_found_by_each_of_its_ids_and_keys(
    golden, version, which, store_path, lost
):
    # Without an index, keys are looked for in the log, where each is as easy to find.
    is_thorough = which == "store" and lost in sized([()], [(), ("index",)])
    sent_messages = golden(version).sent[:: 1 if is_thorough else sized(27, 9)]
    expected = by_brute_force(store_path)
    with rocketlens.open_store(store_path) as store:
        for sent in sent_messages:
            topic = topic_of(sent)
            message = store.view_message(sent["msg_id"])
            assert is_body(message, sent)
            assert is_body(store.view_message(topic, sent["msg_id"]), sent)
            if sent["offset_msg_id"]:
                message = store.view_message(sent["offset_msg_id"])
                assert is_body(message, sent)
                assert message.offset_msg_id == sent["offset_msg_id"]
        asked = {
            (topic, text)
            for sent in sent_messages
            for text in (sent["msg_id"], *(sent["keys"] or "").split())
            for topic in (topic_of(sent), None)
        }
        assert len(asked) > sized(200, 600)
        for topic, text in asked:
            answer = store.query_message(topic, text, None)
            offsets = {message.physical_offset for message in answer.messages}
            assert (offsets, answer.complete) == (expected[topic, text], True)


@both_versions
@both_stores
@every_state
def test_every_message_is_found_by_its_queue_offset(golden, version, store_path, lost):
    sent_messages = [s for s in golden(version).sent if s["kind"] in ("send", "batch")]
    step = 40 if "consumequeue" in lost else 3
    with rocketlens.open_store(store_path) as store:
        for sent in sent_messages[::step]:
            place = sent["topic"], sent["queue_id"], sent["queue_offset"]
            message = store.query_by_queue_offset(*place)
            assert message.offset_msg_id == sent["offset_msg_id"]
            found = store.find("/".join(map(str, place)))
            assert [m.offset_msg_id for m in found] == [sent["offset_msg_id"]]


@both_versions
@both_stores
def test_every_message_is_found_by_its_time(golden, version, which):
    path = getattr(golden(version), which)
    with rocketlens.open_store(path) as store:
        everything = list(store.scan(all_topics=True))
        assert len(everything) > 1800
        for message in everything[::25]:
            time_ms = message.store_timestamp_ms
            same_time = [m for m in everything if m.store_timestamp_ms == time_ms]
            assert list(store.find(begin=time_ms, end=time_ms, all_topics=True)) == same_time
            same_topic = [m for m in same_time if m.topic == message.topic]
            assert list(store.scan(message.topic, time_ms, time_ms)) == same_topic


@both_versions
@both_stores
def test_what_was_rolled_back_or_delayed_is_found_where_it_waited(golden, version, which):
    with rocketlens.open_store(getattr(golden(version), which)) as store:
        for sent in golden(version).sent:
            found = {message.topic for message in store.find(sent["msg_id"])}
            if sent["kind"] == "tx-ROLLBACK_MESSAGE":
                assert found == {HALF_MESSAGE_TOPIC}
                with pytest.raises(MessageNotFound):
                    store.view_message(sent["topic"], sent["msg_id"])
            elif sent["kind"] == "tx-COMMIT_MESSAGE":
                assert {HALF_MESSAGE_TOPIC, sent["topic"]} <= found
            elif sent["kind"] == "delay":
                assert {DELAY_TOPIC, sent["topic"]} <= found


@both_versions
@both_stores
def test_a_store_is_opened_beside_its_owner_and_nothing_in_it_changes(
    golden, version, which, tmp_path
):
    store_path = tmp_path / "store"
    shutil.copytree(getattr(golden(version), which), store_path)
    (store_path / "lock").write_bytes(b"lock")
    before = fingerprint(store_path)
    with (store_path / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        program = (
            "import sys, rocketlens\n"
            "with rocketlens.open_store(sys.argv[1]) as store:\n"
            "    assert store.find(sys.argv[2]).messages\n"
            "    assert not store.find('no such key').messages\n"
            "    assert len(list(store.scan(all_topics=True))) > 1800\n"
        )
        command = [
            sys.executable,
            "-c",
            program,
            str(store_path),
            golden(version).sent[0]["msg_id"],
        ]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
    assert fingerprint(store_path) == before


@both_versions
def test_a_key_that_is_nowhere_is_not_found_and_everything_was_searched(golden, version):
    with rocketlens.open_store(golden(version).store) as store:
        for topic in (None, "PayTopic", "NoSuchTopic"):
            answer = store.query_message(topic, "no such key")
            assert (answer.messages, answer.complete) == ((), True)
            with pytest.raises(MessageNotFound):
                store.view_message("no such id")

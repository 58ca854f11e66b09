"""Whatever file of a store is gone: a message is found, or the answer is incomplete."""

import random
import shutil
from types import SimpleNamespace

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import NotAStore, StoreError
from tests.support.effort import sized
from tests.support.layouts import CRASHED, LAYOUTS, SentMessage, copied, ids

PLAIN = ("rocketmq-4.9.7", "rocketmq-5.5.0")
STORES = (*LAYOUTS, *(f"{name} crashed" for name in CRASHED))
PLAIN_STORES = (*PLAIN, *(f"{name} crashed" for name in PLAIN))


def plain_store(golden, name, directory):
    """Return a copy of a store whose files are all where they are by default."""
    version, _, crashed = name.removeprefix("rocketmq-").partition(" ")
    store = golden(version)
    sent = [each for each in store.sent if each["kind"] in ("send", "batch") and each["keys"]]
    shutil.copytree(store.crashed if crashed else store.store, directory / "store")
    return SimpleNamespace(
        path=directory,
        store=directory / "store",
        messages=[
            SentMessage(
                *(each["topic"], each["queue_id"], each["queue_offset"], each["offset_msg_id"]),
                *(each["keys"].split()[-1], number, each["msg_id"]),
            )
            for number, each in enumerate(sent)
        ],
        open=lambda: rocketlens.open_store(directory / "store"),
        log_files=lambda: sorted((directory / "store" / "commitlog").glob("0*")),
    )


def read_all(layout):
    """Return each message that was sent as the whole store has it."""
    with layout.open() as store:
        return {
            sent: store.query_by_queue_offset(sent.topic, sent.queue_id, sent.queue_offset)
            for sent in layout.messages
        }


def has_all(answer, wanted):
    found = {(each.topic, each.queue_id, each.queue_offset) for each in answer.messages}
    return all((each.topic, each.queue_id, each.queue_offset) in found for each in wanted)


def false_answers(store, sample, every, may_lack):
    """Yield each question whose answer lacks a message, and says that it is complete."""
    for sent in sample:
        message = every[sent]
        moment = message.store_timestamp_ms
        for question, answer in {
            "position": store.find(sent.position),
            "unique key": store.find(message.unique_key, topic=sent.topic),
            "key": store.find(sent.key, topic=sent.topic),
            "key of any topic": store.find(sent.key),
            "time": store.find(topic=sent.topic, begin=moment, end=moment),
        }.items():
            if answer.complete and not has_all(answer, [sent]) and sent not in may_lack:
                yield question, sent.position
        answer = store.find(sent.offset_msg_id)
        if answer.complete and ids(answer) != [sent.offset_msg_id] and sent not in may_lack:
            yield "offset id", sent.position
    for topic in {sent.topic for sent in every}:
        wanted = [sent for sent in every if sent.topic == topic and sent not in may_lack]
        for question, answer in {
            "topic": store.find(topic=topic, max_num=None),
            "tail": store.tail(topic, newest=10_000),
        }.items():
            if answer.complete and not has_all(answer, wanted):
                yield question, topic
        scan = store.scan(topic)
        messages = list(scan)
        if scan.complete and not has_all(SimpleNamespace(messages=messages), wanted):
            yield "scan", topic
        for listed in (store.topics(topic), store.topics()):
            counts = [each.messages for each in listed.topics if each.name == topic]
            if listed.complete and (counts or [0])[0] < len(wanted):
                yield "topics", topic


def lacks_in_bulk(layout, every, may_lack):
    """Yield a question if rows lack a message, and neither damage nor an error says so."""
    try:
        rows = [row for batch in read_batches(layout.store) for row in batch.to_pylist()]
        damage = any(len(batch) for batch in read_batches(layout.store, table="damage"))
    except StoreError:
        return
    answer = SimpleNamespace(messages=[SimpleNamespace(**row) for row in rows])
    if not damage and not has_all(answer, every.keys() - may_lack):
        yield "bulk", "every topic"


def deleted_with(path, layout):
    """Return the messages that a cleaner deletes with a file: it takes the oldest of the log."""
    first, second, *_ = layout.log_files()
    if path != first:
        return set()
    return {each for each in layout.messages if int(each.offset_msg_id[16:], 16) < int(second.name)}


def assert_no_false_answer_without(layout, aside, rng):
    every = read_all(layout)
    files = sorted(path for path in layout.path.rglob("*") if path.is_file())
    files = [path for path in files if path.name != "sent.jsonl" and "crashed" not in str(path)]
    false = []
    for path in rng.sample(files, min(len(files), sized(3, len(files)))):
        sample = rng.sample(list(every), sized(3, 12))
        may_lack = deleted_with(path, layout)
        path.rename(aside)
        try:
            with layout.open() as store:
                for question, subject in (
                    *false_answers(store, sample, every, may_lack),
                    *lacks_in_bulk(layout, every, may_lack),
                ):
                    false.append((str(path.relative_to(layout.path)), question, subject))
        except NotAStore as refused:
            if str(layout.path) not in str(refused):
                false.append((str(path.relative_to(layout.path)), "refused", str(refused)))
        aside.rename(path)
    assert false == []


@pytest.mark.parametrize("name", STORES)
def test_a_file_that_is_gone_makes_no_answer_falsely_complete(layouts, name, tmp_path):
    layout = copied(layouts, name, tmp_path / "broker")
    assert_no_false_answer_without(layout, tmp_path / "aside", random.Random(name))


@pytest.mark.parametrize("name", PLAIN_STORES)
def test_a_file_that_is_gone_of_a_plain_store_makes_no_answer_falsely_complete(
    golden, name, tmp_path
):
    layout = plain_store(golden, name, tmp_path / "broker")
    assert_no_false_answer_without(layout, tmp_path / "aside", random.Random(name))

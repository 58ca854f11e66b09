"""Asks a made store everything, and holds the answers to what is in it."""

import shutil
from collections.abc import Collection

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from tests.support.index_work import few_entries_read
from tests.support.made_stores import Made

every_cache = pytest.mark.parametrize("caches", ["index-queues", "index", "queues", "none"])


def lose_caches(made: Made, caches: str) -> None:
    """Delete the index, the queues, or both, unless ``caches`` names them."""
    if "index" not in caches:
        shutil.rmtree(made.path / "index", ignore_errors=True)
    if "queues" not in caches:
        shutil.rmtree(made.path / "consumequeue", ignore_errors=True)


def assert_right(
    made: Made,
    *,
    lost: Collection[int] = (),
    step: int = 1,
    topics: Collection[str | None] = (),
    damaged: bool | None = None,
) -> None:
    """Ask for every ``step``-th record in every way.

    ``lost``: physical offsets of records that can't be read any more. They are never given out,
    and never said to be nowhere unless the store forgot them: each answer about one of them is
    incomplete or not found. ``topics``: for which of them, None too, keys are asked without a
    record's own. ``damaged``: whether coverage must name damage.
    """
    with rocketlens.open_store(made.path) as store:
        for number, record in enumerate(made.records):
            if number % step and record.physical_offset not in lost:
                continue
            place = (record.topic, record.queue_id, record.queue_offset)
            if record.physical_offset in lost:
                for view in (
                    lambda r=record: store.view_message(r.offset_msg_id),
                    lambda p=place: store.query_by_queue_offset(*p),
                ):
                    try:
                        message = view()
                    except (MessageNotFound, AnswerIncomplete):
                        continue
                    raise AssertionError(message)
                continue
            message = store.view_message(record.offset_msg_id)
            assert (message.physical_offset, message.body) == (record.physical_offset, record.body)
            message = store.query_by_queue_offset(*place)
            assert (message.physical_offset, message.body) == (record.physical_offset, record.body)
        named = False
        for topic, text in made.texts()[::step]:
            for asked in {topic, *topics}:
                named |= assert_key(made, store, asked, text, lost)
        answer = store.query_message(None, "key of no message")
        assert answer.messages == ()
        named |= any(c.state != "searched" for c in answer.coverage)
        scanned = [message.physical_offset for message in store.scan(all_topics=True)]
        assert scanned == [r.physical_offset for r in made.records if r.physical_offset not in lost]
        assert damaged is None or named == damaged, answer.coverage


def assert_key(made, store, topic, text, lost=()) -> bool:
    """Ask for one key; says whether damage was named."""
    expected = [r for r in made.with_key(topic, text) if r.physical_offset not in lost]
    with few_entries_read(made.path):
        answer = store.query_message(topic, text, None)
    assert [m.physical_offset for m in answer.messages] == [r.physical_offset for r in expected]
    assert [m.body for m in answer.messages] == [r.body for r in expected]
    if not lost:
        assert answer.complete, answer.failures
    return any(c.state != "searched" for c in answer.coverage)

"""Every kind of text is narrowed by topics and times, and an answer is cut once."""

import asyncio

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest
from tests.support.made_stores import Sent, make_store
from tests.unit.query.texts import texts_for


def test_a_topic_and_times_narrow_every_kind(made, store):
    record = made.records[20]
    at = record.store_timestamp_ms
    for kind, text in texts_for(record).items():
        assert len(store.find(text, kind=kind, begin=at, end=at)) == 1
        assert len(store.find(text, kind=kind, begin=at + 1)) == 0
        assert len(store.find(text, kind=kind, end=at - 1)) == 0
        if kind != "queue-offset":
            other = next(r.topic for r in made.records if r.topic != record.topic)
            assert len(store.find(text, other, kind=kind)) == 0


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

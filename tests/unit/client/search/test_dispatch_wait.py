"""Brokers that have not indexed all that they stored are waited for, or the answer says so."""

import pytest

from rocketlens import limits
from rocketlens.errors import AnswerIncomplete
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, bodies
from tests.support.patience import PATIENCE_S


@within(ask, timeout_s=PATIENCE_S)
async def test_a_message_that_a_broker_has_not_indexed_yet_is_waited_for(cluster, admin, /):
    broker = cluster.masters[0]
    broker.store("T", b"older", keys="k")
    broker.store("T", b"newest", keys="k", unique_key="U2")
    broker.undispatched = [1, 1, 1]
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"older", b"newest"], True)
    broker.undispatched = [2, 1]
    assert (await admin.view_message("T", "U2")).body == b"newest"


def test_an_answer_of_a_broker_that_stays_behind_is_not_complete(monkeypatch):
    monkeypatch.setattr(limits, "DISPATCH_WAIT_S", 0.01)

    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"older", keys="k")
        newest = broker.store("T", b"newest", keys="k", unique_key="U2")
        broker.undispatched = [1] * 100
        answer = await admin.query_message("T", "k")
        assert (bodies(answer), answer.complete) == ([b"older"], False)
        assert f"{newest.total_size} bytes" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            await admin.view_message("T", "U2")

    ask(scenario, timeout_s=PATIENCE_S)


@within(ask, timeout_s=PATIENCE_S)
async def test_an_answer_of_a_broker_that_does_not_say_how_far_it_is_is_not_complete(
    cluster, admin, /
):
    broker = cluster.masters[0]
    broker.store("T", b"older", keys="k")
    broker.tells_dispatch = False
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"older"], False)
    assert "does not say how far" in answer.failures[0].error


def test_a_broker_in_its_first_second_is_asked_again_how_far_it_has_indexed(monkeypatch):
    no_sample = "java.util.NoSuchElementException, java.util.LinkedList.getLast"

    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"message", keys="k")
        broker.runtime_remarks = [no_sample, no_sample]
        answer = await admin.query_message("T", "k")
        assert (bodies(answer), answer.complete) == ([b"message"], True)
        broker.runtime_remarks = ["java.lang.IllegalStateException"]
        assert not (await admin.query_message("T", "k")).complete
        monkeypatch.setattr(limits, "DISPATCH_WAIT_S", 0.0)
        broker.runtime_remarks = [no_sample] * 100
        assert not (await admin.query_message("T", "k")).complete

    ask(scenario, timeout_s=PATIENCE_S)

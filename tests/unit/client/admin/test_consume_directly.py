"""A message is handed to whom it was meant for, once, and what became of it is returned."""

import pytest

from rocketlens.client.admin.consume_directly import address_of
from rocketlens.errors import (
    AnswerIncomplete,
    BadAnswer,
    BadInput,
    BrokerError,
    MessageNotFound,
)
from rocketlens.net.channel import Response
from rocketlens.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumeResult, ConsumeType
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, unregister
from tests.support.patience import SILENCE_S
from tests.unit.client.admin.test_group_calls import GROUP, answer, not_connected, offline, online

HAND = RequestCode.CONSUME_MESSAGE_DIRECTLY
LIST = RequestCode.GET_CONSUMER_CONNECTION_LIST


def result(kind=ConsumeResult.CR_SUCCESS, **members):
    made = ConsumeMessageDirectlyResult(consume_result=kind, spent_time_ms=3, **members)
    return Response(body=write_body(made))


def by_client(**responses):
    return lambda header, _: responses[header.client_id]


def handed(broker):
    return [header for code, header in broker.asked if code == HAND]


@within(ask, masters=2)
async def test_a_client_gets_the_message_from_the_broker_that_has_it(cluster, admin, /):
    broker = cluster.masters[1]
    broker.store("T", b"x", unique_key="U1")
    answer(broker, HAND, result(ConsumeResult.CR_LATER, order=True, remark="why"))
    for msg_id in ("U1", broker.id_at(0)):
        made = await admin.consume_message_directly(GROUP, "c", "T", msg_id)
        assert (made.client_id, made.consume_result) == ("c", ConsumeResult.CR_LATER)
        assert (made.order, made.remark, made.spent_time_ms) == (True, "why", 3)
        assert not made.is_consumed
    assert [(each.client_id, each.msg_id, each.topic) for each in handed(broker)] == [
        ("c", broker.id_at(0), "T")
    ] * 2
    assert handed(cluster.masters[0]) == []


@within(ask)
async def test_without_a_client_the_first_that_is_online_gets_it_and_is_named(cluster, admin, /):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, LIST, online("c2", "c1"))
    answer(broker, HAND, by_client(c1=not_connected("c1"), c2=result()))
    made = await admin.consume_message_directly(GROUP, None, "T", "U1")
    assert (made.client_id, made.is_consumed) == ("c2", True)
    # One that may have had it is not followed by another.
    timeout = offline(ResponseCode.CONSUME_MSG_TIMEOUT, "consumer <g> <c1> Timeout: x")
    answer(broker, HAND, by_client(c1=timeout, c2=result()))
    with pytest.raises(BrokerError) as refused:
        await admin.consume_message_directly(GROUP, None, "T", "U1")
    assert refused.value.code == 207
    answer(broker, HAND, by_client(c1=not_connected("c1"), c2=not_connected("c2")))
    with pytest.raises(BrokerError, match="not online"):
        await admin.consume_message_directly(GROUP, None, "T", "U1")


@within(ask)
async def test_a_whole_group_gets_it_and_each_client_has_its_result_or_error(cluster, admin, /):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, LIST, online("c1", "c2", "c3", "c4"))
    unknown = Response(body=b'{"consumeResult":"CR_WHATEVER"}')
    garbage = Response(body=b"{")
    answers = {"c1": result(), "c2": not_connected("c2"), "c3": garbage, "c4": unknown}
    answer(broker, HAND, by_client(**answers))
    made = await admin.consume_message_directly_by_all(GROUP, "T", "U1")
    assert list(made) == ["c1", "c2", "c3", "c4"]
    assert made["c1"].is_consumed
    assert isinstance(made["c2"], BrokerError)
    assert isinstance(made["c3"], BadAnswer)
    assert (made["c4"].consume_result, made["c4"].is_consumed) == (None, False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"spentTimeMills":{}}', b"\xff"])
@within(ask)
async def test_a_client_whose_answer_cannot_be_read_may_have_consumed_the_message(
    cluster, admin, /, content
):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, HAND, Response(body=content))
    with pytest.raises(BadAnswer) as refused:
        await admin.consume_message_directly(GROUP, "c1", "T", "U1")
    assert "the answer of client c1 to request 309" in str(refused.value)
    assert "it may have consumed the message; look at its log" in str(refused.value)


@within(ask)
async def test_nothing_is_handed_over_where_nobody_listens(cluster, admin, /):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, HAND, result())
    answer(broker, LIST, offline())
    for call in (
        admin.consume_message_directly(GROUP, None, "T", "U1"),
        admin.consume_message_directly_by_all(GROUP, "T", "U1"),
    ):
        with pytest.raises(BrokerError) as refused:
            await call
        assert refused.value.code == 206
    answer(broker, LIST, online("c", kind=ConsumeType.CONSUME_ACTIVELY))
    with pytest.raises(BadInput, match="no push consumers"):
        await admin.consume_message_directly(GROUP, None, "T", "U1")
    with pytest.raises(MessageNotFound):
        await admin.consume_message_directly(GROUP, "c", "T", "no-such-key")
    assert handed(broker) == []


@within(ask, masters=2)
async def test_a_message_of_a_broker_that_moved_is_handed_over_there(cluster, admin, /):
    old, new = cluster.masters
    record = old.store("T", unique_key="U1")
    new.log[:], new.records[:] = old.log, old.records
    message = await admin.view_message("T", "U1")
    unregister(cluster, old.name)
    answer(new, HAND, result())
    made = await admin.consume_message_directly(GROUP, "c", "T", "U1")
    assert made.is_consumed
    assert handed(new)[0].msg_id == record.offset_msg_id == message.offset_msg_id
    assert handed(old) == []


@within(ask, masters=2, timeout_s=SILENCE_S)
async def test_a_broker_that_does_not_answer_is_not_one_that_lost_the_message(cluster, admin, /):
    old, new = cluster.masters
    old.store("T", unique_key="U1")
    message = await admin.view_message("T", "U1")
    unregister(cluster, old.name)
    with pytest.raises(MessageNotFound):
        await address_of(admin.source.cluster, message)
    new.is_slow = True
    with pytest.raises(AnswerIncomplete):
        await address_of(admin.source.cluster, message)

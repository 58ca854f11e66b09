"""Questions to a running cluster: what is asked for, what is refused, and where it goes."""

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BadInput, BrokerError, MessageIllegal, TopicNotFound, WrongType
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.fake_cluster import CONNECTS, T0, ask


@within(ask)
async def test_queues_are_asked_for_their_offsets(cluster, admin, /):
    for number in range(3):
        cluster.masters[0].store("T", b"%d" % number, queue_id=2)
    queues = await admin.message_queues("T")
    assert [(each.broker_name, each.queue_id) for each in queues] == [
        ("broker-a", number) for number in range(4)
    ]
    assert await admin.min_offset(queues[2]) == 0
    assert await admin.max_offset(queues[2]) == 3
    assert await admin.search_offset(queues[2], T0 + 2) == 1
    assert await admin.earliest_message_store_time(queues[2]) == T0 + 1
    assert await admin.earliest_message_store_time(queues[0]) == -1
    cluster.masters[0].err(ResponseCode.NO_PERMISSION, "not\nyou")
    with pytest.raises(BrokerError, match="not you") as refused:
        await admin.min_offset(queues[0])
    assert (refused.value.code, refused.value.address) == (16, cluster.masters[0].address)
    with pytest.raises(TopicNotFound):
        await admin.min_offset(MessageQueue("T", "broker-z", 0))


@within(ask, masters=2)
async def test_a_topic_is_made_on_all_masters_or_says_where_not(cluster, admin, /):
    await admin.create_topic("New", 5)
    for broker in cluster.masters:
        ((code, header),) = broker.asked
        assert code == RequestCode.UPDATE_AND_CREATE_TOPIC
        assert (header.topic, header.read_queue_nums, header.perm) == ("New", 5, 6)
    cluster.masters[1].err(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(BrokerError) as refused:
        await admin.create_topic("New")
    assert any("done" in note for note in refused.value.__notes__)
    for bad in ("../../x", "", "a b", "x" * 128):
        with pytest.raises(MessageIllegal):
            await admin.create_topic(bad)
    with pytest.raises(BadInput, match="no broker"):
        await admin.create_topic("New", cluster_name="elsewhere")


@within(ask)
async def test_questions_that_make_no_sense_are_refused(cluster, admin, /):
    for bad in (("T", ""), ("T", "k" * 40_000), ("T", "k", -1), ("T", "k", 1, -5)):
        with pytest.raises(BadInput):
            await admin.query_message(*bad)
    with pytest.raises(BadInput):
        await admin.view_message("not an id")


@pytest.mark.parametrize(
    "question",
    [
        lambda admin: admin.query_message("T", 42),
        lambda admin: admin.query_message(42, "k"),
        lambda admin: admin.query_message("T", "k", max_num="5"),
        lambda admin: admin.query_message("T", "k", begin=1_790_000_000.0),
        lambda admin: admin.query_message_by_unique_key("T", b"k"),
        lambda admin: admin.view_message(42),
        lambda admin: admin.view_message("T", 42),
    ],
)
@within(ask)
async def test_an_argument_of_a_wrong_type_is_refused_before_anybody_is_asked(
    unused, admin, /, question
):
    CONNECTS.clear()
    with pytest.raises(WrongType, match=r"(key|topic|max_num|begin|unique_key|msg_id) must be"):
        await question(admin)
    assert CONNECTS == []

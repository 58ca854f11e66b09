"""An offset message id leads to one record, and never to an address outside of the cluster."""

from collections import defaultdict

import pytest
from msgspec.structs import replace

from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from tests.support.async_tests import within
from tests.support.fake_cluster import CONNECTS, ask, bodies


@within(ask, timeout_s=5)
async def test_a_thousand_forged_ids_dial_nothing_but_the_cluster(cluster, admin, /):
    cluster.masters[0].store("T", b"m", keys="k")
    own = {each.address for each in cluster.all}
    CONNECTS.clear()
    for number in range(1000):
        forged = OffsetMessageId(Host(f"10.66.{number % 256}.1", 80), number * 7).encode()
        with pytest.raises(MessageNotFound):
            await (admin.view_message(forged) if number % 2 else admin.view_message("T", forged))
    forged = OffsetMessageId(Host("127.0.0.1", 1), 0).encode()
    with pytest.raises(MessageNotFound):
        await admin.view_message(forged)
    dialled = {f"{each[0]}:{each[1]}" for each in CONNECTS if isinstance(each, tuple)}
    assert dialled
    assert dialled <= own
    assert len(CONNECTS) <= len(own)


def test_an_offset_id_is_found_also_when_its_broker_has_moved():
    async def scenario(cluster, admin):
        old = cluster.masters[0].store("T", b"m")
        await cluster.masters[0].die()
        log, kept = bytes(cluster.masters[0].log), list(cluster.masters[0].records)
        await cluster.masters[0].start()
        cluster.masters[0].log[:], cluster.masters[0].records[:] = log, kept
        assert old.offset_msg_id != cluster.masters[0].id_at(0)
        assert (await admin.view_message(old.offset_msg_id)).body == b"m"
        assert (await admin.view_message("T", old.offset_msg_id)).body == b"m"
        with pytest.raises(MessageNotFound):
            await admin.view_message("Other", old.offset_msg_id)

    async def with_topic(cluster, admin):
        for server in cluster.name_servers:
            server.topics["Other"] = ["broker-a"]
        await scenario(cluster, admin)

    ask(with_topic)


@within(ask)
async def test_a_record_inside_a_body_is_no_message(cluster, admin, /):
    broker = cluster.masters[0]
    inner_at = 89 - 1  # where the body of the first record begins
    broker.store("T", b"first", queue_id=1)
    probe = broker.store("T", b"p" * 200, queue_id=1)
    inner_at = bytes(broker.log).index(b"p" * 200)
    forged = bytearray(broker.bytes_of(broker.records[0]))
    forged[28:36] = inner_at.to_bytes(8)
    broker.log[inner_at : inner_at + len(forged)] = forged
    with pytest.raises(MessageNotFound):
        await admin.view_message(broker.id_at(inner_at))
    assert probe.physical_offset < inner_at
    for at in (1, 17, 10**9):
        with pytest.raises(MessageNotFound):
            await admin.view_message(broker.id_at(at))


@within(ask)
async def test_a_message_of_a_topic_that_its_broker_compacts_is_found_by_its_id(cluster, admin, /):
    broker = cluster.masters[0]
    kept = broker.store("T", b"body", keys="k")
    # What is pulled of such a topic comes from a log of its own.
    broker.queues["T", 0][0] = replace(kept, physical_offset=kept.physical_offset + 77)
    found = await admin.view_message(broker.id_at(kept.physical_offset))
    assert found.body == b"body"
    assert found.physical_offset == kept.physical_offset


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.cluster(masters=2)
async def test_an_offset_id_is_found_also_when_another_broker_has_its_address_now(
    cluster, remembering, remembers
):
    first, second = cluster.masters
    old = [(each, each.store("T", each.name.encode())) for each in cluster.masters]
    path = {} if remembers else {"seen_brokers": None}
    async with remembering(**path) as asking:
        assert (await asking.find(old[0][1].offset_msg_id)).complete
    # Each has the other's address from now on.
    first.log, second.log = second.log, first.log
    first.records, second.records = second.records, first.records
    first.queues, second.queues = second.queues, first.queues
    second.store("T", b"newer than what is looked for")
    async with remembering(**path) as asking:
        for _, record in old:
            answer = await asking.find(record.offset_msg_id)
            assert bodies(answer) == [record.body]
            assert answer.complete
            message = await asking.view_message(record.offset_msg_id)
            assert message.body == record.body
        gone = first.id_at(10**6)
        assert (await asking.find(gone)).complete
        await second.die()
        assert not (await asking.find(gone)).complete
        with pytest.raises(AnswerIncomplete):
            await asking.view_message(gone)


@pytest.mark.cluster(masters=2)
async def test_an_id_that_two_brokers_gave_at_one_address_leads_to_both_messages(
    cluster, remembering
):
    first, second = cluster.masters
    old = first.store("T", b"of the first")
    async with remembering() as asking:
        assert (await asking.find(old.offset_msg_id)).complete
    for server in cluster.name_servers:
        a, b = server.brokers["broker-a"], server.brokers["broker-b"]
        server.brokers = {"broker-a": b, "broker-b": a}
    second.log, second.records, second.queues = first.log, first.records, first.queues
    first.log, first.records, first.queues = bytearray(), [], defaultdict(list)
    new = first.store("T", b"of the second")
    assert new.offset_msg_id == old.offset_msg_id
    async with remembering() as asking:
        answer = await asking.find(old.offset_msg_id)
        assert bodies(answer) == [b"of the first", b"of the second"]
        assert answer.complete

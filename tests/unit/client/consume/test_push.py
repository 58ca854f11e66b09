"""A push consumer consumes each message at least once, and counts only what was consumed.

Messages for ``async for``: each is acked or comes again.
"""

import asyncio
import threading
from itertools import chain

import pytest

from rocketlens import limits
from rocketlens.client.consume import pulling, timing
from rocketlens.client.consume.consume_service import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
)
from rocketlens.client.consume.consumer_settings import MessageSelector
from rocketlens.client.consume.push import PushConsumer
from rocketlens.errors import BadInput, RemotingError, WrongUse
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.patience import PATIENCE_S, SILENCE_S
from tests.unit.client.consume.consumer_broker import RETRY, consumer_of, fill, run, until
from tests.unit.client.consume.consumer_messages import encoded


class Collecting:
    """A listener that keeps what it got, and fails as often as it is told to."""

    def __init__(self, fails=0, result=None):
        self.messages = []
        self.fails = fails
        self.result = result

    async def __call__(self, messages, _):
        if self.fails:
            self.fails -= 1
            if isinstance(self.result, Exception):
                raise self.result
            return self.result
        self.messages += messages
        return None

    @property
    def bodies(self):
        return sorted(int(each.body) for each in self.messages)


def test_all_messages_are_consumed_and_committed_when_the_consumer_is_closed():
    async def scenario(name_server, broker):
        fill(broker)
        listener = Collecting()
        async with consumer_of(name_server, listener):
            await until(lambda: len(listener.messages) == 40)
            fill(broker, 4)
            await until(lambda: len(listener.messages) == 44)
        assert broker.committed("g") == {0: 11, 1: 11, 2: 11, 3: 11}
        assert RequestCode.UNREGISTER_CLIENT in broker.codes()
        return listener

    listener = run(scenario)
    assert {each.unique_key for each in listener.messages} == {f"key-{n}" for n in range(40)}
    assert len({each.offset_msg_id for each in listener.messages}) == 44


@within(run)
async def test_a_second_consumer_goes_on_where_the_first_stopped(name_server, broker, /):
    fill(broker)
    first, second = Collecting(), Collecting()
    async with consumer_of(name_server, first):
        await until(lambda: len(first.messages) == 40)
    fill(broker, 8)
    async with consumer_of(name_server, second):
        await until(lambda: len(second.messages) == 8)
    assert second.bodies == list(range(8))


@within(run)
async def test_a_heartbeat_says_what_javas_says(name_server, broker, /):
    async with consumer_of(name_server, Collecting(), expression="A || B"):
        pass
    [data] = broker.heartbeats[0].consumer_datas
    assert (data.group_name, data.consume_type.name) == ("g", "CONSUME_PASSIVELY")
    assert data.message_model.name == "CLUSTERING"
    assert data.consume_from_where.name == "CONSUME_FROM_FIRST_OFFSET"
    topics = {each.topic: each for each in data.subscription_datas}
    assert set(topics) == {"T", RETRY + "g"}
    assert topics["T"].tags == ("A", "B")


@within(run)
async def test_pulls_ask_to_be_held_and_carry_the_offset_and_the_version(name_server, broker, /):
    fill(broker, 4)
    listener = Collecting()
    async with consumer_of(name_server, listener, expression="*"):
        await until(lambda: len(listener.messages) == 4)
        fill(broker, 4)
        await until(lambda: len(listener.messages) == 8)
        fill(broker, 4)
        await until(lambda: len(listener.messages) == 12)
    pulls = broker.headers(RequestCode.PULL_MESSAGE)
    assert {each.suspend_timeout_ms for each in pulls} == {15_000}
    assert {each.sys_flag & ~1 for each in pulls} == {2}
    assert {each.subscription for each in pulls} == {None}
    versions = {each.subscription_version for each in pulls if each.topic == "T"}
    assert len(versions) == 1
    assert 1 in {each.commit_offset for each in pulls if each.sys_flag & 1}


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("no"),
        ConsumeConcurrentlyStatus.RECONSUME_LATER,
        "garbage",
        ["unhashable"],
        False,
        ConsumeOrderlyStatus.SUCCESS,
    ],
)
@within(run)
async def test_a_message_that_fails_is_given_back_and_comes_again_with_its_own_topic(
    name_server, broker, /, failure
):
    stored = broker.store("T", b"1", unique_key="key", keys="k")
    listener = Collecting(fails=2, result=failure)
    async with consumer_of(name_server, listener, record_failures=False):
        await until(lambda: listener.messages)
    [message] = listener.messages
    assert (message.topic, message.reconsume_times, message.unique_key) == ("T", 2, "key")
    backs = broker.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert len(backs) == 2
    assert backs[0].physical_offset == stored.physical_offset
    assert (backs[0].consumer_group, backs[0].origin_topic) == ("g", "T")
    assert (backs[0].delay_level, backs[0].max_reconsume_times) == (0, 16)
    assert broker.committed("g")[0] == 1
    assert broker.committed("g", RETRY + "g")[0] == 2


@within(run)
async def test_only_the_messages_behind_the_ack_index_are_given_back(name_server, broker, /):
    for number in range(4):
        broker.store("T", b"%d" % number)
    seen = []

    async def listener(messages, context):
        seen.append([int(each.body) for each in messages])
        if len(messages) == 4:
            context.ack_index = 1

    async with consumer_of(name_server, listener, batch=4):
        await until(lambda: sum(map(len, seen)) >= 6)
    assert seen[0] == [0, 1, 2, 3]
    assert sorted(chain.from_iterable(seen[1:])) == [2, 3]


@within(run)
async def test_a_message_that_always_fails_ends_among_the_dead_letters(name_server, broker, /):
    broker.store("T", b"1")
    listener = Collecting(fails=1000, result=ValueError("no"))
    async with consumer_of(name_server, listener, max_reconsume_times=3):
        await until(lambda: broker.queue("%DLQ%g", 0))
    assert listener.fails == 1000 - 4


@within(run)
async def test_where_giving_back_fails_a_copy_is_sent_to_the_retry_topic(name_server, broker, /):
    broker.refuses_send_back = True
    broker.store("T", b"z" * 10, keys="k", unique_key="key", more={"TRAN_MSG": "true"})
    listener = Collecting(fails=1, result=ValueError("no"))
    async with consumer_of(name_server, listener, record_failures=False):
        await until(lambda: listener.messages)
    [sent] = broker.headers(RequestCode.SEND_MESSAGE_V2)
    assert (sent.topic, sent.reconsume_times, sent.max_reconsume_times) == (
        RETRY + "g",
        1,
        limits.MAX_INT,
    )
    [message] = listener.messages
    assert (message.topic, message.keys, message.unique_key) == ("T", ("k",), "key")
    assert message.properties["DELAY"] == "3"
    assert "TRAN_MSG" not in message.properties
    assert broker.committed("g")[0] == 1


@within(run)
async def test_a_broker_is_asked_once_to_take_a_message_that_is_given_back(name_server, broker, /):
    broker.refuses_send_back = True
    broker.send_codes = [ResponseCode.SYSTEM_ERROR]
    broker.store("T", b"1")
    listener = Collecting(fails=1, result=ValueError("no"))
    async with consumer_of(name_server, listener, record_failures=False):
        await until(lambda: broker.headers(RequestCode.SEND_MESSAGE_V2))
    assert len(broker.headers(RequestCode.SEND_MESSAGE_V2)) == 1


def test_what_can_not_be_given_back_at_all_is_consumed_again_here(monkeypatch):
    monkeypatch.setattr(timing, "LOCAL_RETRY_S", 0.01)

    async def scenario(name_server, broker):
        broker.refuses_send_back = True
        broker.send_codes = [ResponseCode.SYSTEM_ERROR] * 100
        broker.store("T", b"1")
        listener = Collecting(fails=2, result=ValueError("no"))
        async with consumer_of(name_server, listener, record_failures=False):
            await until(lambda: listener.messages)
        [message] = listener.messages
        assert message.reconsume_times == 2
        assert broker.committed("g")[0] == 1

    run(scenario)


@within(run)
async def test_messages_whose_tag_only_hashes_alike_are_passed_over(name_server, broker, /):
    for number, tag in enumerate(["Aa", "BB", "Aa", "BB"]):
        broker.store("T", b"%d" % number, more={"TAGS": tag})
    listener = Collecting()
    async with consumer_of(name_server, listener, expression="Aa"):
        await until(lambda: len(listener.messages) == 2)
        await until(lambda: broker.committed("g") or listener.bodies == [0, 2])
    assert listener.bodies == [0, 2]
    assert broker.committed("g")[0] == 4


@within(run)
async def test_sql_goes_to_the_broker_with_the_heartbeat(name_server, broker, /):
    async with consumer_of(name_server, Collecting(), expression=MessageSelector.by_sql("a > 3")):
        await until(lambda: broker.headers(RequestCode.PULL_MESSAGE))
    [data] = broker.heartbeats[0].consumer_datas
    sql = {each.topic: each for each in data.subscription_datas}["T"]
    assert (sql.sub_string, sql.expression_type) == ("a > 3", "SQL92")
    types = {
        each.expression_type
        for each in broker.headers(RequestCode.PULL_MESSAGE)
        if each.topic == "T"
    }
    assert types == {"SQL92"}


@within(run)
async def test_names_of_a_namespace_are_the_users_on_this_side_only(name_server, broker, /):
    broker.store("ns%T", b"1")
    listener = Collecting(fails=1, result=ValueError("no"))
    async with consumer_of(
        name_server, listener, namespace="ns", record_failures=False
    ) as consumer:
        await until(lambda: listener.messages)
        assert {each.topic for each in consumer.assignment} <= {"T", "%RETRY%g"}
    [message] = listener.messages
    assert message.topic == "T"
    [back] = broker.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (back.consumer_group, back.origin_topic) == ("ns%g", "ns%T")
    assert broker.committed("ns%g", "ns%T")[0] == 1


@within(run)
async def test_an_offset_beyond_the_end_goes_back_to_the_end(name_server, broker, /):
    fill(broker, 8)
    broker.offsets = {("g", "T", number): 50 for number in range(4)}
    listener = Collecting()
    async with consumer_of(name_server, listener):
        await until(lambda: broker.committed("g") == dict.fromkeys(range(4), 2))
        fill(broker, 4)
        await until(lambda: len(listener.messages) == 4)
    assert broker.committed("g") == dict.fromkeys(range(4), 3)


@within(run)
async def test_an_offset_before_the_beginning_goes_on_from_the_beginning(name_server, broker, /):
    fill(broker, 16)
    broker.begins_at = 2
    listener = Collecting()
    async with consumer_of(name_server, listener):
        await until(lambda: len(listener.messages) == 8)
    assert listener.bodies == list(range(8, 16))


@within(run)
async def test_a_broker_that_was_restarted_gets_a_heartbeat_and_nothing_is_lost(
    name_server, broker, /
):
    fill(broker, 8)
    listener = Collecting()
    async with consumer_of(name_server, listener):
        await until(lambda: len(listener.messages) == 8)
        await broker.die()
        fill(broker, 8)
        await broker.restart()
        await until(lambda: len(listener.messages) >= 16)
        assert broker.members["g"]
    assert set(listener.bodies) == set(range(8))
    assert broker.committed("g") == broker.counts()


@within(run)
async def test_answers_that_cannot_be_are_not_believed_and_nothing_is_skipped(
    name_server, broker, /
):
    fill(broker, 8)
    torn = encoded(0)[:-3]
    broker.answers_to_pulls = [
        broker.pulled(ResponseCode.SUCCESS, 0, body=encoded(0)),
        broker.pulled(ResponseCode.SUCCESS, 9, body=torn),
        broker.pulled(ResponseCode.SUCCESS, -5),
        Response(ResponseCode.SUCCESS, {"nextBeginOffset": "x"}),
        Response(77, remark="what?"),
        broker.pulled(ResponseCode.PULL_NOT_FOUND, -1),
    ]
    listener = Collecting()
    async with consumer_of(name_server, listener):
        await until(lambda: len(listener.messages) == 8)
    assert listener.bodies == list(range(8))
    assert broker.committed("g") == broker.counts()


def test_a_defect_of_one_pull_does_not_end_the_pulling(monkeypatch):
    real, calls = pulling.messages_in, []

    def fail_once(body):
        calls.append(body)
        if len(calls) == 1:
            raise MemoryError
        return real(body)

    monkeypatch.setattr(pulling, "messages_in", fail_once)

    async def scenario(name_server, broker):
        fill(broker, 8)
        listener = Collecting()
        async with consumer_of(name_server, listener):
            await until(lambda: len(listener.messages) == 8)
        assert listener.bodies == list(range(8))

    run(scenario)


def test_a_strategy_that_raises_leaves_the_queues_as_they_are(monkeypatch):
    monkeypatch.setattr(timing, "RETRY_REBALANCE_S", 0.01)
    calls = []

    def allocate(client_id, queues, client_ids):
        calls.append(client_id)
        if len(calls) == 1:
            raise ZeroDivisionError
        return list(queues)

    async def scenario(name_server, broker):
        fill(broker, 8)
        listener = Collecting()
        async with consumer_of(name_server, listener, allocate=allocate):
            await until(lambda: len(listener.messages) == 8)

    run(scenario)


@within(run)
async def test_members_share_the_queues_and_take_over_when_one_leaves(name_server, broker, /):
    first, second = Collecting(), Collecting()
    async with consumer_of(name_server, first, instance_name="1") as one:
        await until(lambda: len(topic_queues(one)) == 4)
        async with consumer_of(name_server, second, instance_name="2") as two:
            await until(lambda: len(topic_queues(one)) == len(topic_queues(two)) == 2)
            assert not set(topic_queues(one)) & set(topic_queues(two))
            fill(broker, 8)
            await until(lambda: len(first.messages) + len(second.messages) >= 8)
            assert len(second.messages) == 4
        await until(lambda: len(topic_queues(one)) == 4)
        fill(broker, 8)
        await until(lambda: len(first.messages) >= 12)
    assert broker.committed("g") == broker.counts()


def topic_queues(consumer):
    return [each.queue_id for each in consumer.assignment if each.topic == "T"]


@within(run)
async def test_pulling_pauses_while_a_listener_has_enough_to_do(name_server, broker, /):
    for number in range(200):
        broker.store("T", b"%d" % number)
    go_on = asyncio.Event()
    done = []

    async def listener(messages, _):
        await go_on.wait()
        done.extend(messages)

    options = {"max_cached_messages_of_queue": 40, "concurrency": 2, "pull_batch": 32}
    async with consumer_of(name_server, listener, **options) as consumer:
        await until(lambda: len(broker.headers(RequestCode.PULL_MESSAGE)) >= 6)
        [held] = [
            len(owned.pq)
            for queue, owned in consumer._owned.items()
            if (queue.topic, queue.queue_id) == ("T", 0)
        ]
        assert held == 64
        go_on.set()
        await until(lambda: len(done) == 200)


@within(run)
async def test_a_plain_listener_does_not_block_the_event_loop(name_server, broker, /):
    fill(broker, 4)
    release = threading.Event()

    def listener(messages, _):
        release.wait(PATIENCE_S)

    async with consumer_of(name_server, listener):
        await until(lambda: len(broker.headers(RequestCode.PULL_MESSAGE)) >= 4)
        release.set()
        await until(lambda: broker.committed("g") or release.is_set())
    assert broker.committed("g") == broker.counts()


@within(run)
async def test_closing_waits_for_listeners_but_not_for_ever(name_server, broker, /):
    broker.store("T", b"slow", queue_id=0)
    broker.store("T", b"hangs", queue_id=1)
    began, release = asyncio.Event(), asyncio.Event()

    async def listener(messages, _):
        if messages[0].body == b"hangs":
            await asyncio.Event().wait()
        began.set()
        await release.wait()

    consumer = consumer_of(name_server, listener, close_timeout_s=SILENCE_S)
    await consumer.start()
    await began.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    release.set()
    await closing
    assert broker.committed("g")[0] == 1
    assert broker.committed("g").get(1, 0) == 0


def test_a_hanging_plain_listener_has_its_message_given_back():
    now_s = [0.0]

    async def scenario(name_server, broker):
        broker.store("T", b"1")
        began, release = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        calls = []

        def listener(messages, _):
            calls.append(messages[0].reconsume_times)
            loop.call_soon_threadsafe(began.set)
            if len(calls) == 1:
                release.wait(PATIENCE_S)

        consumer = consumer_of(name_server, listener, clock=lambda: now_s[0], record_failures=False)
        async with consumer:
            await began.wait()
            now_s[0] += timing.CONSUME_TIMEOUT_S + 1
            for owned in list(consumer._owned.values()):
                await consumer._service.send_back_expired(owned)
            await until(lambda: calls == [0, 1])
            release.set()
        [back] = broker.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert back.delay_level == 3
        assert broker.committed("g")[0] == 1

    run(scenario)


def test_broadcasting_keeps_its_offsets_in_rocketmqs_file(tmp_path):
    async def scenario(name_server, broker):
        fill(broker)
        options = {"broadcasting": True, "offsets_directory": tmp_path}
        one, two, third = Collecting(), Collecting(), Collecting()
        async with (
            consumer_of(name_server, one, instance_name="1", **options),
            consumer_of(name_server, two, instance_name="2", **options),
        ):
            await until(lambda: len(one.messages) == len(two.messages) == 40)
        assert broker.offsets == {}
        fill(broker, 4)
        async with consumer_of(name_server, third, instance_name="1", **options):
            await until(lambda: len(third.messages) == 4)
        [data] = broker.heartbeats[0].consumer_datas
        assert data.message_model.name == "BROADCASTING"
        assert [each.topic for each in data.subscription_datas] == ["T"]

    run(scenario)
    assert sorted(path.parent.name for path in tmp_path.rglob("offsets.json")) == ["g", "g"]


def test_broadcasting_goes_on_behind_what_it_passed_over(tmp_path):
    options = {"broadcasting": True, "offsets_directory": tmp_path, "begin": "last"}

    async def scenario(name_server, broker):
        for number in range(3):
            broker.store("T", b"%d" % number, more={"TAGS": "Other"})
        async with consumer_of(name_server, Collecting(), expression="Tag", **options) as consumer:
            await until(lambda: len(consumer.assignment) == 4)
            broker.store("T", b"of another tag", more={"TAGS": "Other"})
            await until(lambda: 4 in consumer.offsets_of("T").values())
        broker.store("T", b"sent while it was down", more={"TAGS": "Tag"})
        listener = Collecting()
        async with consumer_of(name_server, listener, expression="Tag", **options):
            await until(lambda: listener.messages)
        assert [each.body for each in listener.messages] == [b"sent while it was down"]

    run(scenario)


@within(run)
async def test_broadcasting_drops_what_fails(name_server, broker, /, tmp_path):
    fill(broker, 4)
    listener = Collecting(fails=1, result=ValueError("no"))
    options = {"broadcasting": True, "offsets_directory": tmp_path}
    async with consumer_of(name_server, listener, **options):
        await until(lambda: len(listener.messages) == 3)
    assert RequestCode.CONSUMER_SEND_MSG_BACK not in broker.codes()


def test_a_topic_that_comes_later_is_consumed(monkeypatch):
    monkeypatch.setattr(timing, "RETRY_REBALANCE_S", 0.01)

    async def scenario(name_server, broker):
        del broker.name_server.topics["T"]
        listener = Collecting()
        async with consumer_of(name_server, listener):
            broker.name_server.topics["T"] = [broker.name]
            fill(broker, 4)
            await until(lambda: len(listener.messages) == 4)

    run(scenario)


@within(run)
async def test_a_topic_is_unsubscribed_from_and_another_subscribed_to(name_server, broker, /):
    broker.name_server.topics["U"] = [broker.name]
    listener = Collecting()
    async with consumer_of(name_server, listener) as consumer:
        await until(lambda: len(topic_queues(consumer)) == 4)
        consumer.subscribe("U")
        consumer.unsubscribe("T")
        fill(broker, 4, topic="U")
        await until(lambda: len(listener.messages) == 4)
        await until(lambda: not topic_queues(consumer))


@pytest.mark.parametrize(
    "options",
    [
        {"group": ""},
        {"group": "a b"},
        {"begin": "middle"},
        {"concurrency": 0},
        {"batch": 1025},
        {"instance_name": "../x"},
    ],
)
def test_what_cannot_be_is_refused_at_once(options):
    with pytest.raises(BadInput):
        consumer_of("127.0.0.1:9876", **options)


@within(run)
async def test_a_consumer_is_used_as_it_must_be(name_server, broker, /):
    bare = PushConsumer(name_server, group="g")
    with pytest.raises(BadInput, match="no subscription"):
        await bare.start()
    consumer = consumer_of(name_server, Collecting())
    with pytest.raises(WrongUse, match="listener already"):
        consumer.listen(Collecting())
    with pytest.raises(WrongUse, match="has a listener"):
        aiter(consumer)
    async with consumer:
        with pytest.raises(WrongUse, match="started already"):
            await consumer.start()
    await consumer.close()
    with pytest.raises(WrongUse, match="closed"):
        await consumer.start()


async def test_a_name_server_that_is_not_there_is_an_error_at_the_start():
    consumer = consumer_of("127.0.0.1:1", Collecting(), timeout_s=0.2)
    with pytest.raises(RemotingError):
        await consumer.start()


@within(run)
async def test_a_batch_that_is_one_record_is_delivered_as_its_messages(name_server, broker, /):
    broker.store_batch("T", [(b"%d" % number, f"k{number}") for number in range(3)])
    broker.store("T", b"3")
    seen, failed = [], []

    def listener(messages, _):
        for each in messages:
            if each.body == b"1" and not failed:
                failed.append(each)
                raise ValueError
            seen.append((each.body, each.keys))

    async with consumer_of(name_server, listener):
        await until(lambda: len(seen) == 4)
    assert sorted(seen) == [(b"0", ("k0",)), (b"1", ("k1",)), (b"2", ("k2",)), (b"3", ())]
    [back] = broker.headers(RequestCode.SEND_MESSAGE_V2)
    assert (back.topic, back.reconsume_times) == (RETRY + "g", 1)
    assert broker.committed("g")[0] == 4


@within(run)
async def test_an_iteration_counts_only_what_is_acked(name_server, broker, /):
    fill(broker, 8)
    seen = []
    async with consumer_of(name_server, concurrency=8) as consumer:
        async for message in consumer:
            seen.append(int(message.body))
            if message.queue_id != 3:
                consumer.ack(message)
                with pytest.raises(WrongUse, match="does not wait"):
                    consumer.ack(message)
            if len(seen) == 8:
                break
    assert sorted(seen) == list(range(8))
    assert broker.committed("g") == {0: 2, 1: 2, 2: 2, 3: 0} or broker.committed("g") == {
        0: 2,
        1: 2,
        2: 2,
    }


@within(run)
async def test_each_message_of_a_batch_in_an_iteration_is_acked_by_itself(name_server, broker, /):
    broker.store_batch("T", [(b"%d" % number, f"k{number}") for number in range(3)])
    async with consumer_of(name_server, concurrency=3) as consumer:
        messages = aiter(consumer)
        for message in [await anext(messages) for _ in range(3)]:
            consumer.ack(message)
    assert broker.committed("g") == {0: 3}


@within(run)
async def test_a_message_of_an_iteration_comes_again_later(name_server, broker, /):
    broker.store("T", b"1")
    async with consumer_of(name_server) as consumer:
        messages = aiter(consumer)
        consumer.later(await anext(messages), delay_level=5)
        again = await anext(messages)
        assert (again.topic, again.reconsume_times) == ("T", 1)
        consumer.ack(again)
    [back] = broker.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert back.delay_level == 5
    assert broker.committed("g", RETRY + "g")[0] == 1


@within(run)
async def test_an_iteration_ends_when_the_consumer_is_closed(name_server, broker, /):
    consumer = consumer_of(name_server)
    await consumer.start()

    async def iterate():
        return [message async for message in consumer]

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await consumer.close()
    assert await iterating == []

"""A name server and a broker in this process that consumers can live on, and that can be made to
fail; messages that are given back come again at once.
"""

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace

from rocketlens.client.consume.push import PushConsumer
from rocketlens.formats import commitlog_record as records
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8
from rocketlens.net.channel import Response
from rocketlens.net.server import RemotingServer
from rocketlens.wire.bodies.clients import (
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.commands.messages import SUSPEND_FLAG
from rocketlens.wire.declare import read_body, write_body
from tests.support.fake_cluster import FakeBroker, FakeNameServer
from tests.support.patience import PATIENCE_S

RETRY = "%RETRY%"


class ConsumerBroker(FakeBroker):
    def __init__(self, name_server, name="broker-a"):
        super().__init__(name)
        self.name_server = name_server
        self.offsets = {}
        """(group, topic, queue id) to offset."""
        self.members = {}
        """Group to client ids and channels."""
        self.heartbeats = []
        self.locks = {}
        self.lock_is_refused = False
        self.stored_more = asyncio.Event()
        self.knows_lite = True
        self.refuses_send_back = False
        self.begins_at = 0
        """The first offset that each queue has."""
        self.answers_to_pulls = []
        """Responses that come before others."""

    def answers(self):
        return super().answers() | {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
            RequestCode.HEART_BEAT: None,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.ids,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.GET_MIN_OFFSET: lambda *_: Response(
                ext_fields={"offset": str(self.begins_at)}
            ),
        }

    def _failing(self, code, answer=None):
        if code != RequestCode.HEART_BEAT:
            return super()._failing(code, answer)

        def beat(command, channel):
            return super(ConsumerBroker, self)._failing(
                code, lambda *_: self.beat(command, channel)
            )(command, channel)

        return beat

    async def restart(self):
        """Come back at the same address, without memory of its clients."""
        self.members.clear()
        self.locks.clear()
        host, _, port = self.address.rpartition(":")
        self.server = RemotingServer(self.handlers())
        self.server.listen(host, int(port))

    def store(self, *arguments, **named):
        stored = super().store(*arguments, **named)
        self.stored_more.set()
        self.stored_more = asyncio.Event()
        return stored

    def beat(self, command, channel):
        body = read_body(HeartbeatData, command.body)
        self.heartbeats.append(body)
        for each in body.consumer_datas:
            members = self.members.setdefault(each.group_name, {})
            is_new = body.client_id not in members
            members[body.client_id] = channel
            self.name_server.topics.setdefault(RETRY + each.group_name, [self.name])
            if is_new:
                self.tell_members(each.group_name)
        return Response()

    def tell_members(self, group):
        for channel in self.members[group].values():
            if channel.is_open:
                channel.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def unregister(self, header, _):
        self.members.get(header.consumer_group, {}).pop(header.client_id, None)
        if header.consumer_group in self.members:
            self.tell_members(header.consumer_group)
        return Response()

    def ids(self, header, _):
        members = self.members.get(header.consumer_group)
        if not members:
            return Response(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
        return Response(body=write_body(ConsumerIdList(consumer_ids=tuple(members))))

    def query_offset(self, header, _):
        found = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if found is None:
            return Response(ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Response(ext_fields={"offset": str(found)})

    def update_offset(self, header, _):
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return Response()

    def lock(self, _, command):
        body = read_body(LockBatchRequest, command.body)
        locked = []
        for each in body.queues:
            owner = self.locks.setdefault((body.consumer_group, each), body.client_id)
            if owner == body.client_id and not self.lock_is_refused:
                locked.append(each)
        return Response(body=write_body(LockBatchResponse(locked_queues=tuple(locked))))

    def unlock(self, _, command):
        body = read_body(LockBatchRequest, command.body)
        for each in body.queues:
            self.locks.pop((body.consumer_group, each), None)
        return Response()

    def send_back(self, header, _):
        if self.refuses_send_back:
            return Response(ResponseCode.SYSTEM_ERROR, remark="look message by offset failed")
        record = records.decode(self.log, header.physical_offset)
        named = props.parse(decode_utf8(record.properties))
        named.setdefault(props.RETRY_TOPIC, record.topic)
        topic = RETRY + header.consumer_group
        if record.reconsume_times >= header.max_reconsume_times or header.delay_level < 0:
            topic = topic.replace("RETRY", "DLQ")
        self.store_again(record, topic, named)
        return Response()

    def send(self, header, command):
        """Store what is sent to a retry topic as a broker does that has no delays."""
        answer = super().send(header, command)
        if header.topic.startswith(RETRY) and answer.code == ResponseCode.SUCCESS:
            record = self.queues[header.topic, header.queue_id].pop()
            record = replace(record, reconsume_times=header.reconsume_times - 1)
            is_dead = header.reconsume_times > header.max_reconsume_times
            topic = header.topic.replace("RETRY", "DLQ") if is_dead else header.topic
            self.store_again(record, topic, props.parse(decode_utf8(record.properties)))
        return answer

    def store_again(self, record, topic, named):
        again = replace(
            record,
            topic=topic,
            queue_id=0,
            queue_offset=len(self.queue(topic, 0)),
            physical_offset=len(self.log),
            reconsume_times=record.reconsume_times + 1,
            properties=props.format_properties(named).encode(),
        )
        encoded = records.encode(again)
        self.log += encoded
        self.records.append(records.decode(encoded))
        self.queues[topic, 0].append(self.records[-1])
        self.stored_more.set()
        self.stored_more = asyncio.Event()

    def lite_pull(self, header, command):
        if not self.knows_lite:
            return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="361 not supported")
        return self.pull(header, command)

    async def pull(self, header, command):
        if self.answers_to_pulls:
            return self.answers_to_pulls.pop(0)
        if header.consumer_group not in self.members:
            return Response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="not exist")
        if header.sys_flag & 1:
            key = header.consumer_group, header.topic, header.queue_id
            self.offsets[key] = header.commit_offset
        if header.sys_flag & SUSPEND_FLAG:
            try:
                async with asyncio.timeout(header.suspend_timeout_ms / 1000):
                    while self.max_of(header) == header.queue_offset:
                        await self.stored_more.wait()
            except TimeoutError:
                pass
        count = self.max_of(header)
        if not self.begins_at <= header.queue_offset <= count:
            at = self.begins_at if header.queue_offset < self.begins_at else count
            return self.pulled(ResponseCode.PULL_OFFSET_MOVED, at, header)
        return super().pull(header, command)

    def max_of(self, header):
        return len(self.queue(header.topic, header.queue_id))

    def pulled(self, code, next_offset, header=None, body=b""):
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.begins_at),
            "maxOffset": str(0 if header is None else self.max_of(header)),
        }
        return Response(code, fields, body)

    def committed(self, group, topic="T"):
        """Offsets of a topic's queues that have any."""
        return {
            queue_id: offset
            for (of_group, of_topic, queue_id), offset in sorted(self.offsets.items())
            if (of_group, of_topic) == (group, topic)
        }

    def counts(self, topic="T"):
        return {number: len(self.queue(topic, number)) for number in range(4)}

    async def ask(self, group, code, ext_fields, body=b""):
        """Ask a group's only member something, as a broker does."""
        [channel] = self.members[group].values()
        return await channel.request(code, ext_fields, body, timeout_s=PATIENCE_S)

    def headers(self, code):
        return [header for asked, header in self.asked if asked == code]


@asynccontextmanager
async def serving():
    """A name server, and a broker with the topic T, which has 4 queues."""
    name_server = FakeNameServer()
    broker = ConsumerBroker(name_server)
    await name_server.start()
    await broker.start()
    name_server.brokers = {broker.name: {0: broker}}
    name_server.topics = {"T": [broker.name], "ns%T": [broker.name]}
    try:
        yield name_server, broker
    finally:
        for each in (broker, name_server):
            await each.server.stop(grace_s=0)


def run(scenario):
    """Run ``await scenario(name server's address, broker)``."""

    async def main():
        async with asyncio.timeout(PATIENCE_S), serving() as (name_server, broker):
            return await scenario(name_server.address, broker)

    return asyncio.run(main())


async def until(condition):
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what it waits for is in another task
            await asyncio.sleep(0.005)


def fill(broker, count=40, topic="T", **named):
    return [
        broker.store(
            topic, b"%d" % number, queue_id=number % 4, unique_key=f"key-{number}", **named
        )
        for number in range(count)
    ]


def consumer_of(name_server, listener=None, *, expression="*", orderly=False, **options):
    """Return a push consumer of topic T that listens, if it is to."""
    given = {"group": "g", "begin": "first", "close_timeout_s": 1.0} | options
    consumer = PushConsumer(name_server, **given)
    consumer.subscribe("T", expression)
    if listener is not None:
        (consumer.listen_orderly if orderly else consumer.listen)(listener)
    return consumer

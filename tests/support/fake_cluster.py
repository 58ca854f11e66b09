"""A name server and brokers in this process, as real as clients need; they can be made to fail.

The broker answers as RocketMQ's does where that is awkward: at most `cap` messages to a query,
the newest, with times rounded down to seconds since the first message; a key that stands twice in
a message brings it twice; a look-up by offset believes whatever bytes are there.
"""

import asyncio
import json
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from itertools import accumulate

import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.producer import Producer
from rocketlens.formats import batch_body, java_properties
from rocketlens.formats import commitlog_record as records
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP
from rocketlens.model.text.java import decode_utf8, index_hash
from rocketlens.net.channel import Response
from rocketlens.net.server import RemotingServer
from rocketlens.wire.bodies.clients import ConsumeQueueAnswer, ConsumeQueueData
from rocketlens.wire.bodies.tables import (
    BrokerData,
    ClusterInfo,
    MessageQueue,
    QueueData,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.patience import PATIENCE_S
from tests.support.wire_samples import COMMANDS

LOOPBACK = "127.0.0.1"
T0 = 1_790_000_000_000
QUEUES = 4
FAILURES = ("dead", "slow", "erring")
CONNECTS = []
"""The addresses that were dialled in this process."""


def _audit(event, arguments):
    if event == "socket.connect":
        CONNECTS.append(arguments[1])


sys.addaudithook(_audit)


class Fake:
    """What both have: handlers, a list of what was asked, and ways to fail."""

    def __init__(self):
        self.asked = []
        self.fails_with = None
        self.refused = set()
        """Codes that nobody may use."""
        self.is_slow = False
        self.closes_when_large = False
        self.server = None
        self.address = ""

    def handlers(self):
        return {code: self._failing(code) for code in self.answers()}

    def _failing(self, code, answer=None):
        def handle(command, channel):
            header = COMMANDS[code].request.decode(command.ext_fields)
            self.asked.append((code, header))
            if self.is_slow:
                return asyncio.get_running_loop().create_future()
            if self.fails_with is not None:
                return self.fails_with
            if code in self.refused:
                return Response(ResponseCode.NO_PERMISSION, remark="no")
            response = (answer or self.answers()[code])(header, command)
            if self.closes_when_large and len(response.body) > limits.MAX_FRAME_BYTES:
                channel.abort("as one who reads such a frame does")
                return None
            return response

        return handle

    def codes(self):
        return [code for code, _ in self.asked]

    async def start(self):
        self.server = RemotingServer(self.handlers())
        self.address = str(self.server.listen(LOOPBACK, 0))

    async def die(self):
        await self.server.stop(grace_s=0)

    def err(self, code=ResponseCode.SYSTEM_ERROR, remark="it broke"):
        self.fails_with = Response(code, remark=remark)


class FakeNameServer(Fake):
    def __init__(self):
        super().__init__()
        self.brokers = {}
        """Name to {broker id: FakeBroker}."""
        self.topics = {}
        """Name to broker names."""
        self.queue_data = {}
        """Name to what its queues have other than ``QUEUES`` and all permissions."""
        self.acting = set()
        """Names of brokers with ``enableSlaveActingMaster``, none of which can be written to."""

    def answers(self):
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topic_list,
        }

    def broker_data(self, name):
        addresses = {number: broker.address for number, broker in self.brokers[name].items()}
        return BrokerData(broker_name=name, broker_addrs=addresses, cluster="C")

    def route(self, header, _):
        names = self.topics.get(header.topic)
        if names is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        queues = [
            QueueData(
                **{
                    "broker_name": name,
                    "read_queue_nums": QUEUES,
                    "write_queue_nums": QUEUES,
                    "perm": 4 if name in self.acting else 6,
                    **self.queue_data.get(header.topic, {}),
                }
            )
            for name in names
        ]
        route = TopicRouteData(
            queue_datas=tuple(queues), broker_datas=tuple(map(self.in_route, names))
        )
        return Response(body=write_body(route))

    def in_route(self, name):
        """Return a broker as routes have it: a slave that acts as the master has its id."""
        broker = self.broker_data(name)
        if name not in self.acting:
            return broker
        addresses = dict(broker.broker_addrs)
        addresses[0] = addresses.pop(min(addresses))
        return replace(broker, broker_addrs=addresses, enable_acting_master=True)

    def topic_list(self, *_):
        return Response(body=write_body(TopicList(topic_list=tuple(self.topics))))

    def cluster(self, *_):
        info = ClusterInfo(
            broker_addr_table={name: self.broker_data(name) for name in self.brokers},
            cluster_addr_table={"C": tuple(self.brokers)},
        )
        return Response(body=write_body(info))


class FakeBroker(Fake):
    def __init__(self, name="broker-a", cap=64):
        super().__init__()
        self.name = name
        self.cap = cap
        self.log = bytearray()
        self.records = []
        self.queues = defaultdict(list)
        self.send_codes = []
        """Codes to answer sends with, one for each; then all succeed."""
        self.more_fields = {}
        """Of answers to queries."""
        self.now_ms = T0
        self.step_ms = 1
        self.tells_dispatch = True
        self.undispatched = []
        self.runtime_remarks = []
        """How many of the newest records are in no queue or index yet, each time that is asked."""
        self.deleted = Counter()
        """How many of the oldest messages of queues are deleted, by topic and queue id."""
        self.topic_attributes = {}
        """Of topics; a broker without any is one of RocketMQ 4, which has none."""
        self.tells_attributes = True
        self.replaced = []
        """Records of compacted topics that are not in the log which these are pulled from."""
        self.config = {"messageIndexEnable": "true"}
        """Of the broker, besides its limits of queries; empty if it does not tell any."""
        self.has_index = True
        self.index_begin = 0
        """Physical offset before which the index has nothing, as of a broker that was killed."""
        self.not_indexed = set()
        """Unique keys of messages that the index does not have."""

    def answers(self):
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_BROKER_CONFIG: self.broker_config,
            RequestCode.GET_ALL_PRODUCER_INFO: lambda *_: Response(body=b"{}"),
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_queue,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.UPDATE_AND_CREATE_TOPIC: lambda *_: Response(),
            RequestCode.HEART_BEAT: lambda *_: Response(),
            RequestCode.UNREGISTER_CLIENT: lambda *_: Response(),
        }

    def store(
        self, topic, body=b"x", *, keys="", unique_key="", queue_id=0, sys_flag=0, flag=0, more=None
    ):
        named = {props.KEYS: keys, props.UNIQUE_KEY: unique_key, **(more or {})}
        self.now_ms += self.step_ms
        record = records.Record(
            total_size=0,
            magic=records.MAGIC_V1,
            body_crc=0,
            queue_id=queue_id,
            flag=flag,
            queue_offset=len(self.queues[topic, queue_id]),
            physical_offset=len(self.log),
            sys_flag=sys_flag,
            born_timestamp_ms=self.now_ms,
            born_host=Host(LOOPBACK, 1),
            store_timestamp_ms=self.now_ms,
            store_host=Host(LOOPBACK, int(self.address.rpartition(":")[2])),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body,
            topic=topic,
            properties=props.format_properties(named).encode(),
        )
        encoded = records.encode(record)
        self.log += encoded
        self.records.append(records.decode(encoded))
        self.queues[topic, queue_id].append(self.records[-1])
        return self.records[-1]

    def store_batch(self, topic, members, *, unique_key="", queue_id=0):
        """Store messages, each with the given body and keys, as one record."""
        encoded = [
            batch_body.BatchMember(0, body, props.format_properties({props.KEYS: keys}).encode())
            for body, keys in members
        ]
        flags = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
        more = {props.INNER_NUM: str(len(encoded))}
        record = self.store(
            topic,
            batch_body.encode(encoded),
            unique_key=unique_key,
            queue_id=queue_id,
            sys_flag=flags,
            more=more,
        )
        self.queues[topic, queue_id] += [record] * (len(encoded) - 1)
        return record

    def queue(self, topic, queue_id):
        end = self.dispatched[-1].physical_offset if self.dispatched else -1
        queue = self.queues[topic, queue_id]
        return queue[: bisect_right(queue, end, key=lambda each: each.physical_offset)]

    @property
    def dispatched(self):
        """The records that look-ups find."""
        if not self.undispatched:
            return self.records
        return self.records[: len(self.records) - self.undispatched[0]]

    def runtime(self, *_):
        if self.runtime_remarks:
            return Response(ResponseCode.SYSTEM_ERROR, remark=self.runtime_remarks.pop(0))
        if not self.tells_dispatch:
            return Response(ResponseCode.NO_PERMISSION, remark="no")
        dispatched = self.dispatched
        if self.undispatched:
            self.undispatched.pop(0)
        end = dispatched[-1].physical_offset + dispatched[-1].total_size if dispatched else 0
        figures = {
            "commitLogMaxOffset": str(len(self.log)),
            "dispatchBehindBytes": str(len(self.log) - end),
        }
        return Response(body=json.dumps({"table": figures}).encode())

    def send(self, header, command):
        code = self.send_codes.pop(0) if self.send_codes else ResponseCode.SUCCESS
        if code not in {ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}:
            return Response(code, remark="no")
        named = props.parse(header.properties)
        keys, unique_key = named.pop(props.KEYS, ""), named.pop(props.UNIQUE_KEY)
        stored = self.store(
            header.topic,
            command.body,
            keys=keys,
            unique_key=unique_key,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            flag=header.flag,
            more=named,
        )
        return self.sent(code, [stored])

    def send_batch(self, header, command):
        stored = [
            self.store(
                header.topic,
                each.body,
                queue_id=header.queue_id,
                flag=each.flag,
                more=props.parse(each.properties.decode() + header.properties),
            )
            for each in batch_body.decode(command.body)
        ]
        return self.sent(ResponseCode.SUCCESS, stored)

    def sent(self, code, stored):
        first = stored[0]
        fields = {
            "msgId": ",".join(each.offset_msg_id for each in stored),
            "queueId": str(first.queue_id),
            "queueOffset": str(first.queue_offset),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return Response(code, fields)

    def recall(self, header, _):
        return Response(ext_fields={"msgId": RecallHandle.decode(header.recall_handle).unique_key})

    def query(self, header, _):
        found = []
        begin_ms = self.records[0].store_timestamp_ms if self.records else 0
        for each in reversed(self.dispatched if self.has_index and self.may_have(header) else []):
            if each.physical_offset < self.index_begin:
                break
            named = props.parse(decode_utf8(each.properties))
            if named.get(props.UNIQUE_KEY) in self.not_indexed:
                continue
            keys = [*props.split_keys(named.get(props.KEYS)), named.get(props.UNIQUE_KEY, "")]
            read_ms = begin_ms + max(each.store_timestamp_ms - begin_ms, 0) // 1000 * 1000
            if not header.begin_timestamp_ms <= read_ms <= header.end_timestamp_ms:
                continue
            wanted = index_hash(f"{header.topic}#{header.key}")
            hits = [k for k in keys if index_hash(f"{each.topic}#{k}") == wanted]
            found += [each] * len(hits)
        found = found[: min(header.max_num, self.cap)]
        newest = self.records[-1].store_timestamp_ms if self.records else 0
        fields = {"indexLastUpdateTimestamp": str(newest), "indexLastUpdatePhyoffset": "0"}
        fields |= self.more_fields
        if not found:
            return Response(ResponseCode.QUERY_NOT_FOUND, fields, remark="can not find message")
        ordered = sorted(found, key=lambda each: each.physical_offset)
        return Response(ext_fields=fields, body=b"".join(map(self.bytes_of, ordered)))

    def may_have(self, header):
        """Return whether the one index file is looked into: by its first and its last message."""
        if not self.records:
            return False
        first, last = (self.records[number].store_timestamp_ms for number in (0, -1))
        begin, end = header.begin_timestamp_ms, header.end_timestamp_ms
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def bytes_of(self, record):
        return bytes(self.log[record.physical_offset :][: record.total_size])

    def view(self, header, _):
        at = header.physical_offset
        size = int.from_bytes(self.log[at : at + 4])
        if not 0 < size <= len(self.log) - at:
            return Response(
                ResponseCode.SYSTEM_ERROR, remark=f"can not find message by the offset, {at}"
            )
        return Response(body=bytes(self.log[at : at + size]))

    def pull(self, header, _):
        queue = self.queue(header.topic, header.queue_id)
        given = queue[header.queue_offset :][: min(header.max_message_nums, 32)]
        after = header.queue_offset + len(given)
        if self.is_compacted(header.topic):
            return self.pull_compacted(header, queue)
        first = self.deleted[header.topic, header.queue_id]
        code = ResponseCode.SUCCESS if given else ResponseCode.PULL_NOT_FOUND
        if header.queue_offset < first:
            given, after, code = [], first, ResponseCode.PULL_OFFSET_MOVED
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(after),
            "minOffset": str(first),
            "maxOffset": str(len(queue)),
        }
        return Response(code, fields, b"".join(map(self.bytes_of, dict.fromkeys(given))))

    def is_compacted(self, topic):
        """Return whether what is pulled of a topic is from a log of its own."""
        is_tiered = "messageStorePlugIn" in self.config
        return is_tiered or "COMPACTION" in self.topic_attributes.get(topic, {}).values()

    def pull_compacted(self, header, queue):
        """Answer from the log of a compacted topic, which has offsets of its own."""
        kept = [each for each in queue if each not in self.replaced]
        given = [each for each in kept if each.queue_offset >= header.queue_offset]
        given = given[: min(header.max_message_nums, 32)]
        after = given[-1].queue_offset + 1 if given else len(queue)
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(after),
            "minOffset": "0",
            "maxOffset": str(len(queue)),
        }
        starts = accumulate((each.total_size for each in kept), initial=0)
        own = {id(each): start for each, start in zip(kept, starts, strict=False)}
        body = b"".join(
            records.encode(replace(each, physical_offset=own[id(each)])) for each in given
        )
        return Response(
            ResponseCode.SUCCESS if given else ResponseCode.PULL_NOT_FOUND, fields, body
        )

    def broker_config(self, *_):
        if not self.config:
            return Response(ResponseCode.NO_PERMISSION, remark="no")
        limits_of_queries = {"maxMsgsNumBatch": str(self.cap), "defaultQueryMaxNum": str(self.cap)}
        config = limits_of_queries | self.config
        return Response(body=java_properties.dumps_unescaped(config).encode())

    def topic_config(self, header, _):
        if not self.tells_attributes:
            return Response(ResponseCode.NO_PERMISSION, remark="no")
        if not self.topic_attributes:
            return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
        attributes = self.topic_attributes.get(header.topic, {})
        return Response(
            body=write_body(TopicConfig(topic_name=header.topic, attributes=attributes))
        )

    def search_offset(self, header, _):
        queue = self.queue(header.topic, header.queue_id)
        first = self.deleted[header.topic, header.queue_id]
        found = bisect_left(
            queue, header.timestamp_ms, first, key=lambda each: each.store_timestamp_ms
        )
        return Response(ext_fields={"offset": str(found)})

    def min_offset(self, header, _):
        return Response(ext_fields={"offset": str(self.deleted[header.topic, header.queue_id])})

    def max_offset(self, header, _):
        count = len(self.queue(header.topic, header.queue_id))
        return Response(ext_fields={"offset": str(count)})

    def query_queue(self, header, _):
        """Answer for a queue as RocketMQ does: it is not made by the question."""
        if (header.topic, header.queue_id) not in self.queues:
            name = f"{header.queue_id}@{header.topic}"
            return Response(ResponseCode.SYSTEM_ERROR, remark=f"{name} is not exist!")
        queue = self.queue(header.topic, header.queue_id)
        entries = tuple(
            ConsumeQueueData(physical_offset=each.physical_offset, store_size=each.total_size)
            for each in queue[header.index :][: header.count]
        )
        return Response(body=write_body(ConsumeQueueAnswer(entries=entries, max_offset=len(queue))))

    def earliest(self, header, _):
        queue = self.queue(header.topic, header.queue_id)
        first = queue[0].store_timestamp_ms if queue else -1
        return Response(ext_fields={"timestamp": str(first)})

    def topic_stats(self, header, _):
        table = {}
        stored = [queue_id for topic, queue_id in self.queues if topic == header.topic]
        for queue_id in range(max([QUEUES - 1, *stored]) + 1):
            queue = self.queue(header.topic, queue_id)
            first = self.deleted[header.topic, queue_id]
            # RocketMQ does not find the time of a message that is deleted.
            newest_ms = queue[-1].store_timestamp_ms if queue[first:] else -1 if queue else 0
            name = MessageQueue(topic=header.topic, broker_name=self.name, queue_id=queue_id)
            table[name] = TopicOffset(
                min_offset=first, max_offset=len(queue), last_update_timestamp_ms=newest_ms
            )
        return Response(body=write_body(TopicStatsTable(offset_table=table)))

    def id_at(self, physical_offset):
        host, _, port = self.address.rpartition(":")
        return OffsetMessageId(Host(host, int(port)), physical_offset).encode()


def damage_body(broker, record):
    """Flip a bit of a stored body."""
    at = broker.log.index(record.body, record.physical_offset)
    broker.log[at] ^= 1
    assert zlib.crc32(broker.log[at : at + len(record.body)]) != record.body_crc


class FakeCluster:
    """``masters`` and ``slaves`` are lists of FakeBroker; all start with the topic "T"."""

    def __init__(self, masters=1, slaves=0, name_servers=1):
        self.masters = [FakeBroker(f"broker-{chr(97 + n)}") for n in range(masters)]
        self.slaves = [FakeBroker(f"broker-{chr(97 + n)}") for n in range(slaves)]
        self.name_servers = [FakeNameServer() for _ in range(name_servers)]

    @property
    def all(self):
        return [*self.masters, *self.slaves, *self.name_servers]

    @property
    def given(self):
        return ";".join(each.address for each in self.name_servers)


@asynccontextmanager
async def running(masters=1, slaves=0, name_servers=1):
    """Start them; the topic T is on all brokers."""
    cluster = FakeCluster(masters, slaves, name_servers)
    for each in cluster.all:
        await each.start()
    for server in cluster.name_servers:
        server.brokers = {each.name: {0: each} for each in cluster.masters}
        for each in cluster.slaves:
            server.brokers[each.name][1] = each
        server.topics = {"T": [each.name for each in cluster.masters]}
    try:
        yield cluster
    finally:
        for each in cluster.all:
            await each.server.stop(grace_s=0)


def options_of(request):
    """Return the options of a test's marker ``cluster``: of the cluster, and of the client."""
    marker = request.node.get_closest_marker("cluster")
    options = dict(marker.kwargs) if marker else {}
    sizes = {"masters", "slaves", "name_servers"} & options.keys()
    return {name: options.pop(name) for name in sizes}, options


@pytest.fixture
async def cluster(request):
    """Run a cluster for a test."""
    async with running(**options_of(request)[0]) as cluster:
        yield cluster


@pytest.fixture
async def admin(request, cluster):
    """Return an MQAdmin that asks ``cluster``."""
    given = {"timeout_s": PATIENCE_S, **options_of(request)[1]}
    async with MQAdmin(cluster.given, **given) as admin:
        yield admin


@pytest.fixture
async def producer(request, cluster):
    """Return a producer that sends to ``cluster``."""
    async with Producer(cluster.given, group="g", **options_of(request)[1]) as producer:
        yield producer


def ask(scenario, masters=1, slaves=0, name_servers=1, **options):
    """Run ``await scenario(cluster, admin)``."""

    async def main():
        async with running(masters, slaves, name_servers) as cluster:
            given = {"timeout_s": PATIENCE_S, **options}
            async with MQAdmin(cluster.given, **given) as admin:
                return await scenario(cluster, admin)

    return asyncio.run(main())


async def fail(broker, how):
    if how == "dead":
        await broker.die()
    elif how == "slow":
        broker.is_slow = True
    elif how == "erring":
        broker.err()


def bodies(answer):
    return [message.body for message in answer]


def produce(scenario, masters=1, slaves=0, name_servers=1, **options):
    """Run ``await scenario(cluster, producer)``."""

    async def main():
        async with (
            running(masters, slaves, name_servers) as cluster,
            Producer(cluster.given, group="g", **options) as producer,
        ):
            return await scenario(cluster, producer)

    return asyncio.run(main())


def sends(broker):
    codes = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    return [header for code, header in broker.asked if code in codes]


def stored(*brokers):
    return [record for broker in brokers for record in broker.records]


@pytest.fixture
def remembering(cluster, path):
    """Return ``remembering(**options)``: an MQAdmin that remembers brokers in the file ``path``."""

    def remembering(**options):
        given = {"timeout_s": PATIENCE_S, "seen_brokers": path, **options}
        return MQAdmin(cluster.given, **given)

    return remembering


def unregister(cluster, name):
    for server in cluster.name_servers:
        server.brokers.pop(name, None)
        for on in server.topics.values():
            if name in on:
                on.remove(name)

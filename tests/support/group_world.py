"""A cluster with consumer groups whose answers are fixed, and commands to it.

RocketMQ's own tool prints the same of it in each run, apart from ports and moments. What it printed
is in ``printed/groups-*.txt``, written by ``python -m tests.peer.test_mqadmin_groups``.
"""

import re
from contextlib import asynccontextmanager

from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.net.channel import Response
from rocketlens.wire.bodies.clients import (
    ClientConnection,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    GroupList,
    MessageModel,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    SubscriptionData,
)
from rocketlens.wire.bodies.tables import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    ResetOffsets,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.fake_cluster import T0, FakeBroker, FakeCluster

UNIQUE_KEY = "AC1E0A0900014E0E2F0E0AC1E0A90000"
PUSH, PULL = ConsumeType.CONSUME_PASSIVELY, ConsumeType.CONSUME_ACTIVELY
CONFIG = "".join(
    f"{name}={value}\n"
    for name, value in (
        [("brokerName", "broker-a"), ("brokerIP1", "10.0.0.1"), ("path", "a\\: b=c")]
        + [(f"key{number}{'x' * (number % 7)}", number) for number in range(60)]
    )
)


def subscription(topic, expression="*", tags=()):
    return SubscriptionData(topic=topic, sub_string=expression, tags=tags)


def connections(group, kind=PUSH, model=MessageModel.CLUSTERING, expression="*", tags=()):
    return ConsumerConnection(
        connections=(
            ClientConnection(
                client_id=f"{group}@1", client_addr="10.0.0.9:5", language="JAVA", version=407
            ),
        ),
        subscription_table={
            RETRY_PREFIX + group: subscription(RETRY_PREFIX + group),
            "T": subscription("T", expression, tags),
            "Another_topic_with_a_long_name": subscription("Another_topic_with_a_long_name"),
        },
        consume_type=kind,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )


GROUPS = {
    "g-push": connections("g-push"),
    "g-tag": connections("g-tag", expression="TagB || TagC", tags=("TagB", "TagC")),
    "g-pull": connections("g-pull", PULL),
    "g-pop": connections("g-pop", ConsumeType.CONSUME_POP),
    "g-broad": connections("g-broad", model=MessageModel.BROADCASTING),
    "g-new": connections("g-new"),
    "g-behind": connections("g-behind"),
    "g-off": None,
}
OFFSETS = {"g-push": 1, "g-tag": 1, "g-pull": 1, "g-behind": 0, "g-off": 1}
"""How far each came in queue 0, which has one message."""

COUNTS = {
    ("TOPIC_PUT_NUMS", "T"): BrokerStatsData(
        minute=BrokerStatsItem(sum=60, per_second=1.005),
        hour=BrokerStatsItem(sum=700, per_second=0.5),
        day=BrokerStatsItem(sum=12_345_678, per_second=0.25),
    ),
    ("GROUP_GET_NUMS", "T@g-push"): BrokerStatsData(
        minute=BrokerStatsItem(sum=30, per_second=0.125), hour=BrokerStatsItem(sum=650)
    ),
    ("GROUP_GET_NUMS", "T@g-tag"): BrokerStatsData(
        minute=BrokerStatsItem(sum=9, per_second=1234567.891)
    ),
}
"""What the broker counted; of the others nothing."""


def queue_of(number, topic="T"):
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=number)


def running_info(group):
    kind = GROUPS[group].consume_type
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "10.0.0.1:9876;",
            "PROP_CONSUME_TYPE": kind.name,
            "PROP_CLIENT_VERSION": "V5_5_0",
            "PROP_CONSUMEORDERLY": "true" if group == "g-tag" else "false",
            "PROP_THREADPOOL_CORE_SIZE": "20",
            "PROP_CONSUMER_START_TIMESTAMP": str(T0),
            "maxReconsumeTimes": "-1",
            "consumeThreadMin": "20",
        },
        subscriptions=(subscription("T"), subscription(RETRY_PREFIX + group)),
        queue_table={
            queue_of(number): ProcessQueueInfo(
                commit_offset=number + 5,
                cached_msg_count=number,
                last_pull_timestamp_ms=T0 + number,
                last_consume_timestamp_ms=T0 + 2,
                last_lock_timestamp_ms=T0 + 3,
                locked=number > 0,
                dropped=number == 2,
                try_unlock_times=number,
            )
            for number in range(3)
        },
        pop_table={queue_of(1): PopProcessQueueInfo(wait_ack_count=4)},
        status_table={
            "T": ConsumeStatus(pull_rt=1.005, consume_ok_tps=12.345, pull_tps=0.125),
            RETRY_PREFIX + group: ConsumeStatus(consume_failed_msgs=3),
        },
        user_consumer_info={"b": "2", "a": "1"},
        jstack="main\n  at Main.main(Main.java:1)\n" if group == "g-push" else None,
    )


class GroupBroker(FakeBroker):
    """Knows the groups; ``handed`` is what was handed to clients."""

    def __init__(self):
        super().__init__()
        self.handed = []
        self.committed = []
        self.listed = tuple(GROUPS)
        """The groups of topic T."""

    def answers(self):
        return {
            **super().answers(),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connection_list,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_list,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.count,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.GET_BROKER_CONFIG: lambda *_: Response(
                ext_fields={"version": "{}"}, body=CONFIG.encode()
            ),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda *_: Response(),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: lambda *_: Response(),
            RequestCode.DELETE_TOPIC_IN_BROKER: lambda *_: Response(),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
        }

    def connection_list(self, header, _):
        found = GROUPS.get(header.consumer_group)
        if found is None:
            words = f"the consumer group[{header.consumer_group}] not online"
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, remark=words)
        return Response(body=write_body(found))

    def producer_list(self, header, _):
        if header.producer_group != "p":
            words = f"the producer group[{header.producer_group}] not exist"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        made = ClientConnection(
            client_id="p@1", client_addr="10.0.0.9:6", language="GO", version=513
        )
        return Response(body=write_body(ProducerConnection(connections=(made,))))

    def all_producers(self, *_):
        made = ProducerInfo(client_id="p@1", remote_ip="/10.0.0.9:6", language="GO", version=513)
        return Response(body=write_body(ProducerTable(groups={"p": (made,), "none": ()})))

    def consume_stats(self, header, _):
        table = {}
        if header.consumer_group in OFFSETS:
            reached = OFFSETS[header.consumer_group]
            for number in range(4):
                is_first = number == 0
                table[queue_of(number)] = OffsetWrapper(
                    broker_offset=int(is_first),
                    consumer_offset=reached * is_first,
                    pull_offset=int(is_first),
                    last_timestamp_ms=T0 * is_first,
                )
            retry = queue_of(0, RETRY_PREFIX + header.consumer_group)
            table[retry] = OffsetWrapper()
        if header.topic is not None:
            table = {queue: each for queue, each in table.items() if queue.topic == header.topic}
        return Response(body=write_body(ConsumeStats(offset_table=table, consume_tps=2.675)))

    def topic_stats(self, header, _):
        table = {
            queue_of(number, header.topic): TopicOffset(max_offset=int(number == 0))
            for number in range(4)
        }
        return Response(body=write_body(TopicStatsTable(offset_table=table)))

    def topic_config(self, *_):
        return Response(ResponseCode.TOPIC_NOT_EXIST, remark="No topic in this broker.")

    def groups_of_topic(self, header, _):
        groups = self.listed if header.topic == "T" else ()
        return Response(body=write_body(GroupList(groups=groups)))

    def count(self, header, _):
        found = COUNTS.get((header.stats_name, header.stats_key))
        if found is None:
            words = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        return Response(body=write_body(found))

    def running_info(self, header, _):
        found = GROUPS.get(header.consumer_group)
        if found is None or header.client_id != f"{header.consumer_group}@1":
            return self.offline(header)
        return Response(body=write_body(running_info(header.consumer_group)))

    def offline(self, header):
        words = f"The Consumer <{header.consumer_group}> <{header.client_id}> not online"
        return Response(ResponseCode.SYSTEM_ERROR, remark=words)

    def consume_directly(self, header, _):
        if header.client_id != f"{header.consumer_group}@1":
            return self.offline(header)
        self.handed.append(header)
        result = {
            "g-push": ConsumeMessageDirectlyResult(
                consume_result=ConsumeResult.CR_SUCCESS, spent_time_ms=7
            ),
            "g-tag": ConsumeMessageDirectlyResult(
                order=True, consume_result=ConsumeResult.CR_THROW_EXCEPTION, remark="no é"
            ),
            "g-new": ConsumeMessageDirectlyResult(auto_commit=False),
        }.get(header.consumer_group)
        if result is None:
            words = f"consumer <{header.consumer_group}> <{header.client_id}> Timeout: none"
            return Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=words)
        return Response(body=write_body(result))

    def reset(self, header, _):
        if GROUPS.get(header.group) is None:
            words = f"Consumer not online, so can not reset offset, Group: {header.group}"
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, remark=words)
        table = {queue_of(number): number * 10 for number in range(4)}
        return Response(body=write_body(ResetOffsets(offset_table=table)))

    def commit(self, header, _):
        self.committed.append(header)
        return Response()


@asynccontextmanager
async def group_world():
    """Start the cluster, with one message at offset 0 of queue 0."""
    cluster = FakeCluster(masters=1)
    broker = GroupBroker()
    cluster.masters = [broker]
    for each in cluster.all:
        await each.start()
    (server,) = cluster.name_servers
    server.brokers = {"broker-a": {0: broker}}
    topics = ["T", "Empty", *(RETRY_PREFIX + group for group in GROUPS)]
    server.topics = {topic: ["broker-a"] for topic in topics}
    listed = Response(body=write_body(TopicList(topic_list=tuple(topics))))
    more = {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda *_: listed,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: lambda *_: Response(),
    }
    server.server.handlers.update(more)
    named = {"TAGS": "TagA", "UNIQ_KEY": UNIQUE_KEY}
    broker.store("T", b"hello", keys="k1 k2", more=named)
    try:
        yield cluster
    finally:
        for each in cluster.all:
            await each.server.stop(grace_s=0)


COMMANDS = (
    *(f"consumerConnection -g {group}" for group in ("g-push", "g-tag", "g-pull", "g-off")),
    *(f"consumerStatus -g {group}" for group in ("g-push", "g-tag", "g-pull", "g-off")),
    "consumerStatus -g g-push -i g-push@1 -s",
    "consumerStatus -g g-tag -i g-tag@1",
    "consumerStatus -g g-tag -i nobody",
    "consumerProgress -g g-push",
    "consumerProgress -g g-push -s true",
    "consumerProgress -g g-new",
    "consumerProgress -g g-broad",
    "consumerProgress -g g-off",
    "consumerProgress",
    "statsAll",
    "statsAll -a",
    "statsAll -t T",
    "statsAll -t Empty -a",
    "statsAll -t none",
    "producerConnection -g p -t T",
    "producerConnection -g none -t T",
    "producer -b {broker}",
    "getBrokerConfig -b {broker}",
    "getBrokerConfig -c C",
    "updateSubGroup -b {broker} -g made -r 3 -q 2 -d true -m true",
    "updateSubGroup -c C -g made -s false -a false -i 1 -w 2",
    "deleteSubGroup -b {broker} -g made",
    "deleteSubGroup -c C -g made -r true",
    "resetOffsetByTime -g g-push -t T -s 1600000000000",
    "resetOffsetByTime -g g-push -t T -s 2020-09-13#12:26:40:000 -f false",
    "resetOffsetByTime -g g-off -t T -s 1600000000000",
    "resetOffsetByTime -g g-off -t T -s 1600000000000 -f false",
    "resetOffsetByTime -g never -t T -s 1600000000000",
    "queryMsgById {topic} -i {offset_id}",
    "queryMsgByUniqueKey -t T -i {unique_key} {range}",
    "queryMsgByOffset -t T -b broker-a -i 0 -o 0",
    *(
        f"queryMsgById {{topic}} -i {{offset_id}} -g {group} -d {group}@1"
        for group in ("g-push", "g-tag", "g-new", "g-pull", "g-behind", "g-off")
    ),
    *(
        f"queryMsgByUniqueKey -t T -i {{offset_id}} -g {group} -d {group}@1"
        for group in ("g-push", "g-tag", "g-new", "g-pull", "g-off")
    ),
    "queryMsgById {topic} -i {offset_id},{offset_id} -g g-push -d g-push@1",
    "queryMsgById {topic} -i {offset_id} -s false",
    "consumeMessage -t T",
    "consumeMessage -t T -b broker-a -i 0",
    "consumeMessage -t T -b broker-a -i 0 -o 5",
    "consumeMessage -t T -b broker-a -i 0 -o 0 -c 1 -g g-x",
)
EXPONENTIAL = (
    '{{"type":"EXPONENTIAL","exponentialRetryPolicy":{{"initial":5000,"max":9,"multiplier":3}}}}'
)
ONLY_5 = (
    "consumerProgress -g g-push -t T",
    "updateSubGroup -b {broker} -g made -o true --attributes +a=b,+c=d,-e",
    f"updateSubGroup -b {{broker}} -g made -p {EXPONENTIAL}",
    'updateSubGroup -b {broker} -g made -p {{"customizedRetryPolicy":{{"next":[1,22]}}}}',
    "resetOffsetByTime -g g-push -t T -s 1600000000000 -b {broker} -q 0 -o 1",
    "resetOffsetByTime -g g-push -t T -s 1600000000000 -b {broker} -q 1 -o 7",
)


def command_lines(cluster, version):
    """The words of each command, the name before the connection."""
    (broker,) = cluster.masters
    is_5 = version.startswith("5")
    # The tool of RocketMQ 4.9 fails as a whole if one group pops.
    broker.listed = tuple(group for group in GROUPS if is_5 or group != "g-pop")
    values = {
        "broker": broker.address,
        "offset_id": broker.id_at(0),
        "unique_key": UNIQUE_KEY,
        "topic": "-t T" if is_5 else "",
        # The store times are of another year than the one this is run in.
        "range": f"-s 0 -e {T0 * 2}" if is_5 else "",
    }
    for line in (*COMMANDS, *(ONLY_5 if is_5 else ())):
        name, *words = line.format(**values).split()
        yield line, [name, "-n", cluster.name_servers[0].address, *words]


def comparable(text, cluster):
    """The text without ports, moments and directories, which differ from run to run."""
    (broker,) = cluster.masters
    port = int(broker.address.rpartition(":")[2])
    text = re.sub(r"(Message Body Path: +).*/", r"\1", text)
    text = re.sub(r"\b\d{13}/", "NOW/", text)
    text = re.sub(r"\d+ms$", "N ms", text, flags=re.MULTILINE)
    text = text.replace(f"7F000001{port:08X}", "7F00000100002A9F")
    text = text.replace(broker.address, "127.0.0.1:10911")
    return text.strip("\n")

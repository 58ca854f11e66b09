"""A value for every header and body that we know, and what the real RocketMQ made of them.

The vectors are lines of words parted by tabs, written by ``tests/peer/test_wire.py``.
"""

from functools import cache
from pathlib import Path

from rocketlens.wire.bodies.auth import (
    AclInfo,
    PlainAccessConfig,
    PlainAccessTable,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from rocketlens.wire.bodies.clients import (
    CheckClientRequest,
    ClientConnection,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumeQueueAnswer,
    ConsumeQueueData,
    ConsumerConnection,
    ConsumerData,
    ConsumeResult,
    ConsumerIdList,
    ConsumerRunningInfo,
    ConsumerStatusAnswer,
    ConsumeStatus,
    ConsumeType,
    GroupList,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    MessageModel,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTable,
    SubscriptionAnswer,
    SubscriptionData,
)
from rocketlens.wire.bodies.tables import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupAnswer,
    ClusterInfo,
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    KvTable,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    RegisterBrokerBody,
    ResetOffsets,
    RetryPolicyType,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from rocketlens.wire.commands import auth, brokers, groups, messages
from rocketlens.wire.commands.messages import SendMessageRequest
from rocketlens.wire.declare import BOOLEAN, INT32, INT64, TEXT, Command, WireStruct, fields_of

COMMANDS = {
    command.code: command
    for family in (auth, brokers, groups, messages)
    for command in vars(family).values()
    if isinstance(command, Command)
}
VERSIONS = {"4.9.7": 407, "5.5.0": 513}
VECTORS = Path(__file__).parents[1] / "unit" / "wire" / "vectors"

# In every request header of RocketMQ's since 4.9 or 5.0; brokers need none of them.
GENERIC_FIELDS = {"bname", "lo", "ns", "nsd", "oway"}

SHORT_JAVA_NAME = "SendMessageRequestHeaderV2"


def java_names_of(cls):
    """RocketMQ's classes of a body; a NamedTuple has the name of its one."""
    return getattr(cls, "java_names", (cls.__name__,))


CLASSES = {
    name: cls for cls in (*WireStruct.__subclasses__(), MessageQueue) for name in java_names_of(cls)
}


def headers():
    """Name of RocketMQ's class, and the codec of ours, for every header that it has a class for."""
    for command in COMMANDS.values():
        for codec in (command.request, command.response):
            is_short = codec.header_class is SendMessageRequest and "a" in codec.wire_names.values()
            for java_name in codec.header_class.java_names:
                yield (SHORT_JAVA_NAME if is_short else java_name), codec


HEADERS = dict(headers())


def sample(header_class, version):
    """A header whose every field that ``version`` has holds something else than its default."""
    values = {}
    for number, field in enumerate(fields_of(header_class), 1):
        if not has_field(header_class, field, version) or field.wire_name == "lo":
            # The headers that RocketMQ wrote were written without the last one.
            values[field.name] = field.default
        elif field.wire_name == "boundaryType":
            values[field.name] = "LOWER"
        elif field.wire_name == "topicFilterType":
            values[field.name] = "MULTI_TAG"
        elif field.wire_name == "commitOrRollback":
            values[field.name] = 8
        else:
            values[field.name] = {
                TEXT: f'{field.name} é€😀"\\\x01\x02',
                INT32: -number,
                INT64: 2**40 + number,
                BOOLEAN: True,
            }[field.shape]
    return header_class(**values)


def bodies():
    """One of each body; maps have one entry, for RocketMQ orders them in its own way."""
    queue = MessageQueue(topic="t", broker_name="b", queue_id=3)
    subscription = SubscriptionData(
        topic="t", sub_string="A", tags=("A",), codes=(65,), sub_version=1_700_000_000_000
    )
    config = TopicConfig(
        topic_name="t", read_queue_nums=4, write_queue_nums=5, perm=6, attributes={}
    )
    topics = TopicConfigTable(
        data_version=DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
        topic_config_table={"t": config},
    )
    brokers = BrokerData(
        broker_name="b", cluster="c", broker_addrs={0: "10.0.0.1:10911"}, enable_acting_master=True
    )
    data = ConsumerData(
        group_name="g",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        subscription_datas=(subscription,),
        unit_mode=True,
    )
    policy_entry = PolicyEntryInfo(
        resource="Topic:t*", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",), decision="Allow"
    )
    account = PlainAccessConfig(
        access_key="a",
        secret_key="s",
        white_remote_address="10.0.0.1",
        admin=True,
        default_topic_perm="DENY",
        default_group_perm="SUB",
        topic_perms=("t=PUB|SUB",),
        group_perms=("g=SUB",),
    )
    return (
        queue,
        config,
        topics,
        RegisterBrokerBody(topic_config_table=topics, filter_server_list=("f",)),
        brokers,
        TopicRouteData(
            queue_datas=(
                QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=4),
            ),
            broker_datas=(brokers,),
            filter_server_table={"10.0.0.1:10911": ("f",)},
            order_topic_conf="b:4",
        ),
        BrokerMemberGroupAnswer(
            broker_member_group=BrokerMemberGroup(
                cluster="c", broker_name="b", broker_addrs={0: "10.0.0.1:10911"}
            )
        ),
        ClusterInfo(broker_addr_table={"b": brokers}, cluster_addr_table={"c": ("b",)}),
        TopicList(topic_list=("t", "日本"), broker_addr="10.0.0.1:10911"),
        subscription,
        HeartbeatData(
            client_id='10.0.0.9@1#"\\\n',
            producer_datas=(ProducerData(group_name="p"),),
            consumer_datas=(data,),
        ),
        CheckClientRequest(client_id="c", group="g", subscription=subscription),
        TopicStatsTable(
            offset_table={queue: TopicOffset(min_offset=1, max_offset=2**40)}, topic_put_tps=1.5
        ),
        ConsumeStats(
            offset_table={queue: OffsetWrapper(broker_offset=9, pull_offset=8)}, consume_tps=0.25
        ),
        ConsumeStatsList(
            consume_stats_list=({"g": (ConsumeStats(consume_tps=0.5),)},),
            broker_addr="10.0.0.1:10911",
            total_diff=5,
        ),
        KvTable(table={"commitLogDiskRatio": "0.25"}),
        ConsumerConnection(
            connections=(
                ClientConnection(
                    client_id="c", client_addr="10.0.0.9:5", language="GO", version=407
                ),
            ),
            subscription_table={"t": subscription},
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ),
        ProducerConnection(
            connections=(ClientConnection(client_id="p", client_addr="10.0.0.9:6", language="CPP"),)
        ),
        ProducerTable(groups={"p": (ProducerInfo(client_id="c", remote_ip="/1", language="GO"),)}),
        SubscriptionAnswer(subscription=subscription, group="g", topic="t"),
        ConsumeQueueAnswer(
            subscription=subscription,
            filter_data="none",
            entries=(ConsumeQueueData(physical_offset=2**40, store_size=7, tags_code=-(2**50)),),
            max_offset=9,
        ),
        ConsumerIdList(consumer_ids=("c", "d")),
        GroupList(groups=("g",)),
        LockBatchRequest(consumer_group="g", client_id="c", queues=(queue,), only_this_broker=True),
        LockBatchResponse(locked_queues=(queue,)),
        ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": "false"},
            subscriptions=(subscription,),
            queue_table={queue: ProcessQueueInfo(commit_offset=5, locked=True)},
            status_table={"t": ConsumeStatus(pull_rt=0.5, consume_failed_msgs=3)},
            pop_table={queue: PopProcessQueueInfo(wait_ack_count=2)},
            user_consumer_info={"a": "b"},
            jstack="a\nb",
        ),
        ConsumerStatusAnswer(queue_table={queue: 7}, consumer_table={"c": {queue: 7}}),
        ConsumeMessageDirectlyResult(
            consume_result=ConsumeResult.CR_SUCCESS, remark="r", spent_time_ms=3
        ),
        ResetOffsets(offset_table={queue: 2**40}),
        SubscriptionGroupConfig(
            group_name="g",
            consume_message_orderly=True,
            retry_max_times=-1,
            group_retry_policy=GroupRetryPolicy(
                type=RetryPolicyType.EXPONENTIAL, exponential=ExponentialRetryPolicy(initial_ms=1)
            ),
            broker_id=2**40,
            attributes={"a": "b"},
        ),
        SubscriptionGroupTable(
            subscription_group_table={"g": SubscriptionGroupConfig(group_name="g")},
            data_version=DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
            forbidden_table={"g": {"t": 3}},
        ),
        UserInfo(username="u", password="p", user_type="Normal", user_status="enable"),
        AclInfo(
            subject="User:u", policies=(PolicyInfo(policy_type="Custom", entries=(policy_entry,)),)
        ),
        account,
        PlainAccessTable(global_white_addrs=("10.*.*.*",), plain_access_configs=(account,)),
    )


@cache
def vectors(version):
    """The lines of a version, as lists of words."""
    lines = (VECTORS / f"{version}.txt").read_text(encoding="ascii").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def vectors_of(version, kind):
    return [words[1:] for words in vectors(version) if words[0] == kind]


def all_vectors(kind):
    """Pairs of version and words, for pytest.mark.parametrize."""
    return [(version, words) for version in VERSIONS for words in vectors_of(version, kind)]


@cache
def fields_of_java(version):
    """Each header class of RocketMQ's, with its fields and their types."""
    return {
        java_name: dict(word.split("=") for word in words if word)
        for java_name, *words in vectors_of(version, "fields")
    }


def has_field(header_class, field, version):
    """Say whether RocketMQ's class has the field in a version; of a class it has not: yes."""
    known = [
        fields[java_name]
        for fields in [fields_of_java("5.5.0" if version > 407 else "4.9.7")]
        for java_name in header_class.java_names
        if java_name in fields
    ]
    return not known or field.wire_name in {*known[0], "_UNIQUE_KEY_QUERY"}

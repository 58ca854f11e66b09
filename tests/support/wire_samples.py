"""A value for every header and body that we know, and what the real RocketMQ made of them.

The vectors are lines of words parted by tabs, written by ``tests/peer/test_wire.py``.
"""

from functools import cache
from pathlib import Path

from rocketlens.wire.bodies import (
    auth,
    consumer,
    heartbeat,
    route,
    stats,
    subscription_group,
    topic,
)
from rocketlens.wire.commands import COMMANDS
from rocketlens.wire.commands.command_table import NoFields
from rocketlens.wire.commands.send import SendMessageRequest
from rocketlens.wire.declare import BOOLEAN, I32, I64, TEXT, fields_of, java_names_of

VERSIONS = {"4.9.7": 407, "5.5.0": 513}
VECTORS = Path(__file__).parents[1] / "unit" / "wire" / "vectors"

# In every request header of RocketMQ's since 4.9 or 5.0; brokers need none of them.
GENERIC_FIELDS = {"bname", "lo", "ns", "nsd", "oway"}

SHORT_JAVA_NAME = "SendMessageRequestHeaderV2"


def headers():
    """Name of RocketMQ's class, and the codec of ours, for every header that it has a class for."""
    for command in COMMANDS.values():
        for codec in (command.request, command.response):
            is_short = codec.header_class is SendMessageRequest and "a" in codec.wire_names.values()
            for java_name in java_names_of(codec.header_class):
                yield (SHORT_JAVA_NAME if is_short else java_name), codec


HEADERS = dict(headers())


def sample(header_class, version):
    """A header whose every field that ``version`` has holds something else than its default."""
    values = {}
    for number, field in enumerate(fields_of(header_class), 1):
        if field.since > version:
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
                I32: -number,
                I64: 2**40 + number,
                BOOLEAN: True,
            }[field.shape]
    return header_class(**values)


def bodies():
    """One of each body; maps have one entry, for RocketMQ orders them in its own way."""
    queue = stats.MessageQueueBody(topic="t", broker_name="b", queue_id=3)
    subscription = heartbeat.SubscriptionData(
        topic="t", sub_string="A", tags=("A",), codes=(65,), sub_version=1_700_000_000_000
    )
    config = topic.TopicConfig(
        topic_name="t", read_queue_nums=4, write_queue_nums=5, perm=6, attributes={}
    )
    topics = topic.TopicConfigTable(
        data_version=topic.DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
        topic_config_table={"t": config},
    )
    brokers = route.BrokerData(
        broker_name="b", cluster="c", broker_addrs={0: "10.0.0.1:10911"}, enable_acting_master=True
    )
    data = heartbeat.ConsumerData(
        group_name="g",
        consume_type=heartbeat.ConsumeType.CONSUME_PASSIVELY,
        message_model=heartbeat.MessageModel.CLUSTERING,
        consume_from_where=heartbeat.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        subscription_datas=(subscription,),
        unit_mode=True,
    )
    policy_entry = auth.PolicyEntryInfo(
        resource="Topic:t*", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",), decision="Allow"
    )
    account = auth.PlainAccessConfig(
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
        topic.RegisterBrokerBody(topic_config_table=topics, filter_server_list=("f",)),
        brokers,
        route.TopicRouteData(
            queue_datas=(
                route.QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=4),
            ),
            broker_datas=(brokers,),
            filter_server_table={"10.0.0.1:10911": ("f",)},
            order_topic_conf="b:4",
        ),
        route.BrokerMemberGroupAnswer(
            broker_member_group=route.BrokerMemberGroup(
                cluster="c", broker_name="b", broker_addrs={0: "10.0.0.1:10911"}
            )
        ),
        route.ClusterInfo(broker_addr_table={"b": brokers}, cluster_addr_table={"c": ("b",)}),
        route.TopicList(topic_list=("t", "日本"), broker_addr="10.0.0.1:10911"),
        subscription,
        heartbeat.HeartbeatData(
            client_id='10.0.0.9@1#"\\\n',
            producer_datas=(heartbeat.ProducerData(group_name="p"),),
            consumer_datas=(data,),
        ),
        heartbeat.CheckClientRequest(client_id="c", group="g", subscription=subscription),
        stats.TopicStatsTable(
            offset_table={queue: stats.TopicOffset(min_offset=1, max_offset=2**40)},
            topic_put_tps=1.5,
        ),
        stats.ConsumeStats(
            offset_table={queue: stats.OffsetWrapper(broker_offset=9, pull_offset=8)},
            consume_tps=0.25,
        ),
        stats.ConsumeStatsList(
            consume_stats_list=({"g": (stats.ConsumeStats(consume_tps=0.5),)},),
            broker_addr="10.0.0.1:10911",
            total_diff=5,
        ),
        stats.KvTable(table={"commitLogDiskRatio": "0.25"}),
        consumer.ConsumerConnection(
            connections=(
                consumer.ClientConnection(
                    client_id="c", client_addr="10.0.0.9:5", language="GO", version=407
                ),
            ),
            subscription_table={"t": subscription},
            consume_type=heartbeat.ConsumeType.CONSUME_ACTIVELY,
            message_model=heartbeat.MessageModel.BROADCASTING,
            consume_from_where=heartbeat.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ),
        consumer.ProducerConnection(
            connections=(
                consumer.ClientConnection(client_id="p", client_addr="10.0.0.9:6", language="CPP"),
            )
        ),
        consumer.ProducerTable(
            groups={"p": (consumer.ProducerInfo(client_id="c", remote_ip="/1", language="GO"),)}
        ),
        consumer.SubscriptionAnswer(subscription=subscription, group="g", topic="t"),
        consumer.ConsumeQueueAnswer(
            subscription=subscription,
            filter_data="none",
            entries=(
                consumer.ConsumeQueueData(physical_offset=2**40, store_size=7, tags_code=-(2**50)),
            ),
            max_offset=9,
        ),
        consumer.ConsumerIdList(consumer_ids=("c", "d")),
        consumer.GroupList(groups=("g",)),
        consumer.LockBatchRequest(
            consumer_group="g", client_id="c", queues=(queue,), only_this_broker=True
        ),
        consumer.LockBatchResponse(locked_queues=(queue,)),
        consumer.ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": "false"},
            subscriptions=(subscription,),
            queue_table={queue: consumer.ProcessQueueInfo(commit_offset=5, locked=True)},
            status_table={"t": consumer.ConsumeStatus(pull_rt=0.5, consume_failed_msgs=3)},
            pop_table={queue: consumer.PopProcessQueueInfo(wait_ack_count=2)},
            user_consumer_info={"a": "b"},
            jstack="a\nb",
        ),
        consumer.ConsumerStatusAnswer(queue_table={queue: 7}, consumer_table={"c": {queue: 7}}),
        consumer.ConsumeMessageDirectlyResult(
            consume_result=consumer.ConsumeResult.CR_SUCCESS, remark="r", spent_time_ms=3
        ),
        stats.ResetOffsets(offset_table={queue: 2**40}),
        subscription_group.SubscriptionGroupConfig(
            group_name="g",
            consume_message_orderly=True,
            retry_max_times=-1,
            group_retry_policy=subscription_group.GroupRetryPolicy(
                type=subscription_group.RetryPolicyType.EXPONENTIAL,
                exponential=subscription_group.ExponentialRetryPolicy(initial_ms=1),
            ),
            broker_id=2**40,
            attributes={"a": "b"},
        ),
        subscription_group.SubscriptionGroupTable(
            subscription_group_table={
                "g": subscription_group.SubscriptionGroupConfig(group_name="g")
            },
            data_version=topic.DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
            forbidden_table={"g": {"t": 3}},
        ),
        auth.UserInfo(username="u", password="p", user_type="Normal", user_status="enable"),
        auth.AclInfo(
            subject="User:u",
            policies=(auth.PolicyInfo(policy_type="Custom", entries=(policy_entry,)),),
        ),
        account,
        auth.PlainAccessTable(global_white_addrs=("10.*.*.*",), plain_access_configs=(account,)),
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


def is_known(header_class, version):
    return header_class is NoFields or any(
        words[0] in java_names_of(header_class) for words in vectors_of(version, "fields")
    )

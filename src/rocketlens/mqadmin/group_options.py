"""The commands about consumers and producers, their options in RocketMQ's words."""

from typing import Final

from rocketlens.mqadmin.command_line import (
    BEGIN_TIMESTAMP,
    CLUSTER_OR_PARENT,
    END_TIMESTAMP,
    Option,
    SubCommand,
)

_CONSUMERS: Final = "rocketlens.mqadmin.consumers"
_GROUPS: Final = "rocketlens.mqadmin.subscription_groups"

_GROUP: Final = Option("g", "consumerGroup", "consumer group name", required=True)
_BROKER: Final = Option("b", "brokerAddr", "broker address")
_CONFIG: Final = (
    Option("b", "brokerAddr", "create subscription group to which broker"),
    Option("c", "clusterName", "create subscription group to which cluster"),
    Option("g", "groupName", "consumer group name", required=True),
    Option("s", "consumeEnable", "consume enable"),
    Option("m", "consumeFromMinEnable", "from min offset"),
    Option("d", "consumeBroadcastEnable", "broadcast"),
    Option("o", "consumeMessageOrderly", "consume message orderly", only_5=True),
    Option("q", "retryQueueNums", "retry queue nums"),
    Option("r", "retryMaxTimes", "retry max times"),
    Option(
        "p",
        "groupRetryPolicy",
        "the json string of retry policy ( exp: "
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":'
        '{"initial":5000,"max":7200000,"multiplier":2}} '
        '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}} )',
        only_5=True,
    ),
    Option("i", "brokerId", "consumer from which broker id"),
    Option("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly"),
    Option("a", "notifyConsumerIdsChanged", "notify consumerId changed"),
    Option("", "attributes", "attribute(+a=b,+c=d,-e)", only_5=True),
)
_DELETE: Final = (
    Option("b", "brokerAddr", "delete subscription group from which broker"),
    Option("c", "clusterName", "delete subscription group from which cluster"),
    Option("g", "groupName", "subscription group name", required=True),
    Option("r", "removeOffset", "remove offset"),
)
_PROGRESS: Final = (
    Option("g", "groupName", "consumer group name"),
    Option("t", "topicName", "topic name", only_5=True),
    Option("s", "showClientIP", "Show Client IP per Queue"),
    CLUSTER_OR_PARENT,
)
_STATUS: Final = (
    _GROUP,
    Option("i", "clientId", "The consumer's client id"),
    _BROKER,
    Option("s", "jstack", "Run jstack command in the consumer progress", takes_value=False),
)
_PRODUCERS: Final = (
    Option("g", "producerGroup", "producer group name", required=True),
    Option("t", "topic", "topic name", required=True),
)
_ALL_PRODUCERS: Final = (Option("b", "broker", "broker address", required=True),)
# The spaces in the long names are RocketMQ's.
_CONSUME: Final = (
    Option("t", "topic", "Topic name", required=True),
    Option("b", "brokerName", "Broker name"),
    Option("i", "queueId", "Queue Id"),
    Option("o", "offset", "Queue offset"),
    Option("g", "consumerGroup", "Consumer group name"),
    Option("s", "beginTimestamp ", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("e", "endTimestamp ", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("c", "MessageNumber", "Number of message to be consumed"),
)
_FORCE: Final = "set the force rollback by timestamp switch[true|false]"
_RESET: Final = (
    Option("g", "group", "set the consumer group", required=True),
    Option("t", "topic", "set the topic", required=True),
    Option(
        "s",
        "timestamp",
        "set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]",
        required=True,
    ),
    Option("f", "force", f"{_FORCE}. Deprecated.", description_4=_FORCE),
    Option("c", "cplus", "reset c++ client offset", takes_value=False, only_4=True),
    Option("b", "broker", "broker addr", only_5=True),
    Option("q", "queue", "queue id", only_5=True),
    Option("o", "offset", "Expect queue offset, not support old version broker", only_5=True),
    CLUSTER_OR_PARENT,
)
_TRACE: Final = (
    Option("i", "msgId", "Message Id", required=True),
    Option("t", "traceTopic", "The name value of message trace topic"),
    BEGIN_TIMESTAMP,
    END_TIMESTAMP,
    Option(
        "c",
        "maxNum",
        "The maximum number of messages returned by the query, default:64",
        only_5=True,
    ),
)
_STATS: Final = (
    Option("a", "activeTopic", "print active topic only", takes_value=False),
    Option("t", "topic", "print select topic only"),
)
_BROKER_CONFIG: Final = (
    Option("b", "brokerAddr", "get which broker", one_of=True, grouped_in_4=False),
    Option("c", "clusterName", "get which cluster", one_of=True, grouped_in_4=False),
)

GROUP_COMMANDS: Final = (
    SubCommand(
        "updateSubGroup",
        "Update or create subscription group.",
        _GROUPS,
        "update_group",
        _CONFIG,
    ),
    SubCommand(
        "deleteSubGroup",
        "Delete subscription group from broker.",
        _GROUPS,
        "delete_group",
        _DELETE,
    ),
    SubCommand(
        "queryMsgTraceById",
        "Query a message trace.",
        "rocketlens.mqadmin.message_commands",
        "trace_by_id",
        _TRACE,
        only_reads=True,
    ),
    SubCommand(
        "producerConnection",
        "Query producer's socket connection and client version.",
        _CONSUMERS,
        "producer_connection",
        _PRODUCERS,
        only_reads=True,
    ),
    SubCommand(
        "consumerConnection",
        "Query consumer's socket connection, client version and subscription.",
        _CONSUMERS,
        "consumer_connection",
        (_GROUP, _BROKER),
        only_reads=True,
    ),
    SubCommand(
        "consumerProgress",
        "Query consumer's progress, speed.",
        "rocketlens.mqadmin.consumers",
        "consumer_progress",
        _PROGRESS,
        only_reads=True,
    ),
    SubCommand(
        "consumerStatus",
        "Query consumer's internal data structure.",
        _CONSUMERS,
        "consumer_status",
        _STATUS,
        only_reads=True,
    ),
    SubCommand(
        "producer",
        "Query producer's instances, connection, status, etc.",
        _CONSUMERS,
        "all_producers",
        _ALL_PRODUCERS,
        only_reads=True,
    ),
    SubCommand(
        "resetOffsetByTime",
        "Reset consumer offset by timestamp(without client restart).",
        _GROUPS,
        "reset_offset",
        _RESET,
    ),
    SubCommand(
        "getBrokerConfig",
        "Get broker config by cluster or special broker.",
        "rocketlens.mqadmin.cluster_commands",
        "broker_config",
        _BROKER_CONFIG,
        only_reads=True,
    ),
    SubCommand(
        "consumeMessage",
        "Consume message.",
        "rocketlens.mqadmin.consume",
        "consume_message",
        _CONSUME,
        only_reads=True,
    ),
    SubCommand(
        "statsAll",
        "Topic and Consumer tps stats.",
        "rocketlens.mqadmin.stats",
        "stats_all",
        _STATS,
        only_reads=True,
    ),
)

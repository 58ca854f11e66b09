"""The commands, their options in RocketMQ's words, and the module of each."""

from typing import Final, NamedTuple

from rocketlens.mqadmin.options import Option


class SubCommand(NamedTuple):
    """One command: runs ``function`` of ``module``, which is imported when it runs."""

    name: str
    purpose: str
    module: str
    function: str
    options: tuple[Option, ...]


_GROUP: Final = Option("g", "consumerGroup", "consumer group name")
_CLIENT: Final = Option("d", "clientId", "The consumer's client id")
_MESSAGE_ID: Final = Option("i", "msgId", "Message Id", required=True)
_TOPIC: Final = Option("t", "topic", "topic name", required=True)
_TOPIC_LIKE_A_NAME: Final = Option("t", "topic", "Topic name", required=True)
_BODY_FORMAT: Final = Option(
    "f", "bodyFormat", "print message body by the specified format", only_5=True
)
_CLUSTER_OR_PARENT: Final = Option(
    "c",
    "cluster",
    "Cluster name or lmq parent topic, lmq is used to find the route.",
    only_5=True,
)

_QUERY: Final = "rocketlens.mqadmin.query"
_BY_ID: Final = (
    _MESSAGE_ID,
    # Before RocketMQ 5.3 an offset message id was enough; here it still is.
    Option("t", "topic", "topic name", required=True, is_forgiven=True, only_5=True),
    _GROUP,
    _CLIENT,
    Option("s", "sendMessage", "resend message"),
    Option("u", "unitName", "unit name"),
    _BODY_FORMAT,
    _CLUSTER_OR_PARENT,
)
_BY_KEY: Final = (
    Option("t", "topic", "Topic name", required=True, description_4="topic name"),
    Option("k", "msgKey", "Message Key", required=True),
    Option(
        "b",
        "beginTimestamp",
        "Begin timestamp(ms). default:0, eg:1676730526212",
        only_5=True,
    ),
    Option(
        "e",
        "endTimestamp",
        "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212",
        only_5=True,
    ),
    Option(
        "m",
        "maxNum",
        "The maximum number of messages returned by the query, default:64",
        only_5=True,
    ),
    _CLUSTER_OR_PARENT,
    Option(
        "p",
        "keyType",
        "Index key type, default index key type is K, you can use K for keys OR T for tags",
        only_5=True,
    ),
    Option("l", "lastKey", "Last Key", only_5=True),
)
_BY_UNIQUE_KEY: Final = (
    _MESSAGE_ID,
    _GROUP,
    _CLIENT,
    Option("t", "topic", "The topic of msg", required=True),
    Option("a", "showAll", "Print all message, the limit is 32", takes_value=False),
    _CLUSTER_OR_PARENT,
    Option("s", "startTime", "startTime", only_5=True),
    Option("e", "endTime", "endTime", only_5=True),
)
_BY_OFFSET: Final = (
    _TOPIC,
    Option("b", "brokerName", "Broker Name", required=True),
    Option("i", "queueId", "Queue Id", required=True),
    Option("o", "offset", "Queue Offset", required=True),
    _BODY_FORMAT,
    Option("r", "routeTopic", "the topic which is used to find route info", only_5=True),
)
# The spaces in the long names are RocketMQ's.
_PRINT: Final = (
    _TOPIC,
    Option("c", "charsetName ", "CharsetName(eg: UTF-8,GBK)"),
    Option("s", "subExpression ", "Subscribe Expression(eg: TagA || TagB)"),
    Option("b", "beginTimestamp ", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("e", "endTimestamp ", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("d", "printBody ", "print body"),
    Option(
        "l",
        "lmqParentTopic",
        "Lmq parent topic, lmq is used to find the route.",
        only_5=True,
    ),
)
_STATUS: Final = (
    _TOPIC,
    Option(
        "c",
        "cluster",
        "cluster name or lmq parent topic, lmq is used to find the route.",
        only_5=True,
    ),
)
_UPDATE: Final = (
    Option("b", "brokerAddr", "create topic to which broker", one_of=True),
    Option("c", "clusterName", "create topic to which cluster", one_of=True),
    Option("a", "attributes", "attribute(+a=b,+c=d,-e)", only_5=True),
    _TOPIC,
    Option("r", "readQueueNums", "set read queue nums"),
    Option("w", "writeQueueNums", "set write queue nums"),
    Option("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
    Option("o", "order", "set topic's order(true|false)"),
    Option("u", "unit", "is unit topic (true|false)"),
    Option("s", "hasUnitSub", "has unit sub (true|false)"),
)
_CLUSTERS: Final = (
    Option("m", "moreStats", "Print more stats", takes_value=False),
    Option("i", "interval", "specify intervals numbers, it is in seconds"),
    Option("c", "clusterName", "which cluster", only_5=True),
)
_BROKER: Final = (
    Option("b", "brokerAddr", "Broker address", one_of=True, grouped_in_4=False),
    Option("c", "clusterName", "which cluster", one_of=True, grouped_in_4=False),
)
_SEND: Final = (
    _TOPIC_LIKE_A_NAME,
    Option("p", "body", "UTF-8 string format of the message body", required=True),
    Option("k", "key", "Message keys"),
    Option("c", "tags", "Message tags"),
    Option("b", "broker", "Send message to target broker"),
    Option("i", "qid", "Send message to target queue"),
    Option("m", "msgTraceEnable", "Message Trace Enable, Default: false"),
)
_SEND_TIME: Final = (
    _TOPIC,
    Option("a", "amount", "message amount | default 100"),
    Option("s", "size", "message size | default 128 Byte"),
)
_DELETE: Final = (
    _TOPIC,
    Option("c", "clusterName", "delete topic from which cluster", required=True),
)
_LIST: Final = (Option("c", "clusterModel", "clusterModel", takes_value=False),)
_ROUTE: Final = (
    _TOPIC,
    Option("l", "list", "Use list format to print data", takes_value=False),
)
_DECODE: Final = (Option("i", "messageId", "unique message ID", required=True),)

_TOPICS: Final = "rocketlens.mqadmin.topic"
_CLUSTER: Final = "rocketlens.mqadmin.cluster"
_SENDING: Final = "rocketlens.mqadmin.send"

COMMANDS: Final = (
    SubCommand("updateTopic", "Update or create topic.", _TOPICS, "update_topic", _UPDATE),
    SubCommand(
        "deleteTopic",
        "Delete topic from broker and NameServer.",
        _TOPICS,
        "delete_topic",
        _DELETE,
    ),
    SubCommand("topicRoute", "Examine topic route info.", _TOPICS, "topic_route", _ROUTE),
    SubCommand("topicStatus", "Examine topic Status info.", _TOPICS, "topic_status", _STATUS),
    SubCommand(
        "brokerStatus", "Fetch broker runtime status data.", _CLUSTER, "broker_status", _BROKER
    ),
    SubCommand("queryMsgById", "Query Message by Id.", _QUERY, "by_id", _BY_ID),
    SubCommand("queryMsgByKey", "Query Message by Key.", _QUERY, "by_key", _BY_KEY),
    SubCommand(
        "queryMsgByUniqueKey",
        "Query Message by Unique key.",
        _QUERY,
        "by_unique_key",
        _BY_UNIQUE_KEY,
    ),
    SubCommand("queryMsgByOffset", "Query Message by offset.", _QUERY, "by_offset", _BY_OFFSET),
    SubCommand("printMsg", "Print Message Detail.", _QUERY, "print_messages", _PRINT),
    SubCommand("topicList", "Fetch all topic list from name server.", _TOPICS, "topic_list", _LIST),
    SubCommand("clusterList", "List cluster infos.", _CLUSTER, "cluster_list", _CLUSTERS),
    SubCommand("sendMessage", "Send a message.", _SENDING, "send_message", _SEND),
    SubCommand(
        "checkMsgSendRT",
        "Check message send response time.",
        _SENDING,
        "check_send_time",
        _SEND_TIME,
    ),
    SubCommand(
        "decodeMessageId",
        "decode unique message ID",
        "rocketlens.mqadmin.message_id",
        "decode",
        _DECODE,
    ),
)

"""The commands, their options in RocketMQ's words, and the module of each."""

from typing import Final

from rocketlens.mqadmin.command_line import (
    BEGIN_TIMESTAMP,
    CLUSTER_OR_PARENT,
    END_TIMESTAMP,
    Option,
    SubCommand,
)
from rocketlens.mqadmin.group_options import GROUP_COMMANDS

_GROUP: Final = Option("g", "consumerGroup", "consumer group name")
_CLIENT: Final = Option("d", "clientId", "The consumer's client id", acts=True)
_MESSAGE_ID: Final = Option("i", "msgId", "Message Id", required=True)
_TOPIC: Final = Option("t", "topic", "topic name", required=True)
_TOPIC_LIKE_A_NAME: Final = Option("t", "topic", "Topic name", required=True)
_BODY_FORMAT: Final = Option(
    "f", "bodyFormat", "print message body by the specified format", only_5=True
)
_MESSAGES: Final = "rocketlens.mqadmin.message_commands"
_BY_ID: Final = (
    _MESSAGE_ID,
    # Before RocketMQ 5.3 an offset message id was enough; here it still is.
    Option("t", "topic", "topic name", required=True, is_forgiven=True, only_5=True),
    _GROUP,
    _CLIENT,
    Option("s", "sendMessage", "resend message", acts=True),
    Option("u", "unitName", "unit name"),
    _BODY_FORMAT,
    CLUSTER_OR_PARENT,
)
_BY_KEY: Final = (
    Option("t", "topic", "Topic name", required=True, description_4="topic name"),
    Option("k", "msgKey", "Message Key", required=True),
    BEGIN_TIMESTAMP,
    END_TIMESTAMP,
    Option(
        "m",
        "maxNum",
        "The maximum number of messages returned by the query, default:64",
        only_5=True,
    ),
    CLUSTER_OR_PARENT,
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
    CLUSTER_OR_PARENT,
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

_TOPICS: Final = "rocketlens.mqadmin.topic_commands"
_CLUSTER: Final = "rocketlens.mqadmin.cluster_commands"
_SENDING: Final = "rocketlens.mqadmin.message_commands"

_AUTH: Final = "rocketlens.mqadmin.auth_commands"
_ACCOUNTS: Final = "rocketlens.mqadmin.account_commands"


def _where(broker: str, cluster: str, *, is_5: bool = True) -> tuple[Option, ...]:
    return (
        Option("b", "brokerAddr", broker, one_of=True, only_5=is_5),
        Option("c", "clusterName", cluster, one_of=True, only_5=is_5),
    )


def _where_4(purpose: str) -> tuple[Option, ...]:
    return _where(f"{purpose} which broker", f"{purpose} which cluster", is_5=False)


_QUERY_VERSION: Final = _where(
    "query acl config version for which broker",
    "query acl config version for specified cluster",
    is_5=False,
)
_ACCOUNT: Final = (
    *_where_4("update acl config file to"),
    Option("a", "accessKey", "set accessKey in acl config file", required=True),
    Option("s", "secretKey", "set secretKey in acl config file", required=True),
    Option("w", "whiteRemoteAddress", "set white ip Address for account in acl config file"),
    Option("i", "defaultTopicPerm", "set default topicPerm in acl config file"),
    Option("u", "defaultGroupPerm", "set default GroupPerm in acl config file"),
    Option("t", "topicPerms", "set topicPerms list,eg: topicA=DENY,topicD=SUB"),
    Option("g", "groupPerms", "set groupPerms list,eg: groupD=DENY,groupD=SUB"),
    Option("m", "admin", "set admin flag in acl config file"),
)
_WHITE: Final = (
    *_where_4("update global white address to"),
    Option(
        "g",
        "globalWhiteRemoteAddresses",
        "set globalWhiteRemoteAddress list,eg: 10.10.103.*,192.168.0.*",
        required=True,
    ),
    Option(
        "p",
        "aclFileFullPath",
        "update global white address of specified acl file,eg: /xxx/plain_test.yml",
    ),
)


def _policies(word: str) -> tuple[Option, ...]:
    options = (
        Option("s", "subject", f"the subject of acl to {word}.", required=True),
        Option("r", "resources", f"the resources of acl to {word}", required=True),
        Option("a", "actions", f"the actions of acl to {word}", required=True),
        Option("i", "sourceIp", f"the sourceIps of acl to {word}"),
        Option("d", "decision", f"the decision of acl to {word}", required=True),
    )
    return (*_where(f"{word} acl to which broker", f"{word} acl to which cluster"), *options)


_CREATE_USER: Final = (
    *_where("create user to which broker", "create user to which cluster"),
    Option("u", "username", "the username of user to create.", required=True),
    Option("p", "password", "the password of user to create", required=True),
    Option("t", "userType", "the userType of user to create"),
)
_UPDATE_USER: Final = (
    *_where("update user to which broker", "update user to which cluster"),
    Option("u", "username", "the username of user to update.", required=True),
    Option("p", "password", "the password of user to update"),
    Option("t", "userType", "the userType of user to update"),
    Option("s", "userStatus", "the userStatus of user to update"),
)
_DELETE_USER: Final = (
    *_where("delete user from which broker", "delete acl from which cluster"),
    Option("u", "username", "the username of user to delete.", required=True),
)
_GET_USER: Final = (
    *_where("get user for which broker", "get user for specified cluster"),
    Option("u", "username", "the username of user to get"),
)
_LIST_USERS: Final = (
    *_where("list user for which broker", "list user for specified cluster"),
    Option("f", "filter", "the filter to list users"),
)
_COPY_USERS: Final = (
    Option("f", "fromBroker", "the source broker that the users copy from", required=True),
    Option("t", "toBroker", "the target broker that the users copy to", required=True),
    Option("u", "usernames", "the username list of user to copy."),
)
_DELETE_ACL: Final = (
    *_where("delete acl from which broker", "delete acl from which cluster"),
    Option("s", "subject", "the subject of acl to delete.", required=True),
    Option("r", "resources", "the resources of acl to delete"),
)
_GET_ACL: Final = (
    *_where("get acl for which broker", "get acl for specified cluster"),
    Option("s", "subject", "the subject of acl to get"),
)
_LIST_ACLS: Final = (
    *_where("list acl for which broker.", "list acl for specified cluster."),
    Option("s", "subject", "the subject of acl to filter."),
    Option("r", "resource", "the resource of acl to filter."),
)
_COPY_ACLS: Final = (
    Option("f", "fromBroker", "the source broker that the acls copy from", required=True),
    Option("t", "toBroker", "the target broker that the acls copy to", required=True),
    Option("s", "subjects", "the subject list of acl to copy."),
)


def _of_auth(
    name: str,
    purpose: str,
    function: str,
    options: tuple[Option, ...],
    module: str = _AUTH,
    *,
    only_reads: bool = False,
) -> SubCommand:
    return SubCommand(
        name, purpose, module, function, options, has_names=False, only_reads=only_reads
    )


ACCESS_COMMANDS: Final = (
    _of_auth(
        "updateAclConfig",
        "Update acl config yaml file in broker",
        "update",
        _ACCOUNT,
        _ACCOUNTS,
    ),
    _of_auth(
        "deleteAclConfig",
        "Delete Acl Config Account in broker",
        "delete",
        (
            *_where_4("delete acl config account from"),
            Option(
                "a",
                "accessKey",
                "set accessKey in acl config file for deleting which account",
                required=True,
            ),
        ),
        _ACCOUNTS,
    ),
    _of_auth(
        "clusterAclConfigVersion",
        "List all of acl config version information in cluster",
        "versions",
        _QUERY_VERSION,
        _ACCOUNTS,
        only_reads=True,
    ),
    _of_auth(
        "updateGlobalWhiteAddr",
        "Update global white address for acl Config File in broker",
        "update_white",
        _WHITE,
        _ACCOUNTS,
    ),
    _of_auth(
        "getAclConfig",
        "List all of acl config information in cluster",
        "show",
        _QUERY_VERSION,
        _ACCOUNTS,
        only_reads=True,
    ),
    _of_auth("createUser", "Create user to cluster.", "create_user", _CREATE_USER),
    _of_auth("updateUser", "Update user to cluster.", "update_user", _UPDATE_USER),
    _of_auth("deleteUser", "Delete user from cluster.", "delete_user", _DELETE_USER),
    _of_auth("getUser", "Get user from cluster.", "get_user", _GET_USER, only_reads=True),
    _of_auth("listUser", "List user from cluster.", "list_users", _LIST_USERS, only_reads=True),
    _of_auth("copyUser", "Copy user to cluster.", "copy_users", _COPY_USERS),
    _of_auth("createAcl", "Create acl to cluster.", "create_acl", _policies("create")),
    _of_auth("updateAcl", "Update acl to cluster.", "update_acl", _policies("update")),
    _of_auth("deleteAcl", "Delete acl from cluster.", "delete_acl", _DELETE_ACL),
    _of_auth("getAcl", "Get acl from cluster.", "get_acl", _GET_ACL, only_reads=True),
    _of_auth("listAcl", "List acl from cluster.", "list_acls", _LIST_ACLS, only_reads=True),
    _of_auth("copyAcl", "Copy acl to cluster.", "copy_acls", _COPY_ACLS),
)

COMMANDS: Final = (
    SubCommand("updateTopic", "Update or create topic.", _TOPICS, "update_topic", _UPDATE),
    SubCommand(
        "deleteTopic",
        "Delete topic from broker and NameServer.",
        _TOPICS,
        "delete_topic",
        _DELETE,
    ),
    SubCommand(
        "topicRoute", "Examine topic route info.", _TOPICS, "topic_route", _ROUTE, only_reads=True
    ),
    SubCommand(
        "topicStatus",
        "Examine topic Status info.",
        _TOPICS,
        "topic_status",
        _STATUS,
        only_reads=True,
    ),
    SubCommand(
        "brokerStatus",
        "Fetch broker runtime status data.",
        _CLUSTER,
        "broker_status",
        _BROKER,
        only_reads=True,
    ),
    SubCommand("queryMsgById", "Query Message by Id.", _MESSAGES, "by_id", _BY_ID, only_reads=True),
    SubCommand(
        "queryMsgByKey", "Query Message by Key.", _MESSAGES, "by_key", _BY_KEY, only_reads=True
    ),
    SubCommand(
        "queryMsgByUniqueKey",
        "Query Message by Unique key.",
        _MESSAGES,
        "by_unique_key",
        _BY_UNIQUE_KEY,
        only_reads=True,
    ),
    SubCommand(
        "queryMsgByOffset",
        "Query Message by offset.",
        _MESSAGES,
        "by_offset",
        _BY_OFFSET,
        only_reads=True,
    ),
    SubCommand(
        "printMsg", "Print Message Detail.", _MESSAGES, "print_messages", _PRINT, only_reads=True
    ),
    SubCommand(
        "topicList",
        "Fetch all topic list from name server.",
        _TOPICS,
        "topic_list",
        _LIST,
        only_reads=True,
    ),
    SubCommand(
        "clusterList", "List cluster infos.", _CLUSTER, "cluster_list", _CLUSTERS, only_reads=True
    ),
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
        _MESSAGES,
        "decode_id",
        _DECODE,
        only_reads=True,
    ),
    *GROUP_COMMANDS,
    *ACCESS_COMMANDS,
)

"""The name server: brokers (103, 104), routes (105, 106), topics (206, 216, 224, 304), KV.

And what only brokers and operators send: the version of a broker's topics (322), heartbeats between
registrations (904), brokers of one name (901), one topic's queues (217), write permission of a
broker's topics (205, 327).
"""

from typing import Final

from rocketlens.wire.codes import V4_9_4, V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text


@declare("RegisterBrokerRequestHeader")
class RegisterBrokerRequest:
    """A broker says where it is, and in its body (RegisterBrokerBody) which topics it has."""

    broker_name: str = text("brokerName")
    broker_addr: str = text("brokerAddr")
    cluster_name: str = text("clusterName")
    ha_server_addr: str = text("haServerAddr")
    broker_id: int = i64("brokerId")
    """0: the master."""
    heartbeat_timeout_ms: int | None = i64("heartbeatTimeoutMillis", default=None, since=V5_0_0)
    enable_acting_master: bool | None = boolean("enableActingMaster", default=None, since=V5_0_0)
    compressed: bool = boolean("compressed", default=False)
    body_crc32: int = i32("bodyCrc32", default=0)
    """CRC-32 of the body & 0x7FFFFFFF; 0: not to be checked."""


@declare("RegisterBrokerResponseHeader")
class RegisterBrokerResponse:
    """For a slave: where its master is."""

    ha_server_addr: str | None = text("haServerAddr", default=None)
    master_addr: str | None = text("masterAddr", default=None)


@declare("UnRegisterBrokerRequestHeader")
class UnregisterBrokerRequest:
    """A broker says that it goes."""

    broker_name: str = text("brokerName")
    broker_addr: str = text("brokerAddr")
    cluster_name: str = text("clusterName")
    broker_id: int = i64("brokerId")


@declare("GetRouteInfoRequestHeader")
class GetRouteInfoRequest:
    """Ask where a topic is; the body of the answer is a TopicRouteData."""

    topic: str = text("topic")
    accept_standard_json_only: bool | None = boolean(
        "acceptStandardJsonOnly", default=None, since=V4_9_4
    )


@declare("GetTopicsByClusterRequestHeader")
class GetTopicsByClusterRequest:
    """Ask for the topics of a cluster; the body of the answer is a TopicList."""

    cluster: str = text("cluster", default="")


@declare("DeleteTopicFromNamesrvRequestHeader")
class DeleteTopicFromNamesrvRequest:
    """Forget the route of a topic, in one cluster or all."""

    topic: str = text("topic")
    cluster_name: str | None = text("clusterName", default=None)


@declare("PutKVConfigRequestHeader")
class PutKvConfigRequest:
    """Keep a value."""

    namespace: str = text("namespace")
    key: str = text("key")
    value: str = text("value", default="")


@declare("GetKVConfigRequestHeader")
class GetKvConfigRequest:
    """Ask for a value."""

    namespace: str = text("namespace", default="null")
    key: str = text("key", default="null")


@declare("GetKVConfigResponseHeader")
class GetKvConfigResponse:
    """A value."""

    value: str | None = text("value", default=None)


@declare("DeleteKVConfigRequestHeader")
class DeleteKvConfigRequest:
    """Forget a value."""

    namespace: str = text("namespace", default="null")
    key: str = text("key", default="null")


@declare("GetKVListByNamespaceRequestHeader")
class GetKvListByNamespaceRequest:
    """Ask for all values of a namespace; the body of the answer is a KVTable."""

    namespace: str = text("namespace", default="null")


@declare("QueryDataVersionRequestHeader")
class QueryDataVersionRequest:
    """A broker asks whether its topics are known; its body is its DataVersion."""

    broker_name: str = text("brokerName", default="")
    broker_addr: str = text("brokerAddr")
    cluster_name: str = text("clusterName")
    broker_id: int = i64("brokerId", default=0)


@declare("QueryDataVersionResponseHeader")
class QueryDataVersionResponse:
    """Whether they changed; the body is the DataVersion that is known, if one is."""

    changed: bool = boolean("changed")


@declare("BrokerHeartbeatRequestHeader")
class BrokerHeartbeatRequest:
    """A broker says that it is alive; a controller also gets the end of its log."""

    cluster_name: str = text("clusterName")
    broker_addr: str = text("brokerAddr")
    broker_name: str = text("brokerName", default="")
    broker_id: int | None = i64("brokerId", default=None)
    epoch: int | None = i32("epoch", default=None)
    max_offset: int | None = i64("maxOffset", default=None)
    confirm_offset: int | None = i64("confirmOffset", default=None)
    heartbeat_timeout_ms: int | None = i64("heartbeatTimeoutMills", default=None)
    election_priority: int | None = i32("electionPriority", default=None)


@declare("GetBrokerMemberGroupRequestHeader")
class GetBrokerMemberGroupRequest:
    """Ask for all brokers of one name."""

    cluster_name: str = text("clusterName")
    broker_name: str = text("brokerName")


@declare("RegisterTopicRequestHeader")
class RegisterTopicRequest:
    """A broker says which queues one topic has; the body is a TopicRouteData."""

    topic: str = text("topic")


@declare("WipeWritePermOfBrokerRequestHeader")
class WritePermissionRequest:
    """Take write permission from all topics of a broker, or give it back."""

    broker_name: str = text("brokerName")


@declare("WipeWritePermOfBrokerResponseHeader")
class WipeWritePermissionResponse:
    """How many topics."""

    wipe_topic_count: int = i32("wipeTopicCount")


@declare("AddWritePermOfBrokerResponseHeader")
class AddWritePermissionResponse:
    """How many topics."""

    add_topic_count: int = i32("addTopicCount")


REGISTER_BROKER: Final = Command(
    RequestCode.REGISTER_BROKER, RegisterBrokerRequest, RegisterBrokerResponse
)
UNREGISTER_BROKER: Final = Command(RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequest, NoFields)
GET_ROUTEINFO_BY_TOPIC: Final = Command(
    RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest, NoFields
)
GET_BROKER_CLUSTER_INFO: Final = Command(RequestCode.GET_BROKER_CLUSTER_INFO, NoFields, NoFields)
GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Final = Command(
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoFields, NoFields
)
GET_TOPICS_BY_CLUSTER: Final = Command(
    RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequest, NoFields
)
GET_SYSTEM_TOPIC_LIST_FROM_NS: Final = Command(
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, NoFields, NoFields
)
DELETE_TOPIC_IN_NAMESRV: Final = Command(
    RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequest, NoFields
)
PUT_KV_CONFIG: Final = Command(RequestCode.PUT_KV_CONFIG, PutKvConfigRequest, NoFields)
GET_KV_CONFIG: Final = Command(RequestCode.GET_KV_CONFIG, GetKvConfigRequest, GetKvConfigResponse)
DELETE_KV_CONFIG: Final = Command(RequestCode.DELETE_KV_CONFIG, DeleteKvConfigRequest, NoFields)
GET_KVLIST_BY_NAMESPACE: Final = Command(
    RequestCode.GET_KVLIST_BY_NAMESPACE, GetKvListByNamespaceRequest, NoFields
)
QUERY_DATA_VERSION: Final = Command(
    RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequest, QueryDataVersionResponse
)
BROKER_HEARTBEAT: Final = Command(
    RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest, NoFields, since=V5_0_0
)
GET_BROKER_MEMBER_GROUP: Final = Command(
    RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequest, NoFields, since=V5_0_0
)
REGISTER_TOPIC_IN_NAMESRV: Final = Command(
    RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequest, NoFields, since=V5_0_0
)
WIPE_WRITE_PERM_OF_BROKER: Final = Command(
    RequestCode.WIPE_WRITE_PERM_OF_BROKER, WritePermissionRequest, WipeWritePermissionResponse
)
ADD_WRITE_PERM_OF_BROKER: Final = Command(
    RequestCode.ADD_WRITE_PERM_OF_BROKER, WritePermissionRequest, AddWritePermissionResponse
)

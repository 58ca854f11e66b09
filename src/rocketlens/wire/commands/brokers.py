"""Requests to name servers, and about topics on brokers.

Only brokers and operators send QUERY_DATA_VERSION, BROKER_HEARTBEAT, GET_BROKER_MEMBER_GROUP,
REGISTER_TOPIC_IN_NAMESRV and the requests about write permission.
"""

from typing import Final

from msgspec import field

from rocketlens.wire.codes import RequestCode as Code
from rocketlens.wire.declare import I32, I64, Command, WireStruct


class TopicRequest(
    WireStruct,
    java=(
        "DeleteTopicRequestHeader",
        "GetTopicConfigRequestHeader",
        "GetTopicStatsInfoRequestHeader",
        "RegisterTopicRequestHeader",
        "QueryTopicConsumeByWhoRequestHeader",
    ),
):
    """A topic: registers its route at a name server (217; the body is a TopicRouteData), deletes it
    (215), or returns its configuration (351; a TopicConfig), the offsets of its queues (202; a
    TopicStatsTable) or its groups (300; a GroupList).
    """

    topic: str
    lo: bool | None = None
    """Include the mapping of a static topic in its configuration."""


class KvKeyRequest(WireStruct, java=("GetKVConfigRequestHeader", "DeleteKVConfigRequestHeader")):
    """Returns or deletes the value of a key."""

    namespace: str = "null"
    key: str = "null"


class RegisterBrokerRequest(WireStruct, java="RegisterBrokerRequestHeader"):
    """Registers a broker's address, and the topics in its body (RegisterBrokerBody)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    """0: the master."""
    heartbeat_timeout_ms: I64 | None = field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0
    """CRC-32 of the body & 0x7FFFFFFF; 0: not checked."""


class RegisterBrokerResponse(WireStruct, java="RegisterBrokerResponseHeader"):
    """For a slave: the addresses of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(WireStruct, java="UnRegisterBrokerRequestHeader"):
    """Removes a broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class GetRouteInfoRequest(WireStruct, java="GetRouteInfoRequestHeader"):
    """Asks for the route of a topic; the body of the answer is a TopicRouteData."""

    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicsByClusterRequest(WireStruct, java="GetTopicsByClusterRequestHeader"):
    """Asks for the topics of a cluster; the body of the answer is a TopicList."""

    cluster: str = ""


class DeleteTopicFromNamesrvRequest(WireStruct, java="DeleteTopicFromNamesrvRequestHeader"):
    """Deletes the route of a topic, in one cluster or all."""

    topic: str
    cluster_name: str | None = None


class PutKvConfigRequest(WireStruct, java="PutKVConfigRequestHeader"):
    """Sets a value."""

    namespace: str
    key: str
    value: str = ""


class GetKvConfigResponse(WireStruct, java="GetKVConfigResponseHeader"):
    """A value."""

    value: str | None = None


class GetKvListByNamespaceRequest(WireStruct, java="GetKVListByNamespaceRequestHeader"):
    """Asks for all values of a namespace; the body of the answer is a KVTable."""

    namespace: str = "null"


class QueryDataVersionRequest(WireStruct, java="QueryDataVersionRequestHeader"):
    """Asks if the topics of a broker changed; its body is the broker's DataVersion."""

    broker_name: str = ""
    broker_addr: str
    cluster_name: str
    broker_id: I64 = 0


class QueryDataVersionResponse(WireStruct, java="QueryDataVersionResponseHeader"):
    """The result; the body is the registered DataVersion, if there is one."""

    changed: bool


class BrokerHeartbeatRequest(WireStruct, java="BrokerHeartbeatRequestHeader"):
    """Reports that a broker is alive; a controller also gets the end of its log."""

    cluster_name: str
    broker_addr: str
    broker_name: str = ""
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_ms: I64 | None = field(name="heartbeatTimeoutMills", default=None)
    election_priority: I32 | None = None


class GetBrokerMemberGroupRequest(WireStruct, java="GetBrokerMemberGroupRequestHeader"):
    """Asks for all brokers of one name."""

    cluster_name: str
    broker_name: str


class WritePermissionRequest(WireStruct, java="WipeWritePermOfBrokerRequestHeader"):
    """Revokes write permission for all topics of a broker, or restores it."""

    broker_name: str


class WipeWritePermissionResponse(WireStruct, java="WipeWritePermOfBrokerResponseHeader"):
    """The number of topics."""

    wipe_topic_count: I32


class AddWritePermissionResponse(WireStruct, java="AddWritePermOfBrokerResponseHeader"):
    """The number of topics."""

    add_topic_count: I32


REGISTER_BROKER: Final = Command(
    Code.REGISTER_BROKER, RegisterBrokerRequest, RegisterBrokerResponse
)
UNREGISTER_BROKER: Final = Command(Code.UNREGISTER_BROKER, UnregisterBrokerRequest)
GET_ROUTEINFO_BY_TOPIC: Final = Command(Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest)
GET_BROKER_CLUSTER_INFO: Final = Command(Code.GET_BROKER_CLUSTER_INFO)
GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Final = Command(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
GET_TOPICS_BY_CLUSTER: Final = Command(Code.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequest)
DELETE_TOPIC_IN_NAMESRV: Final = Command(
    Code.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequest
)
PUT_KV_CONFIG: Final = Command(Code.PUT_KV_CONFIG, PutKvConfigRequest)
GET_KV_CONFIG: Final = Command(Code.GET_KV_CONFIG, KvKeyRequest, GetKvConfigResponse)
DELETE_KV_CONFIG: Final = Command(Code.DELETE_KV_CONFIG, KvKeyRequest)
GET_KVLIST_BY_NAMESPACE: Final = Command(Code.GET_KVLIST_BY_NAMESPACE, GetKvListByNamespaceRequest)
QUERY_DATA_VERSION: Final = Command(
    Code.QUERY_DATA_VERSION, QueryDataVersionRequest, QueryDataVersionResponse
)
BROKER_HEARTBEAT: Final = Command(Code.BROKER_HEARTBEAT, BrokerHeartbeatRequest)
GET_BROKER_MEMBER_GROUP: Final = Command(Code.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequest)
REGISTER_TOPIC_IN_NAMESRV: Final = Command(Code.REGISTER_TOPIC_IN_NAMESRV, TopicRequest)
WIPE_WRITE_PERM_OF_BROKER: Final = Command(
    Code.WIPE_WRITE_PERM_OF_BROKER, WritePermissionRequest, WipeWritePermissionResponse
)
ADD_WRITE_PERM_OF_BROKER: Final = Command(
    Code.ADD_WRITE_PERM_OF_BROKER, WritePermissionRequest, AddWritePermissionResponse
)


class CreateTopicRequest(WireStruct, java="CreateTopicRequestHeader"):
    """Creates or changes a topic."""

    topic: str
    default_topic: str = ""
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    """SINGLE_TAG or MULTI_TAG."""
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


UPDATE_AND_CREATE_TOPIC: Final = Command(Code.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest)
DELETE_TOPIC_IN_BROKER: Final = Command(Code.DELETE_TOPIC_IN_BROKER, TopicRequest)
GET_TOPIC_CONFIG: Final = Command(Code.GET_TOPIC_CONFIG, TopicRequest)
GET_ALL_TOPIC_CONFIG: Final = Command(Code.GET_ALL_TOPIC_CONFIG)
GET_TOPIC_STATS_INFO: Final = Command(Code.GET_TOPIC_STATS_INFO, TopicRequest)

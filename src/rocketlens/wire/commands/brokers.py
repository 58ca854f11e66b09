"""The name server, and topics on brokers.

Name server: brokers (103, 104), routes (105, 106), topics (206, 216, 224, 304), key-value pairs
(100 to 102, 219). Only brokers and operators send: the version of a broker's topics (322),
heartbeats between registrations (904), brokers of one name (901), one topic's queues (217), write
permission of a broker's topics (205, 327).

Topics on a broker: create or change (17), delete (215), configuration (351, 21), offsets (202).
"""

from typing import Final

from rocketlens.wire.codes import RequestCode as Code
from rocketlens.wire.declare import I32, I64, Command, declare, wire


@declare(
    "DeleteTopicRequestHeader",
    "GetTopicConfigRequestHeader",
    "GetTopicStatsInfoRequestHeader",
    "RegisterTopicRequestHeader",
    "QueryTopicConsumeByWhoRequestHeader",
)
class TopicRequest:
    """A topic: register its route at a name server (217; the body is a TopicRouteData), delete it
    (215), or return its configuration (351; a TopicConfig), the offsets of its queues (202; a
    TopicStatsTable) or its groups (300; a GroupList).
    """

    topic: str
    lo: bool | None = None
    """Whether a configuration has the mapping of a static topic."""


@declare("GetKVConfigRequestHeader", "DeleteKVConfigRequestHeader")
class KvKeyRequest:
    """Return or delete the value of a key."""

    namespace: str = "null"
    key: str = "null"


@declare("RegisterBrokerRequestHeader")
class RegisterBrokerRequest:
    """A broker says where it is, and in its body (RegisterBrokerBody) which topics it has."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    """0: the master."""
    heartbeat_timeout_ms: I64 | None = wire("heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0
    """CRC-32 of the body & 0x7FFFFFFF; 0: not to be checked."""


@declare("RegisterBrokerResponseHeader")
class RegisterBrokerResponse:
    """For a slave: where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@declare("UnRegisterBrokerRequestHeader")
class UnregisterBrokerRequest:
    """A broker says that it goes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@declare("GetRouteInfoRequestHeader")
class GetRouteInfoRequest:
    """Ask where a topic is; the body of the answer is a TopicRouteData."""

    topic: str
    accept_standard_json_only: bool | None = None


@declare("GetTopicsByClusterRequestHeader")
class GetTopicsByClusterRequest:
    """Ask for the topics of a cluster; the body of the answer is a TopicList."""

    cluster: str = ""


@declare("DeleteTopicFromNamesrvRequestHeader")
class DeleteTopicFromNamesrvRequest:
    """Forget the route of a topic, in one cluster or all."""

    topic: str
    cluster_name: str | None = None


@declare("PutKVConfigRequestHeader")
class PutKvConfigRequest:
    """Keep a value."""

    namespace: str
    key: str
    value: str = ""


@declare("GetKVConfigResponseHeader")
class GetKvConfigResponse:
    """A value."""

    value: str | None = None


@declare("GetKVListByNamespaceRequestHeader")
class GetKvListByNamespaceRequest:
    """Ask for all values of a namespace; the body of the answer is a KVTable."""

    namespace: str = "null"


@declare("QueryDataVersionRequestHeader")
class QueryDataVersionRequest:
    """A broker asks whether its topics are known; its body is its DataVersion."""

    broker_name: str = ""
    broker_addr: str
    cluster_name: str
    broker_id: I64 = 0


@declare("QueryDataVersionResponseHeader")
class QueryDataVersionResponse:
    """Whether they changed; the body is the DataVersion that is known, if one is."""

    changed: bool


@declare("BrokerHeartbeatRequestHeader")
class BrokerHeartbeatRequest:
    """A broker says that it is alive; a controller also gets the end of its log."""

    cluster_name: str
    broker_addr: str
    broker_name: str = ""
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_ms: I64 | None = wire("heartbeatTimeoutMills", default=None)
    election_priority: I32 | None = None


@declare("GetBrokerMemberGroupRequestHeader")
class GetBrokerMemberGroupRequest:
    """Ask for all brokers of one name."""

    cluster_name: str
    broker_name: str


@declare("WipeWritePermOfBrokerRequestHeader")
class WritePermissionRequest:
    """Take write permission from all topics of a broker, or give it back."""

    broker_name: str


@declare("WipeWritePermOfBrokerResponseHeader")
class WipeWritePermissionResponse:
    """How many topics."""

    wipe_topic_count: I32


@declare("AddWritePermOfBrokerResponseHeader")
class AddWritePermissionResponse:
    """How many topics."""

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


@declare("CreateTopicRequestHeader")
class CreateTopicRequest:
    """Make a topic, or change it."""

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

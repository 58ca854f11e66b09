"""Commands that only name servers answer, and only brokers and operators send.

Version of a broker's topics (322), heartbeats between registrations (904), brokers of one name
(901), one topic's queues (217), write permission of a broker's topics (205, 327). Sources:
``QueryDataVersionRequestHeader``, ``BrokerHeartbeatRequestHeader`` and their like.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.wire.bodies.schema import INTEGER_KEY, TEXT, body, map_of, member, object_of
from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.commands.header_table import boolean, header, i32, i64, text


@header("QueryDataVersionRequestHeader")
class QueryDataVersionRequest:
    """A broker asks whether its topics are known; its body is its DataVersion."""

    broker_name: str = text("brokerName", default="")
    broker_addr: str = text("brokerAddr")
    cluster_name: str = text("clusterName")
    broker_id: int = i64("brokerId", default=0)


@header("QueryDataVersionResponseHeader")
class QueryDataVersionResponse:
    """Whether they changed; the body is the DataVersion that is known, if one is."""

    changed: bool = boolean("changed")


@header("BrokerHeartbeatRequestHeader")
class BrokerHeartbeatRequest:
    """A broker says that it is alive."""

    cluster_name: str = text("clusterName")
    broker_addr: str = text("brokerAddr")
    broker_name: str = text("brokerName", default="")


@header("GetBrokerMemberGroupRequestHeader")
class GetBrokerMemberGroupRequest:
    """Ask for all brokers of one name."""

    cluster_name: str = text("clusterName")
    broker_name: str = text("brokerName")


@body("BrokerMemberGroup")
class BrokerMemberGroup:
    """The brokers of one name: broker id to address."""

    cluster: str | None = member("cluster", TEXT, default=None)
    broker_name: str = member("brokerName", TEXT)
    broker_addrs: Mapping[int, str] = member(
        "brokerAddrs", map_of(INTEGER_KEY, TEXT), default_factory=dict
    )


@body("GetBrokerMemberGroupResponseBody")
class BrokerMemberGroupAnswer:
    """The body of the answer to 901."""

    broker_member_group: BrokerMemberGroup = member(
        "brokerMemberGroup", object_of(BrokerMemberGroup)
    )


@header("RegisterTopicRequestHeader")
class RegisterTopicRequest:
    """A broker says which queues one topic has; the body is a TopicRouteData."""

    topic: str = text("topic")


@header("WipeWritePermOfBrokerRequestHeader")
class WritePermissionRequest:
    """Take write permission from all topics of a broker, or give it back."""

    broker_name: str = text("brokerName")


@header("WipeWritePermOfBrokerResponseHeader")
class WipeWritePermissionResponse:
    """How many topics."""

    wipe_topic_count: int = i32("wipeTopicCount")


@header("AddWritePermOfBrokerResponseHeader")
class AddWritePermissionResponse:
    """How many topics."""

    add_topic_count: int = i32("addTopicCount")


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

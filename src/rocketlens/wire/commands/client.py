"""Clients come and go: heartbeat (34), unregister (35), and the groups' members (38, 40).

And whether a subscription is one that the broker takes (46).
"""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, text


@declare()
class HeartbeatResponse:
    """Fields that a 5.x broker adds to its answer; RocketMQ has no class for them."""

    is_support_heart_beat_v2: bool | None = boolean(
        "IS_SUPPORT_HEART_BEAT_V2", default=None, since=V5_0_0
    )
    is_sub_change: bool | None = boolean("IS_SUB_CHANGE", default=None, since=V5_0_0)


@declare("UnregisterClientRequestHeader")
class UnregisterClientRequest:
    """A client says that a producer or consumer of it goes."""

    client_id: str = text("clientID", default="")
    producer_group: str | None = text("producerGroup", default=None)
    consumer_group: str | None = text("consumerGroup", default=None)


@declare("GetConsumerListByGroupRequestHeader")
class GetConsumerListByGroupRequest:
    """Ask for a group's client ids; the body of the answer is a ConsumerIdList."""

    consumer_group: str = text("consumerGroup")


@declare("NotifyConsumerIdsChangedRequestHeader")
class NotifyConsumerIdsChangedRequest:
    """Broker to client, one-way: the members of a group changed."""

    consumer_group: str = text("consumerGroup")


HEART_BEAT: Final = Command(RequestCode.HEART_BEAT, NoFields, HeartbeatResponse)
UNREGISTER_CLIENT: Final = Command(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequest, NoFields)
GET_CONSUMER_LIST_BY_GROUP: Final = Command(
    RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest, NoFields
)
NOTIFY_CONSUMER_IDS_CHANGED: Final = Command(
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequest, NoFields
)
CHECK_CLIENT_CONFIG: Final = Command(RequestCode.CHECK_CLIENT_CONFIG, NoFields, NoFields)

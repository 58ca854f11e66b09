"""A consumer group as operators configure it (200, 225, 352)."""

from collections.abc import Mapping
from enum import Enum

from rocketlens.wire.bodies.topic import DataVersion
from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    I64,
    TEXT,
    array_of,
    declare,
    enum_of,
    map_of,
    member,
    object_of,
)


class RetryPolicyType(Enum):
    """How the delay before each retry is found."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


@declare("ExponentialRetryPolicy")
class ExponentialRetryPolicy:
    """Delays that grow by a factor, in milliseconds."""

    initial_ms: int = member("initial", I64, default=5_000)
    max_ms: int = member("max", I64, default=7_200_000)
    multiplier: int = member("multiplier", I64, default=2)


@declare("CustomizedRetryPolicy")
class CustomizedRetryPolicy:
    """Delays one by one, in milliseconds; the last one again and again."""

    next_ms: tuple[int, ...] = member("next", array_of(I64), default=())


@declare("GroupRetryPolicy")
class GroupRetryPolicy:
    """When a group gets a message again that it could not consume: by default the delay levels."""

    type: RetryPolicyType = member(
        "type", enum_of(RetryPolicyType), default=RetryPolicyType.CUSTOMIZED
    )
    exponential: ExponentialRetryPolicy | None = member(
        "exponentialRetryPolicy", object_of(ExponentialRetryPolicy), default=None
    )
    customized: CustomizedRetryPolicy | None = member(
        "customizedRetryPolicy", object_of(CustomizedRetryPolicy), default=None
    )


@declare("SubscriptionGroupConfig")
class SubscriptionGroupConfig:
    """The permissions of a group, and its number of retries. Defaults are RocketMQ's."""

    group_name: str = member("groupName", TEXT)
    consume_enable: bool = member("consumeEnable", BOOLEAN, default=True)
    consume_from_min_enable: bool = member("consumeFromMinEnable", BOOLEAN, default=True)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", BOOLEAN, default=True)
    consume_message_orderly: bool = member(
        "consumeMessageOrderly", BOOLEAN, default=False, since=V5_0_0
    )
    retry_queue_nums: int = member("retryQueueNums", I32, default=1)
    retry_max_times: int = member("retryMaxTimes", I32, default=16)
    """-1: as often as it takes."""
    group_retry_policy: GroupRetryPolicy = member(
        "groupRetryPolicy", object_of(GroupRetryPolicy), default=GroupRetryPolicy(), since=V5_0_0
    )
    broker_id: int = member("brokerId", I64, default=0)
    """From which broker it pulls; 0 is the master."""
    which_broker_when_consume_slowly: int = member("whichBrokerWhenConsumeSlowly", I64, default=1)
    notify_consumer_ids_changed_enable: bool = member(
        "notifyConsumerIdsChangedEnable", BOOLEAN, default=True
    )
    group_sys_flag: int = member("groupSysFlag", I32, default=0, since=V5_0_0)
    consume_timeout_minute: int = member("consumeTimeoutMinute", I32, default=15, since=V5_0_0)
    attributes: Mapping[str, str] = member(
        "attributes", map_of(TEXT, TEXT), default_factory=dict, since=V5_0_0
    )


@declare("SubscriptionGroupWrapper")
class SubscriptionGroupTable:
    """All groups of a broker, by name."""

    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = member(
        "subscriptionGroupTable",
        map_of(TEXT, object_of(SubscriptionGroupConfig)),
        default_factory=dict,
    )
    data_version: DataVersion = member("dataVersion", object_of(DataVersion), default=DataVersion())
    forbidden_table: Mapping[str, Mapping[str, int]] = member(
        "forbiddenTable", map_of(TEXT, map_of(TEXT, I32)), default_factory=dict, since=V5_0_0
    )
    """Operations that are forbidden to a group, as bits, by group and topic."""

"""The rule for plain messages, which all ways of storing share.

A message that is not plain is stored in another topic, or refused. The broker adds its own
properties to every message except members of a batch.
"""

from typing import Final

from rocketlens.broker.config import BrokerConfig
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import NOT_ALLOWED_SEND_TOPICS, TIMER_TOPIC

MULTI_TAGS_FLAG: Final = 0x2
"""The flag of messages of a topic with several tags a message."""
BROKERS_OWN: Final = NOT_ALLOWED_SEND_TOPICS | {TIMER_TOPIC}
"""Topics to which clients cannot send. RocketMQ permits sends to the topic of timers: it delivers
such a message to the topic of a property, without a check of permissions.
"""
REDIRECTING_NAMES: Final = props.TIMER_NAMES | {props.DELAY, props.TRANSACTION_PREPARED}
"""A message with one of these properties can be stored in another topic."""


def own_properties(config: BrokerConfig) -> dict[str, str]:
    return {**reply_fields(config), props.CLUSTER: config.brokerClusterName}


def reply_fields(config: BrokerConfig) -> dict[str, str]:
    trace_on = "true" if config.traceOn else "false"
    return {props.MSG_REGION: config.regionId, props.TRACE_ON: trace_on}


def may_be_due_later(text: str) -> bool:
    """Return True if properties in a batch could name a delay or a time, which is refused."""
    return "DELAY\x01" in text or "TIMER_D" in text

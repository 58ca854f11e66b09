"""Decides which messages are plain: one rule for all ways of storing.

A message that is not plain is stored in another topic, or refused. A broker adds properties of its
own to every message but the members of a batch.
"""

from typing import Final

from rocketlens.broker.config import BrokerConfig
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import NOT_ALLOWED_SEND_TOPICS, TIMER_TOPIC

MULTI_TAGS_FLAG: Final = 0x2
"""A message of a topic whose messages have several tags."""
BROKERS_OWN: Final = NOT_ALLOWED_SEND_TOPICS | {TIMER_TOPIC}
"""Topics for which clients may send nothing. RocketMQ takes messages to its timers' topic from
clients, too: they are delivered wherever a property says, past the permissions of that topic.
"""
REDIRECTING_NAMES: Final = props.TIMER_NAMES | {props.DELAY, props.TRANSACTION_PREPARED}
"""A message with one of these may be stored in another topic."""


def own_properties(config: BrokerConfig) -> dict[str, str]:
    """Return the properties that a broker adds to each message, in its order."""
    return {**reply_fields(config), props.CLUSTER: config.brokerClusterName}


def reply_fields(config: BrokerConfig) -> dict[str, str]:
    """Return the fields of every response to a send."""
    trace_on = "true" if config.traceOn else "false"
    return {props.MSG_REGION: config.regionId, props.TRACE_ON: trace_on}


def may_be_due_later(text: str) -> bool:
    """Return whether properties of a batch may name a delay or a time: then it is refused."""
    return "DELAY\x01" in text or "TIMER_D" in text

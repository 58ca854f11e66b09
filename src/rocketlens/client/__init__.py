"""Clients of a running cluster: ``Producer`` and ``MQAdmin``, async first; ``sync`` has both."""

from rocketlens.client.admin import MQAdmin
from rocketlens.client.cluster import Credentials
from rocketlens.client.message import Message
from rocketlens.client.producer import Producer, SendContext, SendHook
from rocketlens.client.route import MessageQueue
from rocketlens.client.send_request import Compression
from rocketlens.client.send_result import SendResult, SendStatus

__all__ = [
    "Compression",
    "Credentials",
    "MQAdmin",
    "Message",
    "MessageQueue",
    "Producer",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
]

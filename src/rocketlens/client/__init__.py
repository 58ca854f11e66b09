"""Clients of a running cluster: ``Producer`` and ``MQAdmin``, async first; ``sync`` has both."""

from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer, SendContext, SendHook
from rocketlens.client.send.send_request import Compression
from rocketlens.client.send.send_result import SendResult, SendStatus

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

"""RocketLens finds any RocketMQ message: by id, key, queue offset, time or content.

::

    import rocketlens

    with rocketlens.open_store("/data/rocketmq/store") as store:
        for message in store.find("ORDER-20261120-0042"):
            print(message.topic, message.queue_id, message.queue_offset, message.body)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlens.bulk.messages import read_batches
    from rocketlens.client.admin import MQAdmin
    from rocketlens.client.find import find, find_async
    from rocketlens.client.message import Message
    from rocketlens.client.producer import Producer
    from rocketlens.client.route import MessageQueue
    from rocketlens.client.send_result import SendResult, SendStatus
    from rocketlens.client.sync import SyncMQAdmin, SyncProducer
    from rocketlens.errors import (
        AnswerIncomplete,
        BadInput,
        MessageNotFound,
        NotAStore,
        RocketLensError,
        SparkUnavailable,
        StoreLocked,
    )
    from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
    from rocketlens.model.message import Host, MessageExt
    from rocketlens.query.offline import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerIncomplete",
    "BadInput",
    "Coverage",
    "Host",
    "MQAdmin",
    "Message",
    "MessageExt",
    "MessageNotFound",
    "MessageQueue",
    "NotAStore",
    "Producer",
    "RocketLensError",
    "SendResult",
    "SendStatus",
    "SourceKind",
    "SourceState",
    "SparkUnavailable",
    "Store",
    "StoreLocked",
    "SyncMQAdmin",
    "SyncProducer",
    "find",
    "find_async",
    "open_store",
    "read_batches",
]

# Each name is imported when it is first used: ``rocketlens --help`` and Spark's workers import this
# package for other parts of it.
_HOMES = {
    "read_batches": "rocketlens.bulk.messages",
    "MQAdmin": "rocketlens.client.admin",
    "find": "rocketlens.client.find",
    "find_async": "rocketlens.client.find",
    "Message": "rocketlens.client.message",
    "MessageQueue": "rocketlens.client.route",
    "Producer": "rocketlens.client.producer",
    "SendResult": "rocketlens.client.send_result",
    "SendStatus": "rocketlens.client.send_result",
    "SyncMQAdmin": "rocketlens.client.sync",
    "SyncProducer": "rocketlens.client.sync",
    "AnswerIncomplete": "rocketlens.errors",
    "BadInput": "rocketlens.errors",
    "MessageNotFound": "rocketlens.errors",
    "NotAStore": "rocketlens.errors",
    "RocketLensError": "rocketlens.errors",
    "SparkUnavailable": "rocketlens.errors",
    "StoreLocked": "rocketlens.errors",
    "Answer": "rocketlens.model.answer",
    "Coverage": "rocketlens.model.answer",
    "SourceKind": "rocketlens.model.answer",
    "SourceState": "rocketlens.model.answer",
    "Host": "rocketlens.model.message",
    "MessageExt": "rocketlens.model.message",
    "Store": "rocketlens.query.offline",
    "open_store": "rocketlens.query.offline",
}


if not TYPE_CHECKING:  # a type checker shall say so of a name that there is not

    def __getattr__(name: str) -> object:
        """Import a public name from where it lives.

        :raises AttributeError: when there is none of that name.
        """
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, used or not."""
    return sorted({*globals(), *__all__})

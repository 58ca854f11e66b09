"""RocketLens finds any RocketMQ message: by id, key, queue offset, time or content.

::

    import rocketlens

    with rocketlens.open_store("/data/rocketmq/store") as store:
        for message in store.find("ORDER-20261120-0042"):
            print(message.topic, message.queue_id, message.queue_offset, message.body)
"""

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
from rocketlens.model.message import Host, Message
from rocketlens.query.offline import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerIncomplete",
    "BadInput",
    "Coverage",
    "Host",
    "Message",
    "MessageNotFound",
    "NotAStore",
    "RocketLensError",
    "SourceKind",
    "SourceState",
    "SparkUnavailable",
    "Store",
    "StoreLocked",
    "open_store",
]

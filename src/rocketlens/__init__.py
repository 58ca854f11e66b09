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
    from rocketlens.client.consume_directly import ConsumedDirectly
    from rocketlens.client.consumer.listener import (
        ConsumeConcurrentlyStatus,
        ConsumeContext,
        ConsumeOrderlyStatus,
    )
    from rocketlens.client.consumer.lite_pull import LitePullConsumer
    from rocketlens.client.consumer.push import PushConsumer
    from rocketlens.client.consumer.subscription import MessageSelector
    from rocketlens.client.find import find, find_async
    from rocketlens.client.message import Message
    from rocketlens.client.producer import Producer
    from rocketlens.client.request_reply import ReplyMessage, reply_to
    from rocketlens.client.route import MessageQueue
    from rocketlens.client.send_result import SendResult, SendStatus
    from rocketlens.client.story import story, story_async
    from rocketlens.client.sync import SyncMQAdmin, SyncProducer, SyncTransactionProducer
    from rocketlens.client.sync_consumer import SyncLitePullConsumer, SyncPushConsumer
    from rocketlens.client.track import MessageTrack, TrackType
    from rocketlens.client.transaction import (
        LocalTransactionState,
        TransactionProducer,
        TransactionSendResult,
    )
    from rocketlens.errors import (
        AddressNotAllowed,
        AnswerIncomplete,
        BadAnswer,
        BadInput,
        BodyError,
        BodyTooLarge,
        BrokerError,
        CallTimeout,
        CheckpointError,
        CommandBodyError,
        ConfigError,
        ConnectFailed,
        ConnectionLost,
        FieldError,
        FormatError,
        FrameError,
        HeaderError,
        IndexFileError,
        MessageIllegal,
        MessageNotFound,
        NotAStore,
        PackageMissing,
        ProtocolError,
        RecordError,
        RemotingError,
        ReplyTimeout,
        RocketLensError,
        SendFailed,
        SparkUnavailable,
        StoreBusy,
        StoreChanged,
        StoreError,
        StoreFailed,
        StoreFull,
        StoreLocked,
        TopicNotFound,
        WrongType,
        WrongUse,
    )
    from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
    from rocketlens.model.message import Host, MessageExt
    from rocketlens.pipeline.session import spark
    from rocketlens.query.by_time import Scan
    from rocketlens.query.group_state import GroupState
    from rocketlens.query.offline import Store, open_store
    from rocketlens.query.story import GroupStory, Story, Unlearnt
    from rocketlens.query.story_events import StoryEvent

__version__ = "0.1.0"

__all__ = [
    "AddressNotAllowed",
    "Answer",
    "AnswerIncomplete",
    "BadAnswer",
    "BadInput",
    "BodyError",
    "BodyTooLarge",
    "BrokerError",
    "CallTimeout",
    "CheckpointError",
    "CommandBodyError",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeConcurrentlyStatus",
    "ConsumeContext",
    "ConsumeOrderlyStatus",
    "ConsumedDirectly",
    "Coverage",
    "FieldError",
    "FormatError",
    "FrameError",
    "GroupState",
    "GroupStory",
    "HeaderError",
    "Host",
    "IndexFileError",
    "LitePullConsumer",
    "LocalTransactionState",
    "MQAdmin",
    "Message",
    "MessageExt",
    "MessageIllegal",
    "MessageNotFound",
    "MessageQueue",
    "MessageSelector",
    "MessageTrack",
    "NotAStore",
    "PackageMissing",
    "Producer",
    "ProtocolError",
    "PushConsumer",
    "RecordError",
    "RemotingError",
    "ReplyMessage",
    "ReplyTimeout",
    "RocketLensError",
    "Scan",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SourceKind",
    "SourceState",
    "SparkUnavailable",
    "Store",
    "StoreBusy",
    "StoreChanged",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "Story",
    "StoryEvent",
    "SyncLitePullConsumer",
    "SyncMQAdmin",
    "SyncProducer",
    "SyncPushConsumer",
    "SyncTransactionProducer",
    "TopicNotFound",
    "TrackType",
    "TransactionProducer",
    "TransactionSendResult",
    "Unlearnt",
    "WrongType",
    "WrongUse",
    "find",
    "find_async",
    "open_store",
    "read_batches",
    "reply_to",
    "spark",
    "story",
    "story_async",
]

# Each name is imported when it is first used: ``rocketlens --help`` and Spark's workers import this
# package for other parts of it.
_HOMES = {
    "read_batches": "rocketlens.bulk.messages",
    "MQAdmin": "rocketlens.client.admin",
    "ConsumeConcurrentlyStatus": "rocketlens.client.consumer.listener",
    "ConsumeContext": "rocketlens.client.consumer.listener",
    "ConsumeOrderlyStatus": "rocketlens.client.consumer.listener",
    "LitePullConsumer": "rocketlens.client.consumer.lite_pull",
    "MessageSelector": "rocketlens.client.consumer.subscription",
    "PushConsumer": "rocketlens.client.consumer.push",
    "SyncLitePullConsumer": "rocketlens.client.sync_consumer",
    "SyncPushConsumer": "rocketlens.client.sync_consumer",
    "ConsumedDirectly": "rocketlens.client.consume_directly",
    "MessageTrack": "rocketlens.client.track",
    "TrackType": "rocketlens.client.track",
    "find": "rocketlens.client.find",
    "find_async": "rocketlens.client.find",
    "Message": "rocketlens.client.message",
    "MessageQueue": "rocketlens.client.route",
    "Producer": "rocketlens.client.producer",
    "ReplyMessage": "rocketlens.client.request_reply",
    "reply_to": "rocketlens.client.request_reply",
    "SendResult": "rocketlens.client.send_result",
    "SendStatus": "rocketlens.client.send_result",
    "SyncMQAdmin": "rocketlens.client.sync",
    "SyncProducer": "rocketlens.client.sync",
    "SyncTransactionProducer": "rocketlens.client.sync",
    "LocalTransactionState": "rocketlens.client.transaction",
    "TransactionProducer": "rocketlens.client.transaction",
    "TransactionSendResult": "rocketlens.client.transaction",
    "AddressNotAllowed": "rocketlens.errors",
    "AnswerIncomplete": "rocketlens.errors",
    "BadAnswer": "rocketlens.errors",
    "BadInput": "rocketlens.errors",
    "BodyError": "rocketlens.errors",
    "BodyTooLarge": "rocketlens.errors",
    "BrokerError": "rocketlens.errors",
    "CallTimeout": "rocketlens.errors",
    "CheckpointError": "rocketlens.errors",
    "CommandBodyError": "rocketlens.errors",
    "ConfigError": "rocketlens.errors",
    "ConnectFailed": "rocketlens.errors",
    "ConnectionLost": "rocketlens.errors",
    "FieldError": "rocketlens.errors",
    "FormatError": "rocketlens.errors",
    "FrameError": "rocketlens.errors",
    "HeaderError": "rocketlens.errors",
    "IndexFileError": "rocketlens.errors",
    "MessageIllegal": "rocketlens.errors",
    "MessageNotFound": "rocketlens.errors",
    "NotAStore": "rocketlens.errors",
    "PackageMissing": "rocketlens.errors",
    "ProtocolError": "rocketlens.errors",
    "RecordError": "rocketlens.errors",
    "RemotingError": "rocketlens.errors",
    "ReplyTimeout": "rocketlens.errors",
    "RocketLensError": "rocketlens.errors",
    "SendFailed": "rocketlens.errors",
    "SparkUnavailable": "rocketlens.errors",
    "StoreBusy": "rocketlens.errors",
    "StoreChanged": "rocketlens.errors",
    "StoreError": "rocketlens.errors",
    "StoreFailed": "rocketlens.errors",
    "StoreFull": "rocketlens.errors",
    "StoreLocked": "rocketlens.errors",
    "TopicNotFound": "rocketlens.errors",
    "WrongType": "rocketlens.errors",
    "WrongUse": "rocketlens.errors",
    "Answer": "rocketlens.model.answer",
    "Coverage": "rocketlens.model.answer",
    "SourceKind": "rocketlens.model.answer",
    "SourceState": "rocketlens.model.answer",
    "Host": "rocketlens.model.message",
    "MessageExt": "rocketlens.model.message",
    "spark": "rocketlens.pipeline.session",
    "Scan": "rocketlens.query.by_time",
    "GroupState": "rocketlens.query.group_state",
    "GroupStory": "rocketlens.query.story",
    "Story": "rocketlens.query.story",
    "StoryEvent": "rocketlens.query.story_events",
    "Unlearnt": "rocketlens.query.story",
    "story": "rocketlens.client.story",
    "story_async": "rocketlens.client.story",
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

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
    from rocketlens.archive.archive import Archive, open_archive
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.bulk.messages import read_batches
    from rocketlens.client.admin.consume_directly import ConsumedDirectly
    from rocketlens.client.admin.track import MessageTrack, TrackType
    from rocketlens.client.all_sources import find, find_async, story, story_async
    from rocketlens.client.blocking.sync_admin import SyncMQAdmin
    from rocketlens.client.blocking.sync_consumer import SyncLitePullConsumer, SyncPushConsumer
    from rocketlens.client.blocking.sync_producer import SyncProducer, SyncTransactionProducer
    from rocketlens.client.connect.route import MessageQueue
    from rocketlens.client.consume.listener import (
        ConsumeConcurrentlyStatus,
        ConsumeContext,
        ConsumeOrderlyStatus,
    )
    from rocketlens.client.consume.lite_pull import LitePullConsumer
    from rocketlens.client.consume.push import PushConsumer
    from rocketlens.client.consume.subscription import MessageSelector
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.send.message import Message
    from rocketlens.client.send.producer import Producer
    from rocketlens.client.send.request_reply import ReplyMessage, reply_to
    from rocketlens.client.send.send_result import SendResult, SendStatus
    from rocketlens.client.send.transaction_producer import (
        LocalTransactionState,
        TransactionProducer,
        TransactionSendResult,
    )
    from rocketlens.errors import (
        AddressNotAllowed,
        AnswerIncomplete,
        ArchiveError,
        ArchiveTaken,
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
        CopyFailed,
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
    from rocketlens.query.facts.group_state import GroupState
    from rocketlens.query.lookup.by_time import Scan
    from rocketlens.query.offline import Store, open_store
    from rocketlens.query.story.story import GroupStory, Story, Unlearnt
    from rocketlens.query.story.story_events import StoryEvent

__version__ = "0.1.0"

__all__ = [
    "AddressNotAllowed",
    "Answer",
    "AnswerIncomplete",
    "Archive",
    "ArchiveError",
    "ArchiveScan",
    "ArchiveTaken",
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
    "CopyFailed",
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
    "open_archive",
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
    "Archive": "rocketlens.archive.archive",
    "ArchiveScan": "rocketlens.archive.scan",
    "open_archive": "rocketlens.archive.archive",
    "ArchiveError": "rocketlens.errors",
    "ArchiveTaken": "rocketlens.errors",
    "read_batches": "rocketlens.bulk.messages",
    "MQAdmin": "rocketlens.client.mq_admin",
    "ConsumeConcurrentlyStatus": "rocketlens.client.consume.listener",
    "ConsumeContext": "rocketlens.client.consume.listener",
    "ConsumeOrderlyStatus": "rocketlens.client.consume.listener",
    "LitePullConsumer": "rocketlens.client.consume.lite_pull",
    "MessageSelector": "rocketlens.client.consume.subscription",
    "PushConsumer": "rocketlens.client.consume.push",
    "SyncLitePullConsumer": "rocketlens.client.blocking.sync_consumer",
    "SyncPushConsumer": "rocketlens.client.blocking.sync_consumer",
    "ConsumedDirectly": "rocketlens.client.admin.consume_directly",
    "MessageTrack": "rocketlens.client.admin.track",
    "TrackType": "rocketlens.client.admin.track",
    "find": "rocketlens.client.all_sources",
    "find_async": "rocketlens.client.all_sources",
    "Message": "rocketlens.client.send.message",
    "MessageQueue": "rocketlens.client.connect.route",
    "Producer": "rocketlens.client.send.producer",
    "ReplyMessage": "rocketlens.client.send.request_reply",
    "reply_to": "rocketlens.client.send.request_reply",
    "SendResult": "rocketlens.client.send.send_result",
    "SendStatus": "rocketlens.client.send.send_result",
    "SyncMQAdmin": "rocketlens.client.blocking.sync_admin",
    "SyncProducer": "rocketlens.client.blocking.sync_producer",
    "SyncTransactionProducer": "rocketlens.client.blocking.sync_producer",
    "LocalTransactionState": "rocketlens.client.send.transaction_producer",
    "TransactionProducer": "rocketlens.client.send.transaction_producer",
    "TransactionSendResult": "rocketlens.client.send.transaction_producer",
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
    "CopyFailed": "rocketlens.errors",
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
    "Scan": "rocketlens.query.lookup.by_time",
    "GroupState": "rocketlens.query.facts.group_state",
    "GroupStory": "rocketlens.query.story.story",
    "Story": "rocketlens.query.story.story",
    "StoryEvent": "rocketlens.query.story.story_events",
    "Unlearnt": "rocketlens.query.story.story",
    "story": "rocketlens.client.all_sources",
    "story_async": "rocketlens.client.all_sources",
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

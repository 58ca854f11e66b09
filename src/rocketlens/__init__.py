"""RocketLens finds any RocketMQ message: by id, key, queue offset, time or content.

::

    import rocketlens

    with rocketlens.open_store("/data/rocketmq/store") as store:
        for message in store.find("ORDER-20261120-0042"):
            print(message.topic, message.queue_id, message.queue_offset, message.body)
"""

from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Final

from rocketlens import errors

if TYPE_CHECKING:
    from rocketlens.archive.archive import Archive as Archive
    from rocketlens.archive.archive import open_archive as open_archive
    from rocketlens.archive.scan import ArchiveScan as ArchiveScan
    from rocketlens.bulk.messages import read_batches as read_batches
    from rocketlens.client.admin.group_calls import ConsumedDirectly as ConsumedDirectly
    from rocketlens.client.admin.track import MessageTrack as MessageTrack
    from rocketlens.client.admin.track import TrackType as TrackType
    from rocketlens.client.all_sources import find as find
    from rocketlens.client.all_sources import find_async as find_async
    from rocketlens.client.all_sources import story as story
    from rocketlens.client.all_sources import story_async as story_async
    from rocketlens.client.blocking.sync_admin import SyncMQAdmin as SyncMQAdmin
    from rocketlens.client.blocking.sync_consumer import (
        SyncLitePullConsumer as SyncLitePullConsumer,
    )
    from rocketlens.client.blocking.sync_consumer import SyncPushConsumer as SyncPushConsumer
    from rocketlens.client.blocking.sync_producer import SyncProducer as SyncProducer
    from rocketlens.client.blocking.sync_producer import (
        SyncTransactionProducer as SyncTransactionProducer,
    )
    from rocketlens.client.connect.cluster import Credentials as Credentials
    from rocketlens.client.connect.route import MessageQueue as MessageQueue
    from rocketlens.client.consume.consume_service import (
        ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus,
    )
    from rocketlens.client.consume.consume_service import ConsumeContext as ConsumeContext
    from rocketlens.client.consume.consume_service import (
        ConsumeOrderlyStatus as ConsumeOrderlyStatus,
    )
    from rocketlens.client.consume.consumer_settings import MessageSelector as MessageSelector
    from rocketlens.client.consume.lite_pull import LitePullConsumer as LitePullConsumer
    from rocketlens.client.consume.push import PushConsumer as PushConsumer
    from rocketlens.client.mq_admin import MQAdmin as MQAdmin
    from rocketlens.client.send.message import Message as Message
    from rocketlens.client.send.producer import Producer as Producer
    from rocketlens.client.send.request_reply import ReplyMessage as ReplyMessage
    from rocketlens.client.send.request_reply import reply_to as reply_to
    from rocketlens.client.send.send_result import SendResult as SendResult
    from rocketlens.client.send.send_result import SendStatus as SendStatus
    from rocketlens.client.send.transaction_producer import (
        LocalTransactionState as LocalTransactionState,
    )
    from rocketlens.client.send.transaction_producer import (
        TransactionProducer as TransactionProducer,
    )
    from rocketlens.client.send.transaction_producer import (
        TransactionSendResult as TransactionSendResult,
    )
    from rocketlens.errors import *  # noqa: F403
    from rocketlens.model.answer import Answer as Answer
    from rocketlens.model.answer import Coverage as Coverage
    from rocketlens.model.answer import SourceKind as SourceKind
    from rocketlens.model.answer import SourceState as SourceState
    from rocketlens.model.message import Host as Host
    from rocketlens.model.message import MessageExt as MessageExt
    from rocketlens.model.rocketmq import lite_topic as lite_topic
    from rocketlens.pipeline.session import spark as spark
    from rocketlens.query.facts.group_state import GroupState as GroupState
    from rocketlens.query.lookup.by_time import Scan as Scan
    from rocketlens.query.offline import Store as Store
    from rocketlens.query.offline import open_store as open_store
    from rocketlens.query.story.story import GroupStory as GroupStory
    from rocketlens.query.story.story import Story as Story
    from rocketlens.query.story.story import Unlearnt as Unlearnt
    from rocketlens.query.story.story_events import StoryEvent as StoryEvent

__version__ = "0.1.0"

# Names are imported on first use: ``rocketlens --help`` and Spark's workers need only parts.
_NAMES: Final = {
    "archive.archive": "Archive open_archive",
    "archive.scan": "ArchiveScan",
    "bulk.messages": "read_batches",
    "client.admin.group_calls": "ConsumedDirectly",
    "client.admin.track": "MessageTrack TrackType",
    "client.all_sources": "find find_async story story_async",
    "client.blocking.sync_admin": "SyncMQAdmin",
    "client.blocking.sync_consumer": "SyncLitePullConsumer SyncPushConsumer",
    "client.blocking.sync_producer": "SyncProducer SyncTransactionProducer",
    "client.connect.cluster": "Credentials",
    "client.connect.route": "MessageQueue",
    "client.consume.consume_service": (
        "ConsumeConcurrentlyStatus ConsumeContext ConsumeOrderlyStatus"
    ),
    "client.consume.lite_pull": "LitePullConsumer",
    "client.consume.push": "PushConsumer",
    "client.consume.consumer_settings": "MessageSelector",
    "client.mq_admin": "MQAdmin",
    "client.send.message": "Message",
    "client.send.producer": "Producer",
    "client.send.request_reply": "ReplyMessage reply_to",
    "client.send.send_result": "SendResult SendStatus",
    "client.send.transaction_producer": (
        "LocalTransactionState TransactionProducer TransactionSendResult"
    ),
    "model.answer": "Answer Coverage SourceKind SourceState",
    "model.message": "Host MessageExt",
    "model.rocketmq": "lite_topic",
    "pipeline.session": "spark",
    "query.facts.group_state": "GroupState",
    "query.lookup.by_time": "Scan",
    "query.offline": "Store open_store",
    "query.story.story": "GroupStory Story Unlearnt",
    "query.story.story_events": "StoryEvent",
    "errors": " ".join(name for name, each in vars(errors).items() if isinstance(each, type)),
}
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers use the imports above and report other names
    __all__ = sorted(_MODULES)  # noqa: PLE0605

    def __getattr__(name: str) -> object:
        """Import a public name from its module.

        :raises AttributeError: if the name is unknown; suggests the nearest names.
        """
        module = _MODULES.get(name)
        if module is None:
            meant = ""
            # Python looks for a submodule here before it imports it.
            home = __spec__.submodule_search_locations
            if name[0] != "_" and PathFinder.find_spec(f"{__name__}.{name}", home) is None:
                meant = import_module(f"{__name__}.model.text.nearest").suggestion(name, _MODULES)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")
        value: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *_MODULES})

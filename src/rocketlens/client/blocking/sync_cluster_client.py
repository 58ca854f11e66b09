"""What blocking clients ask a cluster.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.blocking.blocking_client import C, SyncClient, documented_by
from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.connect.route import MessageQueue
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import PERM_READ_WRITE
from rocketlens.query.options import FindOptions, StoryOptions, takes
from rocketlens.query.request import FindRequest, StoryRequest

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from rocketlens.query.story.story import Story


@documented_by(ClusterClient)
class SyncClusterClient(SyncClient[C]):
    """The common part of blocking clients: questions to a cluster."""

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content, as `Store.find` does."""
        return self._thread.run(self._client.find(text, topic, **options))

    @takes(StoryOptions, StoryRequest.parse)
    def story(
        self, text: str, topic: str | Iterable[str] | None = None, **options: "Unpack[StoryOptions]"
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, what each group did with it."""
        return self._thread.run(self._client.story(text, topic, **options))

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``."""
        return self._thread.run(self._client.query_message(topic, key, max_num, begin, end))

    def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age."""
        return self._thread.run(
            self._client.query_message_by_unique_key(topic, unique_key, max_num, begin, end)
        )

    def forget_broker(self, broker_name: str) -> bool:
        """Remove a broker that is gone for good, so that answers can be complete without it."""
        return self._call(lambda client: client.forget_broker(broker_name))

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read, in the order of broker name and queue id."""
        return self._thread.run(self._client.message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return about the offset of the first message in a queue stored at a time or later."""
        return self._thread.run(self._client.search_offset(queue, timestamp_ms))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue; errors as `search_offset`."""
        return self._thread.run(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's next message; errors as `search_offset`."""
        return self._thread.run(self._client.max_offset(queue))

    def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of a queue's oldest message, in epoch milliseconds; -1 if it is
        empty.
        """
        return self._thread.run(self._client.earliest_message_store_time(queue))

    def create_topic(
        self,
        topic: str,
        queue_nums: int = 8,
        *,
        cluster_name: str | None = None,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
    ) -> None:
        """Create a topic, or change it, on all masters of the name servers, or of one cluster."""
        self._thread.run(
            self._client.create_topic(
                topic, queue_nums, cluster_name=cluster_name, perm=perm, order=order
            )
        )

"""What blocking clients ask a cluster.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.blocking.blocking_client import C, SyncClient
from rocketlens.client.connect.route import MessageQueue
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import PERM_READ_WRITE
from rocketlens.query.options import FindOptions, StoryOptions, takes
from rocketlens.query.request import FindRequest, StoryRequest

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from rocketlens.query.story.story import Story


class SyncClusterClient(SyncClient[C]):
    """The common part of blocking clients: questions to a cluster."""

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content, as `Store.find` does.

        The keywords are those of `rocketlens.query.options.FindOptions`.
        Without a topic every topic that the name servers know is searched, of the namespace if
        there is one, but RocketMQ's own only with ``all_topics``. Messages are in the order of
        their store times, with their topics' full names.

        A search by topic and time relies on the store times of a queue rising, which it checks by
        samples: ``relies_on`` of the coverage says so. With ``exhaustive`` it reads whole queues.

        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.find(text, topic, **options))

    @takes(StoryOptions, StoryRequest.parse)
    def story(
        self, text: str, topic: str | Iterable[str] | None = None, **options: "Unpack[StoryOptions]"
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, what each group did with it.

        ``text`` is an id, a key or ``TOPIC/QUEUE/OFFSET``, and found as `find` does; ``message`` of
        the story is None if there is no such message. The keywords are those of
        `rocketlens.query.options.StoryOptions`. All topics are searched for copies: O(topics)
        requests.

        :raises BadInput: if the text cannot be what ``kind`` says.
        :raises TopicNotFound: if nothing is found, and there is no such topic.
        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.story(text, topic, **options))

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``.

        ``begin`` and ``end`` are store times in epoch milliseconds, datetimes or words such as
        ``2h``, both included, and are met to the millisecond. ``max_num`` may be any number, None
        for all. Messages are in the order of their store times.

        :raises BadInput: when the key is empty or too long, or a number is negative.
        :raises TopicNotFound: when no broker has the topic.
        :raises RemotingError: when no name server answers.
        """
        return self._thread.run(self._client.query_message(topic, key, max_num, begin, end))

    def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age.

        Resent messages keep their unique key, so there can be several. Otherwise as
        `query_message`.
        """
        return self._thread.run(
            self._client.query_message_by_unique_key(topic, unique_key, max_num, begin, end)
        )

    def forget_broker(self, broker_name: str) -> bool:
        """Remove a broker that is gone for good, so that answers can be complete without it.

        Returns False if it is not remembered, or could not be removed.
        """
        return self._call(lambda client: client.forget_broker(broker_name))

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read, in the order of broker name and queue id.

        :raises TopicNotFound: when no broker has the topic.
        :raises RemotingError: when no name server answers.
        """
        return self._thread.run(self._client.message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return about the offset of the first message in a queue stored at a time or later.

        :raises BrokerError: if the broker refuses.
        :raises TopicNotFound: if no broker has the topic, or the queue's broker does not.
        :raises RemotingError: if neither the broker nor a slave of it responds.
        """
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

        Errors as `search_offset`.
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
        """Create a topic, or change it, on all masters of the name servers, or of one cluster.

        :raises MessageIllegal: if it is not a valid topic name.
        :raises BadInput: if there is no such cluster, or the number of queues is out of range.
        :raises BrokerError: if a broker refuses; the error's notes have the results of the others.
        :raises RemotingError: if a broker does not respond (likewise), or no name server does.
        """
        self._thread.run(
            self._client.create_topic(
                topic, queue_nums, cluster_name=cluster_name, perm=perm, order=order
            )
        )

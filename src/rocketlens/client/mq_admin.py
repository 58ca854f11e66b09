"""``rocketlens.MQAdmin``: everything that a cluster can be asked, and operators' acts on it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.admin.cluster_groups import find_groups, find_producers
from rocketlens.client.admin.cluster_status import find_brokers, find_status
from rocketlens.client.admin.cluster_topics import find_topics
from rocketlens.client.group_admin import GroupAdmin
from rocketlens.client.search.topic_scan import ClusterMessages
from rocketlens.client.search.topic_tail import TailRequest, TopicTail
from rocketlens.client.send.message import RESEND_GROUP, message_again
from rocketlens.client.send.send_result import SendResult
from rocketlens.model.arguments import check_text
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicsAnswer
from rocketlens.query.options import ScanOptions, TailOptions, takes
from rocketlens.query.request import FindRequest, check_max_num, tail_filter
from rocketlens.query.topic_choice import asked_topics

if TYPE_CHECKING:
    from typing import Unpack

    from rocketlens.client.send.producer import Producer


class MQAdmin(GroupAdmin):
    """Queries a running RocketMQ cluster, RocketLens or any other, and acts on it.

    ::

        async with rocketlens.MQAdmin("127.0.0.1:9876") as admin:
            answer = await admin.query_message("Orders", "ORDER-20261120-0042")
            for message in answer:
                print(message.msg_id, message.body)
    """

    _resender: "Producer | None" = None

    @takes(ScanOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        exhaustive: bool = False,
        **options: "Unpack[ScanOptions]",
    ) -> ClusterMessages:
        """Return an async iterator over the messages of a topic or several, or of all.

        The keywords are those of `rocketlens.query.options.ScanOptions`; ``exhaustive`` reads whole
        queues, instead of relying on the order of store times. Any number of messages is read in
        bounded memory, where `find` keeps an answer in it, and the first ones come at once.
        ``record_batches()`` of the result yields them as Arrow record batches, and ``to_arrow()``
        returns a table; ``complete`` and ``coverage`` say what could be read. Messages are in the
        order of their store times, as far as those rise in each queue.

        The iteration raises TopicNotFound if the cluster has no topic of a name or none matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        return self.scan_for(FindRequest.parse_scan(topic, exhaustive=exhaustive, **options))

    def scan_for(self, request: FindRequest) -> ClusterMessages:
        """Return an async iterator over the messages of a request that has no text; as `scan`."""
        return ClusterMessages(self.source, request)

    async def resend(self, message: MessageExt) -> SendResult:
        """Send a stored message again: to its own topic, with its properties and unique key.

        Every group of the topic gets it again, and two records have its unique key then.

        :raises BadInput: if it was sent in a transaction, or its body cannot be decompressed.
        :raises TopicNotFound: if no broker has its topic any more.
        :raises BrokerError: if a broker refuses it, and another would, too.
        :raises SendFailed: if all attempts failed; whether it is stored again is not known then.
        """
        from rocketlens.client.send.producer import Producer

        again = message_again(message)
        if self._resender is None:
            name_servers = self._cluster.name_servers
            self._resender = Producer(name_servers, group=RESEND_GROUP, **self._connection)
            await self._resender.start()
        return await self._resender.send(again)

    async def close(self) -> None:
        """End all connections."""
        if self._resender is not None:
            await self._resender.close()
        await super().close()

    async def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues.

        ``topic`` is as `find` has it. A broker that cannot be asked makes the answer incomplete,
        and ``queues`` of its topics None. O(topics * brokers + queues) requests.

        :raises WrongType: if `topic` is of a type that cannot be used.
        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
        """
        names = asked_topics(topic)
        return await find_topics(self._cluster, self.source.topology, names, self.source.namespace)

    async def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one: members, lag, retries, dead letters.

        A broker that cannot be asked makes the answer incomplete and is in its coverage; what it
        could have said of a group is None there. Groups that every broker has from the start are
        returned only if they are asked for. O(groups * brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        full_group = None if group is None else self._full_topic(check_text(group, "group"))
        return await find_groups(self._cluster, self.source.topology, full_group)

    async def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group. O(brokers) requests.

        A master that cannot be asked, or does not know the request, makes the answer incomplete.

        :raises RemotingError: if no name server answers.
        """
        return await find_producers(self._cluster, self.source.topology)

    async def brokers(
        self, *, on_answer: Callable[[BrokerStatus], None] | None = None
    ) -> BrokersAnswer:
        """Return the brokers of the cluster: versions, rates, disks, and their lag.

        Each master and slave is asked once, all of them side by side. One that does not answer is
        in the answer with its error, and makes it incomplete. ``on_answer`` is called with each
        when it has answered or failed. O(brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        return await find_brokers(self._cluster, self.source.topology, on_answer=on_answer)

    async def status(self) -> ClusterStatus:
        """Return the state of the cluster: brokers with versions, rates and disks, and groups.

        A broker that does not answer is in it with its error, and makes it incomplete.
        O(brokers * groups) requests.

        :raises RemotingError: if no name server answers.
        """
        return await find_status(self._cluster, self.source.topology)

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        *,
        follow: bool = False,
        on_event: Callable[[str], None] | None = None,
        **options: "Unpack[TailOptions]",
    ) -> TopicTail:
        """Return an async iterator over the newest messages of a topic, oldest of them first.

        With ``follow`` it goes on with the messages that arrive, and ends only when it is closed:
        use it as an async context manager. It needs no group, and leaves nothing at the brokers.

        ``newest`` None is all messages, in the order of each queue. The other keywords are those of
        `rocketlens.query.options.TailOptions`: all conditions given must hold. ``on_event`` is
        called with a line for each broker that fails or is back, and for messages that were deleted
        before they were read; without it they are logged. ``complete`` and ``coverage`` of the
        result say what could be read.

        The iteration raises TopicNotFound if no broker has the topic, and RemotingError if no name
        server answers.

        :raises BadInput: if a condition is not well-formed, or a number is negative.
        """
        message_filter = tail_filter(self._full_topic(check_text(topic, "topic")), **options)
        request = TailRequest(
            message_filter=message_filter, newest=check_max_num(newest), follow=follow
        )
        return TopicTail(self._cluster, self.source.topology, request, on_event=on_event)

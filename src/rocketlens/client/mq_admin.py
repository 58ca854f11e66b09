"""``rocketlens.MQAdmin``: everything that a cluster can be asked, and operators' acts on it."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from rocketlens import limits
from rocketlens.client.admin.cluster_groups import find_groups, find_producers
from rocketlens.client.admin.cluster_status import find_brokers, find_status
from rocketlens.client.admin.cluster_topics import find_topics
from rocketlens.client.admin.consume_directly import (
    ConsumedDirectly,
    consume_directly,
    consume_directly_by_all,
)
from rocketlens.client.admin.group_calls import (
    connections_of,
    consume_stats,
    producers_of,
    proxies_named,
    running_info,
)
from rocketlens.client.admin.offset_reset import RollbackStats, reset_running, reset_table
from rocketlens.client.admin.track import MessageTrack, message_tracks
from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.topic_scan import ClusterMessages
from rocketlens.client.search.topic_tail import TopicTail
from rocketlens.client.send.message import RESEND_GROUP, message_again
from rocketlens.client.send.send_result import SendResult
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.arguments import check_text
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import group_problem
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicsAnswer
from rocketlens.query.options import ContentOptions, TailOptions, takes
from rocketlens.query.request import FindRequest, check_max_num, moment_ms, tail_filter
from rocketlens.query.topic_choice import parse_topics
from rocketlens.wire.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.tables import ConsumeStats, SubscriptionGroupConfig
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import NoFields, write_body

if TYPE_CHECKING:
    from rocketlens.client.send.producer import Producer


class MQAdmin(ClusterClient):
    """Queries a running RocketMQ cluster, RocketLens or any other, and acts on it.

    ::

        async with rocketlens.MQAdmin("127.0.0.1:9876") as admin:
            answer = await admin.query_message("Orders", "ORDER-20261120-0042")
            for message in answer:
                print(message.msg_id, message.body)

    Names of groups and topics are those of the namespace, if there is one. Messages and results
    have full names.
    """

    _resender: "Producer | None" = None

    @takes(ContentOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        begin: int | datetime | str | None = None,
        end: int | datetime | str | None = None,
        tag: str | None = None,
        *,
        exhaustive: bool = False,
        all_topics: bool = False,
        **content: Unpack[ContentOptions],
    ) -> ClusterMessages:
        """Return an async iterator over the messages of a topic or several, or of all.

        Arguments as `Store.scan`; ``exhaustive`` reads whole queues, instead of relying on the
        order of store times. Any number of messages is read in
        bounded memory, where `find` keeps an answer in it, and the first ones come at once.
        ``record_batches()`` of the result yields them as Arrow record batches, and ``to_arrow()``
        returns a table; ``complete`` and ``coverage`` say what could be read. Messages are in the
        order of their store times, as far as those rise in each queue.

        The iteration raises TopicNotFound if the cluster has no topic of a name or none matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        request = FindRequest.parse_scan(
            topic,
            exhaustive=exhaustive,
            begin=begin,
            end=end,
            tag=tag,
            all_topics=all_topics,
            **content,
        )
        return self.scan_for(request)

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
        names = parse_topics(topic)
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
        **options: Unpack[TailOptions],
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
        return TopicTail(
            self._cluster,
            self.source.topology,
            message_filter,
            newest=check_max_num(newest),
            follow=follow,
            on_event=on_event,
        )

    # Groups: what is known.

    async def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and what they subscribe to.

        ``broker_addr``: as this broker has them, or a proxy by its remoting port, else as the first
        broker that has any. Brokers do not know the clients that are connected to a proxy.

        :raises BrokerError: 206 if none is online.
        :raises TopicNotFound: if no broker knows the group: none of its clients was ever online.
        :raises RemotingError: if no broker answers.
        """
        if broker_addr is not None:
            self._cluster.allow_named(broker_addr)
            return await connections_of(self._cluster, self._group(group), broker_addr)
        async with proxies_named(self._cluster):
            return await connections_of(self._cluster, self._group(group))

    async def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to the brokers of a topic.

        :raises BrokerError: 1 if there are none.
        :raises TopicNotFound: if no broker has the topic.
        :raises RemotingError: if no broker answers.
        """
        return await producers_of(self._cluster, self._group(group), self._topic(topic))

    async def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """Return what a client of a group is doing, as it says itself; with its threads' stacks.

        :raises BrokerError: 1 if the client is not online, 207 if it does not answer.
        :raises TopicNotFound: if no broker knows the group.
        :raises RemotingError: if a broker does not answer, or the answer cannot be read.
        """
        return await running_info(
            self._cluster, self._group(group), check_text(client_id, "client_id"), jstack=jstack
        )

    async def examine_consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the progress of a group in each queue, or in each queue of one topic.

        The table is empty if the group never committed an offset.

        :raises BrokerError: if a broker refuses.
        :raises TopicNotFound: if no broker knows the group.
        :raises RemotingError: if one of its brokers does not answer.
        """
        full_topic = None if topic is None else self._topic(topic)
        return await consume_stats(self._cluster, self._group(group), full_topic)

    async def message_track_detail(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Return what each consumer group of a message's topic did with it, as far as it is known.

        A group of which something could not be learnt has the error in its track.

        :raises TopicNotFound: if no broker has the topic.
        :raises RocketLensError: if the groups cannot be listed.
        """
        return await message_tracks(self._cluster, message)

    async def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return the configuration of a broker, in its order.

        :raises BrokerError: if it refuses.
        :raises RemotingError: if it does not answer, or is not registered.
        """
        # Brokers that are registered may be dialled.
        await self._cluster.all_brokers()
        return await broker_calls.configuration(self._cluster, broker_addr)

    # Groups: what is done.

    async def consume_message_directly(
        self, group: str, client_id: str | None, topic: str, msg_id: str
    ) -> ConsumedDirectly:
        """Let a client of a group consume a stored message again; return what it made of it.

        Without ``client_id`` the first client that is online gets it; the result has its id.
        ``msg_id`` is either id. Offsets stay as they are, and nothing is retried.

        :raises MessageNotFound: if there is no such message.
        :raises AnswerIncomplete: if there is none where one could look.
        :raises BadInput: if ``client_id`` is None and the group consumes by pulling.
        :raises BrokerError: 206 if no client is online, 1 if this one is not, or the message is
            gone from its broker; 207 if the client does not answer: it may have consumed it.
        :raises RemotingError: if the broker does not answer, or the client's answer cannot be read.
        """
        full_group = self._group(group)
        message = await self._message(topic, msg_id)
        return await consume_directly(self._cluster, full_group, client_id, message)

    async def consume_message_directly_by_all(
        self, group: str, topic: str, msg_id: str
    ) -> dict[str, ConsumedDirectly | RocketLensError]:
        """Let every client of a group that is online consume a stored message, at once.

        Returns the result of each client, or the error with which it failed, by client id. Errors
        as `consume_message_directly`, if nothing was handed over.
        """
        full_group = self._group(group)
        message = await self._message(topic, msg_id)
        return await consume_directly_by_all(self._cluster, full_group, message)

    async def reset_offset_by_time(
        self, group: str, topic: str, time: int | datetime | str, *, is_force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move the running clients of a group to a time; return where they go on.

        ``time`` is a store time in epoch milliseconds, a datetime or words such as ``2h``, or -1
        for the end. Without ``is_force`` they never go forward.

        :raises BrokerError: 206 if a broker of the topic has no client of the group: then use
            `reset_offset_by_time_old`.
        :raises TopicNotFound: if no broker has the topic.
        :raises RemotingError: if a broker does not answer.
        """
        return await reset_running(
            self._cluster,
            self._group(group),
            self._topic(topic),
            moment_ms(time, "time"),
            is_force=is_force,
        )

    async def reset_offset_by_time_old(
        self, group: str, topic: str, time: int | datetime | str, *, is_force: bool = True
    ) -> tuple[RollbackStats, ...]:
        """Write a group's offsets at a time to the brokers, for when it is not running.

        Clients that are running do not see it, and overwrite it. Arguments as
        `reset_offset_by_time`.

        :raises TopicNotFound: if no broker has the topic.
        :raises RocketLensError: if a broker refuses or does not answer; those before it are done.
        """
        return await reset_table(
            self._cluster,
            self._group(group),
            self._topic(topic),
            moment_ms(time, "time"),
            is_force=is_force,
        )

    async def create_and_update_subscription_group(
        self,
        config: SubscriptionGroupConfig,
        *,
        cluster_name: str | None = None,
        broker_addr: str | None = None,
    ) -> tuple[str, ...]:
        """Make a group, or change it as a whole, on all masters, those of a cluster, or one broker.

        Returns the addresses of the brokers.

        :raises BadInput: if its name is not one for a group, or there is no such broker.
        :raises BrokerError: if a broker refuses; the error's notes name the brokers that did it.
        :raises RemotingError: if a broker does not answer (likewise), or no name server does.
        """
        problem = group_problem(self._group(config.group_name))
        if problem is not None:
            raise BadInput(problem)
        addresses = await self._masters(cluster_name, broker_addr)
        await self._cluster.ask_all(
            addresses, commands.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoFields(), write_body(config)
        )
        return tuple(addresses)

    async def delete_subscription_group(
        self,
        group: str,
        *,
        clean_offset: bool = False,
        cluster_name: str | None = None,
        broker_addr: str | None = None,
    ) -> tuple[str, ...]:
        """Delete a group, and with ``clean_offset`` its progress.

        Errors and result as `create_and_update_subscription_group`. Its retry topic and dead
        letters stay.
        """
        addresses = await self._masters(cluster_name, broker_addr)
        header = commands.DeleteSubscriptionGroupRequest(
            group_name=self._group(group), clean_offset=clean_offset
        )
        await self._cluster.ask_all(addresses, commands.DELETE_SUBSCRIPTIONGROUP, header)
        return tuple(addresses)

    # How it is done.

    def _group(self, group: str) -> str:
        return self._full_topic(check_text(group, "group"))

    def _topic(self, topic: str) -> str:
        return self._full_topic(check_text(topic, "topic"))

    async def _message(self, topic: str, msg_id: str) -> MessageExt:
        return await self.source.view_in_topic(self._topic(topic), check_text(msg_id, "msg_id"))

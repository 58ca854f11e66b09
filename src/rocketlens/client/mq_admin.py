"""``rocketlens.MQAdmin``: queries and administrative operations on a cluster."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from rocketlens import limits
from rocketlens.client.admin.cluster_groups import find_groups, find_producers
from rocketlens.client.admin.cluster_status import find_brokers, find_status
from rocketlens.client.admin.cluster_topics import find_topics
from rocketlens.client.admin.group_calls import (
    ConsumedDirectly,
    RollbackStats,
    connections_of,
    consume_directly,
    consume_directly_by_all,
    consume_stats,
    mention_proxies,
    producers_of,
    reset_running,
    reset_table,
    running_info,
)
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
    """Queries and administers a running RocketMQ cluster, RocketLens or any other.

    ::

        async with rocketlens.MQAdmin("127.0.0.1:9876") as admin:
            answer = await admin.query_message("Orders", "ORDER-20261120-0042")
            for message in answer:
                print(message.msg_id, message.body)

    If the client has a namespace, names of groups and topics are within it. Messages and results
    have full names. Methods raise `RemotingError` if no name server or broker answers.
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

        Arguments are as for `Store.scan`; ``exhaustive`` reads whole queues, instead of relying on
        the order of store times. Memory is bounded for any number of messages, and the first ones
        are available at once; `find` keeps a whole answer in memory. ``record_batches()`` of the
        result yields Arrow record batches, and ``to_arrow()`` returns a table; ``complete`` and
        ``coverage`` report what was read. Messages are in the order of their store times, if those
        rise in each queue.

        The iteration raises TopicNotFound if the cluster does not have a topic or nothing matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument has a wrong type.
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
        """Return an async iterator over the messages of a request without a text; as `scan`."""
        return ClusterMessages(self.source, request)

    async def resend(self, message: MessageExt) -> SendResult:
        """Send a stored message again: to its own topic, with its properties and unique key.

        Every group of the topic gets it again, and two records then have its unique key.

        :raises BadInput: if it was sent in a transaction, or its body cannot be decompressed.
        :raises TopicNotFound: if no broker has its topic any more.
        :raises BrokerError: if a broker refuses it for a reason that others share.
        :raises SendFailed: if all attempts failed. The message may still have been stored again.
        """
        from rocketlens.client.send.producer import Producer

        again = message_again(message)
        if self._resender is None:
            name_servers = self._cluster.name_servers
            self._resender = Producer(name_servers, group=RESEND_GROUP, **self._connection)
            await self._resender.start()
        return await self._resender.send(again)

    async def close(self) -> None:
        """Close all connections."""
        if self._resender is not None:
            await self._resender.close()
        await super().close()

    async def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues.

        ``topic`` is as for `find`. A failed broker makes the answer incomplete, and ``queues`` of
        its topics None. O(topics * brokers + queues) requests.

        :raises WrongType: if `topic` has a wrong type.
        :raises TopicNotFound: if the cluster does not have a topic, or nothing matches a pattern.
        """
        names = parse_topics(topic)
        return await find_topics(self._cluster, self.source.topology, names, self.source.namespace)

    async def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one: members, lag, retries, dead letters.

        A failed broker makes the answer incomplete and is in its coverage; facts that it did not
        return are None. Groups that every broker creates itself are returned only if requested by
        name. O(groups * brokers) requests.
        """
        full_group = None if group is None else self._full_topic(check_text(group, "group"))
        return await find_groups(self._cluster, self.source.topology, full_group)

    async def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group. O(brokers) requests.

        A master that fails, or does not support the request, makes the answer incomplete.
        """
        return await find_producers(self._cluster, self.source.topology)

    async def brokers(
        self, *, on_answer: Callable[[BrokerStatus], None] | None = None
    ) -> BrokersAnswer:
        """Return the brokers of the cluster: versions, rates, disks, and their lag.

        Masters and slaves are asked concurrently, once each. A failed broker is in the answer with
        its error, and makes it incomplete. ``on_answer`` is called when a broker has answered or
        failed. O(brokers) requests.
        """
        return await find_brokers(self._cluster, self.source.topology, on_answer=on_answer)

    async def status(self) -> ClusterStatus:
        """Return the state of the cluster: brokers with versions, rates and disks, and groups.

        A failed broker is in it with its error, and makes it incomplete. O(brokers * groups)
        requests.
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
        """Return an async iterator over the newest messages of a topic, the oldest of them first.

        With ``follow`` it continues with new messages, and ends only when it is closed: use it as
        an async context manager. It joins no group, and stores nothing at the brokers.

        ``newest`` None is all messages, in the order of each queue. The other keywords are those of
        `rocketlens.query.options.TailOptions`: all given conditions must match. ``on_event`` is
        called with a line when a broker fails or recovers, and for messages that were deleted
        before they were read; without it these lines are logged. ``complete`` and ``coverage`` of
        the result report what was read.

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

    async def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and their subscriptions.

        ``broker_addr`` is the broker to ask, or the remoting port of a proxy; by default brokers
        are asked until one has clients. Brokers do not know the clients of a proxy.

        :raises BrokerError: 206 if none is online.
        :raises TopicNotFound: if no broker knows the group: none of its clients was ever online.
        """
        if broker_addr is not None:
            self._cluster.allow_named(broker_addr)
            return await connections_of(self._cluster, self._group(group), broker_addr)
        async with mention_proxies(self._cluster):
            return await connections_of(self._cluster, self._group(group))

    async def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to the brokers of a topic.

        :raises BrokerError: 1 if there are none.
        :raises TopicNotFound: if no broker has the topic.
        """
        return await producers_of(self._cluster, self._group(group), self._topic(topic))

    async def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """Return the state that a client of a group reports, with ``jstack`` including stacks.

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
        """
        full_topic = None if topic is None else self._topic(topic)
        return await consume_stats(self._cluster, self._group(group), full_topic)

    async def message_track_detail(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Return the known result of a message in each consumer group of its topic.

        If a request about a group fails, its track has the error.

        :raises TopicNotFound: if no broker has the topic.
        :raises RocketLensError: if the groups cannot be listed.
        """
        return await message_tracks(self._cluster, message)

    async def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return the configuration of a broker, in the broker's order.

        :raises BrokerError: if it refuses.
        :raises RemotingError: if it does not answer, or is not registered.
        """
        # Allows connections to registered brokers.
        await self._cluster.all_brokers()
        return await broker_calls.configuration(self._cluster, broker_addr)

    async def consume_message_directly(
        self, group: str, client_id: str | None, topic: str, msg_id: str
    ) -> ConsumedDirectly:
        """Let a client of a group consume a stored message again, and return its result.

        Without ``client_id`` the first client that is online gets the message; the result has its
        id. ``msg_id`` is either id. Offsets do not change, and nothing is retried.

        :raises MessageNotFound: if the message does not exist.
        :raises AnswerIncomplete: if it was not found, and a broker could not be searched.
        :raises BadInput: if ``client_id`` is None and the group's clients pull.
        :raises BrokerError: 206 if no client is online, 1 if this one is not, or the message is no
            longer on its broker; 207 if the client does not answer: it may have consumed the
            message.
        :raises RemotingError: if the broker does not answer, or the client's answer cannot be read.
        """
        full_group = self._group(group)
        message = await self._message(topic, msg_id)
        return await consume_directly(self._cluster, full_group, client_id, message)

    async def consume_message_directly_by_all(
        self, group: str, topic: str, msg_id: str
    ) -> dict[str, ConsumedDirectly | RocketLensError]:
        """Let every online client of a group consume a stored message, concurrently.

        Return the result or error of each client, by client id. Raises the errors of
        `consume_message_directly` if the message was not delivered.
        """
        full_group = self._group(group)
        message = await self._message(topic, msg_id)
        return await consume_directly_by_all(self._cluster, full_group, message)

    async def reset_offset_by_time(
        self, group: str, topic: str, time: int | datetime | str, *, is_force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move the running clients of a group to a time; return their new offsets.

        ``time`` is a store time in epoch milliseconds, a datetime or words such as ``2h``, or -1
        for the end. Without ``is_force`` offsets never increase.

        :raises BrokerError: 206 if a broker of the topic has no client of the group: then use
            `reset_offset_by_time_old`.
        :raises TopicNotFound: if no broker has the topic.
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
        """Write a group's offsets at a time to the brokers. The group must not be running.

        Running clients do not read these offsets, and overwrite them. Arguments are as for
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
        """Create or replace a group on all masters, those of a cluster, or one broker.

        Return the addresses of the brokers.

        :raises BadInput: if its name is not a valid group name, or the broker does not exist.
        :raises BrokerError: if a broker refuses; the error's notes name the brokers that succeeded.
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
        """Delete a group, and with ``clean_offset`` its offsets.

        Errors and result are those of `create_and_update_subscription_group`. Its retry topic and
        dead-letter topic stay.
        """
        addresses = await self._masters(cluster_name, broker_addr)
        header = commands.DeleteSubscriptionGroupRequest(
            group_name=self._group(group), clean_offset=clean_offset
        )
        await self._cluster.ask_all(addresses, commands.DELETE_SUBSCRIPTIONGROUP, header)
        return tuple(addresses)

    def _group(self, group: str) -> str:
        return self._full_topic(check_text(group, "group"))

    def _topic(self, topic: str) -> str:
        return self._full_topic(check_text(topic, "topic"))

    async def _message(self, topic: str, msg_id: str) -> MessageExt:
        return await self.source.view_in_topic(self._topic(topic), check_text(msg_id, "msg_id"))

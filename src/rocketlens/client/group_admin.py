"""Consumer groups for `rocketlens.MQAdmin`: members online, progress, and acts on a group.

Names of groups and topics are those of the namespace, if there is one. Messages and results have
full names.
"""

from typing import TYPE_CHECKING

from rocketlens.client.admin.consume_directly import (
    ConsumedDirectly,
    consume_directly,
    consume_directly_by_all,
)
from rocketlens.client.admin.group_calls import (
    connections_of,
    consume_stats,
    producers_of,
    running_info,
)
from rocketlens.client.admin.offset_reset import RollbackStats, reset_running, reset_table
from rocketlens.client.admin.track import MessageTrack, message_tracks
from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.formats.java_properties import loads
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import group_problem
from rocketlens.query.request import moment_ms
from rocketlens.wire.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.tables import ConsumeStats, SubscriptionGroupConfig
from rocketlens.wire.commands.groups import (
    DELETE_SUBSCRIPTIONGROUP,
    GET_BROKER_CONFIG,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    DeleteSubscriptionGroupRequest,
)
from rocketlens.wire.declare import NoFields, write_body

if TYPE_CHECKING:
    from datetime import datetime


class GroupAdmin(ClusterClient):
    """The part of an admin that is about consumer groups."""

    # What is known.

    async def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and what they subscribe to.

        ``broker_addr``: as this broker has them, else as the first broker that has any.

        :raises BrokerError: 206 if none is online.
        :raises TopicNotFound: if no broker knows the group: none of its clients was ever online.
        :raises RemotingError: if no broker answers.
        """
        await self._allow(broker_addr)
        return await connections_of(self._cluster, self._group(group), broker_addr)

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
            self._cluster,
            self._group(group),
            check_text(client_id, "client_id"),
            jstack=jstack,
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
        await self._allow(broker_addr)
        answer = await self._cluster.ask(broker_addr, GET_BROKER_CONFIG, NoFields())
        return loads(answer.body.decode("utf-8", "replace"))

    # What is done.

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
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
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
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
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
            addresses, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoFields(), write_body(config)
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
        header = DeleteSubscriptionGroupRequest(
            group_name=self._group(group), clean_offset=clean_offset
        )
        await self._cluster.ask_all(addresses, DELETE_SUBSCRIPTIONGROUP, header)
        return tuple(addresses)

    # How it is done.

    def _group(self, group: str) -> str:
        """Return the group's name on brokers."""
        return self._full_topic(check_text(group, "group"))

    def _topic(self, topic: str) -> str:
        """Return the topic's name on brokers."""
        return self._full_topic(check_text(topic, "topic"))

    async def _message(self, topic: str, msg_id: str) -> MessageExt:
        return await self.source.view_in_topic(self._topic(topic), check_text(msg_id, "msg_id"))

    async def _allow(self, broker_addr: str | None) -> None:
        """Let a broker be dialled if it is registered."""
        if broker_addr is not None:
            await self._cluster.all_brokers()

    async def _masters(self, cluster_name: str | None, broker_addr: str | None) -> list[str]:
        if cluster_name is not None and broker_addr is not None:
            raise BadInput("cluster_name or broker_addr can be given, not both")
        brokers = await self._cluster.all_brokers(cluster_name)
        masters = [each.master for each in brokers.values() if each.master is not None]
        if broker_addr is not None:
            masters = [each for each in masters if each == broker_addr]
        if not masters:
            where = f"cluster {cluster_name}" if cluster_name else (broker_addr or "the cluster")
            raise BadInput(f"the name servers know no master of {where}")
        return masters

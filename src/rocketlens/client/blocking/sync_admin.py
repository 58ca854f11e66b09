"""``MQAdmin`` for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.client.admin.offset_reset import RollbackStats
from rocketlens.client.admin.track import MessageTrack
from rocketlens.client.blocking.iterators import SyncClusterMessages, SyncTopicTail
from rocketlens.client.blocking.sync_cluster_client import SyncClusterClient
from rocketlens.client.connect.connection_settings import (
    AdminSettings,
    arguments_of,
    takes_settings,
)
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.send_result import SendResult
from rocketlens.errors import RocketLensError
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicsAnswer
from rocketlens.query.options import ScanOptions, TailOptions, takes
from rocketlens.query.request import FindRequest, tail_filter
from rocketlens.wire.bodies.consumer import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.stats import ConsumeStats
from rocketlens.wire.bodies.subscription_group import SubscriptionGroupConfig

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack


class SyncMQAdmin(SyncClusterClient[MQAdmin]):
    """`rocketlens.MQAdmin` with blocking calls; the same arguments, results and errors."""

    @takes_settings(AdminSettings)
    def __init__(self, settings: AdminSettings) -> None:
        super().__init__(lambda: MQAdmin(**arguments_of(settings)))

    def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and what they subscribe to.

        ``broker_addr``: as this broker has them, else as the first broker that has any.

        :raises BrokerError: 206 if none is online.
        :raises TopicNotFound: if no broker knows the group: none of its clients was ever online.
        :raises RemotingError: if no broker answers.
        """
        return self._thread.run(self._client.examine_consumer_connection_info(group, broker_addr))

    def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to the brokers of a topic.

        :raises BrokerError: 1 if there are none.
        :raises TopicNotFound: if no broker has the topic.
        :raises RemotingError: if no broker answers.
        """
        return self._thread.run(self._client.examine_producer_connection_info(group, topic))

    def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """Return what a client of a group is doing, as it says itself; with its threads' stacks.

        :raises BrokerError: 1 if the client is not online, 207 if it does not answer.
        :raises TopicNotFound: if no broker knows the group.
        :raises RemotingError: if a broker does not answer, or the answer cannot be read.
        """
        return self._thread.run(
            self._client.get_consumer_running_info(group, client_id, jstack=jstack)
        )

    def examine_consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the progress of a group in each queue, or in each queue of one topic.

        The table is empty if the group never committed an offset.

        :raises BrokerError: if a broker refuses.
        :raises TopicNotFound: if no broker knows the group.
        :raises RemotingError: if one of its brokers does not answer.
        """
        return self._thread.run(self._client.examine_consume_stats(group, topic))

    def message_track_detail(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Return what each consumer group of a message's topic did with it, as far as it is known.

        A group of which something could not be learnt has the error in its track.

        :raises TopicNotFound: if no broker has the topic.
        :raises RocketLensError: if the groups cannot be listed.
        """
        return self._thread.run(self._client.message_track_detail(message))

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return the configuration of a broker, in its order.

        :raises BrokerError: if it refuses.
        :raises RemotingError: if it does not answer, or is not registered.
        """
        return self._thread.run(self._client.get_broker_config(broker_addr))

    def consume_message_directly(
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
        return self._thread.run(
            self._client.consume_message_directly(group, client_id, topic, msg_id)
        )

    def consume_message_directly_by_all(
        self, group: str, topic: str, msg_id: str
    ) -> dict[str, ConsumedDirectly | RocketLensError]:
        """Let every client of a group that is online consume a stored message, at once.

        Returns the result of each client, or the error with which it failed, by client id. Errors
        as `consume_message_directly`, if nothing was handed over.
        """
        return self._thread.run(self._client.consume_message_directly_by_all(group, topic, msg_id))

    def reset_offset_by_time(
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
        return self._thread.run(
            self._client.reset_offset_by_time(group, topic, time, is_force=is_force)
        )

    def reset_offset_by_time_old(
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
    ) -> tuple[RollbackStats, ...]:
        """Write a group's offsets at a time to the brokers, for when it is not running.

        Clients that are running do not see it, and overwrite it. Arguments as
        `reset_offset_by_time`.

        :raises TopicNotFound: if no broker has the topic.
        :raises RocketLensError: if a broker refuses or does not answer; those before it are done.
        """
        return self._thread.run(
            self._client.reset_offset_by_time_old(group, topic, time, is_force=is_force)
        )

    def create_and_update_subscription_group(
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
        return self._thread.run(
            self._client.create_and_update_subscription_group(
                config, cluster_name=cluster_name, broker_addr=broker_addr
            )
        )

    def delete_subscription_group(
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
        return self._thread.run(
            self._client.delete_subscription_group(
                group, clean_offset=clean_offset, cluster_name=cluster_name, broker_addr=broker_addr
            )
        )

    @takes(ScanOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        exhaustive: bool = False,
        **options: "Unpack[ScanOptions]",
    ) -> SyncClusterMessages:
        """Return an iterator over the messages of a topic or several, or of all.

        The keywords are those of `rocketlens.query.options.ScanOptions`; ``exhaustive`` reads whole
        queues, instead of relying on the order of store times. Any number of messages is read in
        bounded memory, where `find` keeps an answer in it, and the first ones come at once.
        ``record_batches()`` of the result yields them as Arrow record batches, and ``to_arrow()``
        returns a table; ``complete`` and ``coverage`` say what could be read. Messages are in the
        order of their store times, as far as those rise in each queue.

        ``on_event`` runs in the client's thread: it must not block.

        The iteration raises TopicNotFound if the cluster has no topic of a name or none matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        return SyncClusterMessages(
            self._thread,
            self._call(lambda client: client.scan(topic, exhaustive=exhaustive, **options)),
        )

    def scan_for(self, request: FindRequest) -> SyncClusterMessages:
        """Return an iterator over the messages of a request that has no text; as `scan`."""
        return SyncClusterMessages(
            self._thread, self._call(lambda client: client.scan_for(request))
        )

    def resend(self, message: MessageExt) -> SendResult:
        """Send a stored message again: to its own topic, with its properties and unique key.

        Every group of the topic gets it again, and two records have its unique key then.

        :raises BadInput: if it was sent in a transaction, or its body cannot be decompressed.
        :raises TopicNotFound: if no broker has its topic any more.
        :raises BrokerError: if a broker refuses it, and another would, too.
        :raises SendFailed: if all attempts failed; whether it is stored again is not known then.
        """
        return self._thread.run(self._client.resend(message))

    def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues.

        ``topic`` is as `find` has it. A broker that cannot be asked makes the answer incomplete,
        and ``queues`` of its topics None. O(topics * brokers + queues) requests.

        :raises WrongType: if `topic` is of a type that cannot be used.
        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.topics(topic))

    def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one: members, lag, retries, dead letters.

        A broker that cannot be asked makes the answer incomplete and is in its coverage; what it
        could have said of a group is None there. Groups that every broker has from the start are
        returned only if they are asked for. O(groups * brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.groups(group))

    def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group. O(brokers) requests.

        A master that cannot be asked, or does not know the request, makes the answer incomplete.

        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.producers())

    def brokers(self, *, on_answer: Callable[[BrokerStatus], None] | None = None) -> BrokersAnswer:
        """Return the brokers of the cluster: versions, rates, disks, and their lag.

        Each master and slave is asked once, all of them side by side. One that does not answer is
        in the answer with its error, and makes it incomplete. ``on_answer`` is called with each
        when it has answered or failed. O(brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.brokers(on_answer=on_answer))

    def status(self) -> ClusterStatus:
        """Return the state of the cluster: brokers with versions, rates and disks, and groups.

        A broker that does not answer is in it with its error, and makes it incomplete.
        O(brokers * groups) requests.

        :raises RemotingError: if no name server answers.
        """
        return self._thread.run(self._client.status())

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        *,
        follow: bool = False,
        on_event: Callable[[str], None] | None = None,
        **options: "Unpack[TailOptions]",
    ) -> SyncTopicTail:
        """Return an iterator over the newest messages of a topic, oldest of them first.

        With ``follow`` it goes on with the messages that arrive, and ends only when it is closed:
        use it as a context manager. It needs no group, and leaves nothing at the brokers.

        ``newest`` None is all messages, in the order of each queue. The other keywords are those of
        `rocketlens.query.options.TailOptions`: all conditions given must hold. ``on_event`` is
        called with a line for each broker that fails or is back, and for messages that were deleted
        before they were read; without it they are logged. ``complete`` and ``coverage`` of the
        result say what could be read.

        ``on_event`` runs in the client's thread: it must not block.

        The iteration raises TopicNotFound if no broker has the topic, and RemotingError if no name
        server answers.

        :raises BadInput: if a condition is not well-formed, or a number is negative.
        """
        return SyncTopicTail(
            self._thread,
            self._call(
                lambda client: client.tail(
                    topic, newest, follow=follow, on_event=on_event, **options
                )
            ),
        )

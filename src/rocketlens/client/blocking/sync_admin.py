"""``MQAdmin`` for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.client.admin.offset_reset import RollbackStats
from rocketlens.client.admin.track import MessageTrack
from rocketlens.client.blocking.blocking_client import documented_by
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
from rocketlens.wire.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.tables import ConsumeStats, SubscriptionGroupConfig

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack


@documented_by(MQAdmin)
class SyncMQAdmin(SyncClusterClient[MQAdmin]):
    """`rocketlens.MQAdmin` with blocking calls; the same arguments, results and errors."""

    @takes_settings(AdminSettings)
    def __init__(self, settings: AdminSettings) -> None:
        super().__init__(lambda: MQAdmin(**arguments_of(settings)))

    def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and what they subscribe to."""
        return self._thread.run(self._client.examine_consumer_connection_info(group, broker_addr))

    def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to the brokers of a topic."""
        return self._thread.run(self._client.examine_producer_connection_info(group, topic))

    def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """Return what a client of a group is doing, as it says itself; with its threads' stacks."""
        return self._thread.run(
            self._client.get_consumer_running_info(group, client_id, jstack=jstack)
        )

    def examine_consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the progress of a group in each queue, or in each queue of one topic."""
        return self._thread.run(self._client.examine_consume_stats(group, topic))

    def message_track_detail(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Return what each consumer group of a message's topic did with it, as far as it is
        known.
        """
        return self._thread.run(self._client.message_track_detail(message))

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return the configuration of a broker, in its order."""
        return self._thread.run(self._client.get_broker_config(broker_addr))

    def consume_message_directly(
        self, group: str, client_id: str | None, topic: str, msg_id: str
    ) -> ConsumedDirectly:
        """Let a client of a group consume a stored message again; return what it made of it."""
        return self._thread.run(
            self._client.consume_message_directly(group, client_id, topic, msg_id)
        )

    def consume_message_directly_by_all(
        self, group: str, topic: str, msg_id: str
    ) -> dict[str, ConsumedDirectly | RocketLensError]:
        """Let every client of a group that is online consume a stored message, at once."""
        return self._thread.run(self._client.consume_message_directly_by_all(group, topic, msg_id))

    def reset_offset_by_time(
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move the running clients of a group to a time; return where they go on."""
        return self._thread.run(
            self._client.reset_offset_by_time(group, topic, time, is_force=is_force)
        )

    def reset_offset_by_time_old(
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
    ) -> tuple[RollbackStats, ...]:
        """Write a group's offsets at a time to the brokers, for when it is not running."""
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
        """Make a group, or change it as a whole, on all masters, those of a cluster, or one
        broker.
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
        """Delete a group, and with ``clean_offset`` its progress."""
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
        """Return an iterator over the messages of a topic or several, or of all."""
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
        """Send a stored message again: to its own topic, with its properties and unique key."""
        return self._thread.run(self._client.resend(message))

    def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues."""
        return self._thread.run(self._client.topics(topic))

    def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one: members, lag, retries, dead
        letters.
        """
        return self._thread.run(self._client.groups(group))

    def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group. O(brokers) requests."""
        return self._thread.run(self._client.producers())

    def brokers(self, *, on_answer: Callable[[BrokerStatus], None] | None = None) -> BrokersAnswer:
        """Return the brokers of the cluster: versions, rates, disks, and their lag."""
        return self._thread.run(self._client.brokers(on_answer=on_answer))

    def status(self) -> ClusterStatus:
        """Return the state of the cluster: brokers with versions, rates and disks, and groups."""
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
        """Return an iterator over the newest messages of a topic, oldest of them first."""
        return SyncTopicTail(
            self._thread,
            self._call(
                lambda client: client.tail(
                    topic, newest, follow=follow, on_event=on_event, **options
                )
            ),
        )

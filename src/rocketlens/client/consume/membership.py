"""A consumer's membership in its group: heartbeats, the list of members, and its share of queues.

Brokers learn a group's subscriptions from heartbeats, and create its retry topic. A member that
sends none for two minutes is removed. A broker returns the ids of all members (38), and notifies
members of changes (40). Then, and every 20 s, each member computes its share from the queues and
members. For a moment two members may have one queue, or none: messages may then be consumed twice,
but are never skipped. If a topic's queues or members cannot be read, its queues are kept. Sources:
``MQClientInstance``, ``RebalanceImpl``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue, Route
from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import ConsumeService
from rocketlens.client.consume.consumer_settings import in_java_order, java_text_order
from rocketlens.client.consume.pulling import OwnedQueue, Puller
from rocketlens.client.consume.session import GroupSession, TaskSet
from rocketlens.errors import BrokerError, RemotingError, RocketLensError, TopicNotFound
from rocketlens.net.pace import wait_at_most
from rocketlens.wire.bodies.clients import ConsumerData, ConsumerIdList, HeartbeatData
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import NoFields, write_body

logger: Final = logging.getLogger("rocketlens.client")


class GroupMember:
    """One client in one group. ``heartbeat_data`` returns the current content of its heartbeat."""

    def __init__(self, session: GroupSession, heartbeat_data: Callable[[], ConsumerData]) -> None:
        self._session: Final = session
        self._cluster: Final = session.cluster
        self._heartbeat_data: Final = heartbeat_data
        self._known_addresses: set[str] = set()
        self._is_due: Final = asyncio.Event()

    async def send_heartbeats(self) -> None:
        """Send a heartbeat to all masters and slaves of the topics in use."""
        await asyncio.gather(*map(self.send_heartbeat, self._cluster.known_addresses()))

    async def send_heartbeat(self, address: str) -> None:
        """Send a heartbeat to one broker. A failure is logged; the next heartbeat follows soon."""
        self._known_addresses.add(address)
        content = HeartbeatData(
            client_id=self._session.client_id, consumer_datas=(self._heartbeat_data(),)
        )
        try:
            await self._cluster.ask(address, commands.HEART_BEAT, NoFields(), write_body(content))
        except RocketLensError as error:
            logger.warning(
                "group %s: no heartbeat reached %s: %s", self._session.group, address, error
            )

    async def run(self) -> None:
        """Send heartbeats every 30 s, and after `heartbeat_soon`, until cancelled."""
        while True:
            await wait_at_most(limits.HEARTBEAT_S, self._is_due)
            self._is_due.clear()
            await self.send_heartbeats()

    def heartbeat_soon(self) -> None:
        self._is_due.set()

    async def members(self, addresses: Sequence[str]) -> list[str]:
        """Return the client ids of the group in Java's order, from the first broker that answers.

        If a broker does not list this client, it gets a heartbeat and is asked again: it may have
        just started.

        :raises RocketLensError: if no broker answers.
        """
        failure: RocketLensError = TopicNotFound(f"group {self._session.group}: no broker to ask")
        for address in addresses:
            try:
                ids = await self._ids(address)
                if self._session.client_id not in ids:
                    await self.send_heartbeat(address)
                    ids = await self._ids(address)
            except (RemotingError, BrokerError) as error:
                failure = error
            else:
                return sorted(ids, key=java_text_order)
        raise failure

    async def leave(self) -> None:
        """Unregister at all brokers that got a heartbeat, within `limits.MAX_UNREGISTER_S`."""
        header = commands.UnregisterClientRequest(
            client_id=self._session.client_id, consumer_group=self._session.group
        )
        goodbyes = [
            self._cluster.call(
                address, commands.UNREGISTER_CLIENT, header, timeout_s=limits.MAX_UNREGISTER_S
            )
            for address in self._known_addresses
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _ids(self, address: str) -> tuple[str, ...]:
        header = commands.ConsumerGroupRequest(consumer_group=self._session.group)
        command = commands.GET_CONSUMER_LIST_BY_GROUP
        try:
            answer = await self._cluster.ask_for(ConsumerIdList, address, command, header)
        except BrokerError as error:
            # "no consumer for this group": the broker has not seen this client either.
            logger.debug("group %s: %s", self._session.group, error)
            return ()
        return answer.consumer_ids


class QueueShare:
    """The queues of one member: its share of them, or in broadcasting every queue.

    Pulling starts at the group's committed offset, and a queue's offset is committed when it is
    released. ``first_offset`` returns the start in a queue. ``is_wanted`` returns False if the
    queue need not be consumed any more. ``assigned`` returns the queues that the program assigned,
    or None.
    """

    def __init__(
        self,
        session: GroupSession,
        member: GroupMember,
        puller: Puller,
        service: ConsumeService,
        *,
        first_offset: Callable[[MessageQueue], Awaitable[int]],
        is_wanted: Callable[[MessageQueue], bool],
        assigned: Callable[[], frozenset[MessageQueue] | None],
    ) -> None:
        self.puller: Final = puller
        self._session: Final = session
        self._member: Final = member
        self._service: Final = service
        self._first_offset: Final = first_offset
        self._is_wanted: Final = is_wanted
        self._assigned: Final = assigned
        self._leaving: Final[set[MessageQueue]] = set()
        self._tasks: Final = TaskSet(session.group)
        self._is_due: Final = asyncio.Event()
        self._turn: Final = asyncio.Lock()

    async def end(self, queue: MessageQueue) -> None:
        """Stop pulling a queue, and commit its consumed offset."""
        owned = self.puller.drop(queue)
        if owned is None:
            return
        offset = self._session.offsets.pop(queue, None)
        self._leaving.add(queue)
        task = self._tasks.run(self._leave(owned, offset))
        task.add_done_callback(lambda _: self._leaving.discard(queue))
        if not self._service.is_orderly:
            await asyncio.wait([task])

    async def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue this topic's queues at the offsets that an operator chose."""
        changed = []
        for queue, offset in offsets.items():
            owned = self.puller.owned.get(queue)
            if owned is not None and queue.topic == topic and offset >= 0:
                logger.warning(
                    "group %s: %s is reset to offset %d", self._session.group, queue, offset
                )
                self.puller.restart(owned, offset)
                self._session.offsets.put(queue, offset, increase_only=False)
                changed.append((queue, offset))
        await self._session.store.write(changed)

    async def stop(self) -> None:
        """Wait until queues that were ended are released."""
        await self._tasks.wait()

    async def _leave(self, owned: OwnedQueue, offset: int | None) -> None:
        if offset is not None:
            await self._session.store.write([(owned.queue, offset)])
        await self._service.release(owned)

    def rebalance_soon(self) -> None:
        self._is_due.set()

    async def run(self) -> None:
        """Rebalance every 20 s and on `rebalance_soon`, sooner after a failure, until cancelled."""
        pause_s = timing.RETRY_REBALANCE_S
        while True:
            self._is_due.clear()
            if await self.rebalance():
                pause_s, wait_s = timing.RETRY_REBALANCE_S, timing.REBALANCE_S
            else:
                wait_s = pause_s
                pause_s = min(2 * pause_s, timing.REBALANCE_S)
            await wait_at_most(wait_s, self._is_due)

    async def rebalance(self) -> bool:
        """Rebalance all topics once; return True if all succeeded."""
        async with self._turn:
            topics = list(self._session.subscriptions)
            assigned = self._assigned()
            if assigned is not None:
                topics = sorted({queue.topic for queue in assigned.union(self.puller.owned)})
            outcomes = [await self._rebalance_topic(topic) for topic in topics]
        return all(outcomes)

    async def _rebalance_topic(self, topic: str) -> bool:
        try:
            share = await self._share_of(topic)
        except TopicNotFound as error:
            logger.debug("group %s: %s", self._session.group, error)
            return False
        except RocketLensError as error:
            logger.warning("group %s keeps its queues of %s: %s", self._session.group, topic, error)
            return False
        except Exception:
            # A user's strategy can raise anything.
            logger.exception("group %s keeps its queues of %s", self._session.group, topic)
            return False
        owned = [queue for queue in self.puller.owned if queue.topic == topic]
        for queue in owned:
            if queue not in share:
                logger.info("group %s: %s moves to another member", self._session.group, queue)
                await self.end(queue)
        new = [queue for queue in share if queue not in owned]
        # A queue that was released just now may still have messages in a listener.
        free = {queue for queue in new if queue not in self._leaving}
        ours = await self._service.acquire(free) if new else set()
        started = await asyncio.gather(*[self._start(queue) for queue in new if queue in ours])
        return all(started) and len(ours) == len(new)

    async def _start(self, queue: MessageQueue) -> bool:
        self._session.offsets.pop(queue, None)
        try:
            offset = await self._first_offset(queue)
        except (RocketLensError, OSError) as error:
            logger.warning("group %s cannot start %s yet: %s", self._session.group, queue, error)
            return False
        if self._is_wanted(queue):
            self._service.on_pull_start(self.puller.add(queue, offset))
        return True

    async def _share_of(self, topic: str) -> Sequence[MessageQueue]:
        assigned = self._assigned()
        if assigned is not None:
            return [queue for queue in assigned if queue.topic == topic]
        route = await self._session.cluster.route(topic)
        queues = in_java_order(set(route.read_queues))
        allocate = self._session.settings.strategy
        if allocate is None or not queues:
            return queues
        members = await self._member.members(_addresses(route))
        return allocate(self._session.client_id, queues, members)


def _addresses(route: Route) -> list[str]:
    """Return the brokers to ask for a group's members: masters first."""
    brokers = route.brokers.values()
    addresses = [(each != broker.master, each) for broker in brokers for each in broker.in_order]
    return [address for _, address in sorted(addresses, key=itemgetter(0))]

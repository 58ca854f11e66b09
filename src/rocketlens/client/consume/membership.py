"""A consumer as a member of its group: heartbeats, the ids of all members, and its share of queues.

Brokers learn from a heartbeat what the group subscribes to, and create its retry topic; after two
minutes without one a member is gone. A broker returns the ids of all members (38), and says when
they change (40). Then, and every 20 s, each member looks at the queues of each topic and at the
members, and computes its share by itself. So for a moment two members may have one queue, or none
has it: messages may be consumed twice then, and none is skipped. A topic that cannot be looked at
keeps its queues. Sources: ``MQClientInstance``, ``RebalanceImpl``.
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
    """One client in one group; ``described`` returns what a heartbeat says of it now."""

    def __init__(self, session: GroupSession, described: Callable[[], ConsumerData]) -> None:
        self._session: Final = session
        self._cluster: Final = session.cluster
        self._described: Final = described
        self._greeted: set[str] = set()
        self._is_due: Final = asyncio.Event()

    async def beat(self) -> None:
        """Send a heartbeat to each broker of a topic in use, masters and slaves."""
        await asyncio.gather(*map(self.greet, self._cluster.known_addresses()))

    async def greet(self, address: str) -> None:
        """Send a heartbeat to one broker; a failure is logged: the next one is soon."""
        self._greeted.add(address)
        content = HeartbeatData(
            client_id=self._session.client_id, consumer_datas=(self._described(),)
        )
        try:
            await self._cluster.ask(address, commands.HEART_BEAT, NoFields(), write_body(content))
        except RocketLensError as error:
            logger.warning(
                "group %s: no heartbeat reached %s: %s", self._session.group, address, error
            )

    async def run(self) -> None:
        """Send heartbeats every 30 s, or when told to, until cancelled."""
        while True:
            await wait_at_most(limits.HEARTBEAT_S, self._is_due)
            self._is_due.clear()
            await self.beat()

    def beat_soon(self) -> None:
        """Send a heartbeat now: what the group subscribes to has changed."""
        self._is_due.set()

    async def members(self, addresses: Sequence[str]) -> list[str]:
        """Return the client ids of the group as Java sorts them, from the first that answers.

        A broker that does not list this client is greeted, and asked again: it may have just
        started.

        :raises RocketLensError: when no broker answers.
        """
        failure: RocketLensError = TopicNotFound(f"group {self._session.group}: no broker to ask")
        for address in addresses:
            try:
                ids = await self._ids(address)
                if self._session.client_id not in ids:
                    await self.greet(address)
                    ids = await self._ids(address)
            except (RemotingError, BrokerError) as error:
                failure = error
            else:
                return sorted(ids, key=java_text_order)
        raise failure

    async def leave(self) -> None:
        """Unregister from all brokers that know of this member, in a second at most."""
        header = commands.UnregisterClientRequest(
            client_id=self._session.client_id, consumer_group=self._session.group
        )
        goodbyes = [
            self._cluster.call(
                address, commands.UNREGISTER_CLIENT, header, timeout_s=limits.MAX_UNREGISTER_S
            )
            for address in self._greeted
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _ids(self, address: str) -> tuple[str, ...]:
        header = commands.ConsumerGroupRequest(consumer_group=self._session.group)
        command = commands.GET_CONSUMER_LIST_BY_GROUP
        try:
            answer = await self._cluster.ask_for(ConsumerIdList, address, command, header)
        except BrokerError as error:
            # "no consumer for this group": it has not seen this one either.
            logger.debug("group %s: %s", self._session.group, error)
            return ()
        return answer.consumer_ids


class QueueShare:
    """The queues of topics that are this member's: every queue, in broadcasting.

    Pulling a queue starts at the group's committed offset; before it is given up its offset is
    committed. ``first_offset`` returns where to begin in a queue, and ``is_wanted`` whether it
    still is to be consumed. ``assigned`` returns the queues that a program chose, whatever topics
    and members there are, or None.
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
        """Pull a queue no longer, and commit its consumed offset."""
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
        """Consume queues of a topic from other offsets, those that an operator chose."""
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
        """Wait until queues that are given up are released."""
        await self._tasks.wait()

    async def _leave(self, owned: OwnedQueue, offset: int | None) -> None:
        if offset is not None:
            await self._session.store.write([(owned.queue, offset)])
        await self._service.release(owned)

    def look_soon(self) -> None:
        """Look now, and not only when it is time again."""
        self._is_due.set()

    async def run(self) -> None:
        """Look every 20 s, or when told to, until cancelled; sooner while something fails."""
        pause_s = timing.RETRY_REBALANCE_S
        while True:
            self._is_due.clear()
            if await self.look():
                pause_s, wait_s = timing.RETRY_REBALANCE_S, timing.REBALANCE_S
            else:
                wait_s = pause_s
                pause_s = min(2 * pause_s, timing.REBALANCE_S)
            await wait_at_most(wait_s, self._is_due)

    async def look(self) -> bool:
        """Look once at all topics; return whether all of it succeeded."""
        async with self._turn:
            topics = list(self._session.subscriptions)
            assigned = self._assigned()
            if assigned is not None:
                topics = sorted({queue.topic for queue in assigned.union(self.puller.owned)})
            outcomes = [await self._look_at(topic) for topic in topics]
        return all(outcomes)

    async def _look_at(self, topic: str) -> bool:
        try:
            share = await self._share_of(topic)
        except TopicNotFound as error:
            logger.debug("group %s: %s", self._session.group, error)
            return False
        except RocketLensError as error:
            logger.warning("group %s keeps its queues of %s: %s", self._session.group, topic, error)
            return False
        except Exception:
            # A strategy of the program's own may raise anything.
            logger.exception("group %s keeps its queues of %s", self._session.group, topic)
            return False
        owned = [queue for queue in self.puller.owned if queue.topic == topic]
        for queue in owned:
            if queue not in share:
                logger.info("group %s: %s is another's now", self._session.group, queue)
                await self.end(queue)
        new = [queue for queue in share if queue not in owned]
        # One that was this consumer's a moment ago may have messages in a listener still.
        free = {queue for queue in new if queue not in self._leaving}
        ours = await self._service.acquire(free) if new else set()
        begun = await asyncio.gather(*[self._begin(queue) for queue in new if queue in ours])
        return all(begun) and len(ours) == len(new)

    async def _begin(self, queue: MessageQueue) -> bool:
        self._session.offsets.pop(queue, None)
        try:
            offset = await self._first_offset(queue)
        except (RocketLensError, OSError) as error:
            logger.warning("group %s cannot begin %s yet: %s", self._session.group, queue, error)
            return False
        if self._is_wanted(queue):
            self._service.began(self.puller.add(queue, offset))
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
    """Return brokers to ask for the members of a group: masters first."""
    brokers = route.brokers.values()
    addresses = [(each != broker.master, each) for broker in brokers for each in broker.in_order]
    return [address for _, address in sorted(addresses, key=itemgetter(0))]

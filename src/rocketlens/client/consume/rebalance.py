"""Keeps the queues that a consumer pulls those that are its share of the group's.

Every 20 s, and when a broker says that the group's members have changed, each member looks at the
queues of each topic and at the members, and computes its share by itself (`allocation`). So for a
moment two members may have one queue, or none has it: messages may be consumed twice then, and none
is skipped. A topic that cannot be looked at keeps its queues. Source: ``RebalanceImpl``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import MessageQueue, Route
from rocketlens.client.consume import timing
from rocketlens.client.consume.allocation import AllocateStrategy, in_java_order
from rocketlens.client.consume.member import GroupMember
from rocketlens.errors import RocketLensError, TopicNotFound

logger: Final = logging.getLogger("rocketlens.client")


class QueueOwner(Protocol):
    """What begins and ends with queues."""

    def all_queues(self) -> list[MessageQueue]:
        """Return all queues that are pulled."""

    def owned_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that are pulled."""

    async def acquire(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Return those of the queues that can be begun now: ordered ones must be locked."""

    async def begin_queue(self, queue: MessageQueue) -> None:
        """Pull a queue from where the group came to.

        :raises RocketLensError: when that cannot be learnt.
        """

    async def end_queue(self, queue: MessageQueue) -> None:
        """Pull a queue no longer, and commit how far it was consumed."""


class Rebalance:
    """Looks again and again which queues are this member's."""

    def __init__(
        self,
        cluster: ClusterCalls,
        member: GroupMember,
        owner: QueueOwner,
        topics: Callable[[], Iterable[str]],
        allocate: AllocateStrategy | None,
    ) -> None:
        self._cluster: Final = cluster
        self._member: Final = member
        self._owner: Final = owner
        self._topics: Final = topics
        self._allocate: Final = allocate
        """None: every queue is this member's, as in broadcasting."""
        self.assigned: frozenset[MessageQueue] | None = None
        """Queues that a program chose, whatever topics and members there are."""
        self._is_due: Final = asyncio.Event()
        self._turn: Final = asyncio.Lock()

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
            try:
                async with asyncio.timeout(wait_s):
                    await self._is_due.wait()
            except TimeoutError:
                continue

    async def look(self) -> bool:
        """Look once at all topics; return whether all of it succeeded."""
        async with self._turn:
            topics = list(self._topics())
            if self.assigned is not None:
                mine = self.assigned.union(self._owner.all_queues())
                topics = sorted({queue.topic for queue in mine})
            outcomes = [await self._look_at(topic) for topic in topics]
        return all(outcomes)

    async def _look_at(self, topic: str) -> bool:
        try:
            share = await self._share_of(topic)
        except TopicNotFound as error:
            logger.debug("group %s: %s", self._member.group, error)
            return False
        except RocketLensError as error:
            logger.warning("group %s keeps its queues of %s: %s", self._member.group, topic, error)
            return False
        except Exception:
            # A strategy of the program's own may raise anything.
            logger.exception("group %s keeps its queues of %s", self._member.group, topic)
            return False
        owned = self._owner.owned_queues(topic)
        for queue in owned:
            if queue not in share:
                logger.info("group %s: %s is another's now", self._member.group, queue)
                await self._owner.end_queue(queue)
        new = [queue for queue in share if queue not in owned]
        ours = await self._owner.acquire(new) if new else set()
        begun = await asyncio.gather(*[self._begin(queue) for queue in new if queue in ours])
        return all(begun) and len(ours) == len(new)

    async def _begin(self, queue: MessageQueue) -> bool:
        try:
            await self._owner.begin_queue(queue)
        except (RocketLensError, OSError) as error:
            logger.warning("group %s cannot begin %s yet: %s", self._member.group, queue, error)
            return False
        return True

    async def _share_of(self, topic: str) -> Sequence[MessageQueue]:
        if self.assigned is not None:
            return [queue for queue in self.assigned if queue.topic == topic]
        route = await self._cluster.route(topic)
        queues = in_java_order(set(route.read_queues))
        if self._allocate is None or not queues:
            return queues
        members = await self._member.members(_addresses(route))
        return self._allocate(self._member.client_id, queues, members)


def _addresses(route: Route) -> list[str]:
    """Return brokers to ask for the members of a group: masters first."""
    masters = [each.master for each in route.brokers.values() if each.master is not None]
    others = [
        address
        for each in route.brokers.values()
        for address in each.in_order
        if address != each.master
    ]
    return masters + others

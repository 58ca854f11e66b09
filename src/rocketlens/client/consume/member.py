"""A consumer as a member of its group: heartbeats, the ids of all members, and its farewell.

Brokers learn from a heartbeat what the group subscribes to, and make its retry topic; after two
minutes without one a member is gone. Its ids are asked for (38), and brokers say when they change
(40). Source: ``MQClientInstance``.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, request_name
from rocketlens.client.consume.allocation import java_text_order
from rocketlens.errors import (
    BadAnswer,
    BrokerError,
    ProtocolError,
    RemotingError,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.wire.bodies.consumer import ConsumerIdList
from rocketlens.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketlens.wire.commands.client import (
    GET_CONSUMER_LIST_BY_GROUP,
    HEART_BEAT,
    UNREGISTER_CLIENT,
    GetConsumerListByGroupRequest,
    UnregisterClientRequest,
)
from rocketlens.wire.commands.command_table import NoFields
from rocketlens.wire.declare import read_body, write_body

logger: Final = logging.getLogger("rocketlens.client")


class GroupMember:
    """One client in one group; ``described`` returns what a heartbeat says of it now."""

    def __init__(
        self,
        cluster: ClusterCalls,
        client_id: str,
        group: str,
        described: Callable[[], ConsumerData],
    ) -> None:
        self.client_id: Final = client_id
        self.group: Final = group
        self._cluster: Final = cluster
        self._described: Final = described
        self._greeted: set[str] = set()
        self._is_due: Final = asyncio.Event()

    async def beat(self) -> None:
        """Send a heartbeat to each broker of a topic in use, masters and slaves."""
        await asyncio.gather(*map(self.greet, self._cluster.known_addresses()))

    async def greet(self, address: str) -> None:
        """Send a heartbeat to one broker; a failure is logged: the next one is soon."""
        self._greeted.add(address)
        content = HeartbeatData(client_id=self.client_id, consumer_datas=(self._described(),))
        try:
            await self._cluster.ask(address, HEART_BEAT, NoFields(), write_body(content))
        except RocketLensError as error:
            logger.warning("group %s: no heartbeat reached %s: %s", self.group, address, error)

    async def run(self) -> None:
        """Send heartbeats every 30 s, or when told to, until cancelled."""
        while True:
            try:
                # Not wait_for, which loses a cancellation that comes together with the event.
                async with asyncio.timeout(limits.HEARTBEAT_S):
                    await self._is_due.wait()
            except TimeoutError:
                pass
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
        failure: RocketLensError = TopicNotFound(f"group {self.group}: no broker to ask")
        for address in addresses:
            try:
                found = await self._ids(address)
                if self.client_id not in found:
                    await self.greet(address)
                    found = await self._ids(address)
            except (RemotingError, BrokerError) as error:
                failure = error
            else:
                return sorted(found, key=java_text_order)
        raise failure

    async def leave(self) -> None:
        """Unregister from all brokers that know of this member, in a second at most."""
        header = UnregisterClientRequest(client_id=self.client_id, consumer_group=self.group)
        goodbyes = [
            self._cluster.call(
                address, UNREGISTER_CLIENT, header, timeout_s=limits.MAX_UNREGISTER_S
            )
            for address in self._greeted
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _ids(self, address: str) -> tuple[str, ...]:
        header = GetConsumerListByGroupRequest(consumer_group=self.group)
        try:
            answer = await self._cluster.ask(address, GET_CONSUMER_LIST_BY_GROUP, header)
        except BrokerError as error:
            # "no consumer for this group": it has not seen this one either.
            logger.debug("group %s: %s", self.group, error)
            return ()
        try:
            return read_body(ConsumerIdList, answer.body).consumer_ids
        except ProtocolError as error:
            name = request_name(GET_CONSUMER_LIST_BY_GROUP)
            raise BadAnswer(address, name, str(error)) from None

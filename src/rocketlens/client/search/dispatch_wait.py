"""Waits until brokers have dispatched what they had stored when a query was sent.

RocketMQ acknowledges a message when it is in the commit log. Another thread writes the queue and
index entries afterwards: usually within a millisecond, later on a busy broker or one that has just
started. Until then no look-up by key, queue offset or time finds the message, and the response does
not say so. But a broker reports its progress (`getBrokerRuntimeInfo`).
"""

import asyncio
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, runtime_table
from rocketlens.errors import BadAnswer, BrokerError

_LOG_END: Final = "commitLogMaxOffset"
_BEHIND: Final = "dispatchBehindBytes"
_DELAYS_S: Final = (0.002, 0.1)
"""Seconds between two requests to a broker: the first, doubled up to the last."""


class Dispatch:
    """The progress of each broker, for one query: each address is asked once."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster: Final = cluster
        self._turns: dict[str, asyncio.Lock] = {}
        self._problems: dict[str, str | None] = {}

    async def wait(self, address: str) -> str | None:
        """Wait until a broker has dispatched all that it had stored at the first call.

        Return None, or in one line why a look-up after this may miss messages.

        :raises RemotingError: if there is no response.
        """
        async with self._turns.setdefault(address, asyncio.Lock()):
            if address not in self._problems:
                self._problems[address] = await self._wait(address)
        return self._problems[address]

    async def _wait(self, address: str) -> str | None:
        delay_s, longest_s = _DELAYS_S
        waited_s = 0.0
        try:
            stored, dispatched = await self._progress(address)
            while dispatched < stored and waited_s < limits.DISPATCH_WAIT_S:
                await asyncio.sleep(delay_s)
                waited_s += delay_s
                delay_s = min(2 * delay_s, longest_s)
                _, dispatched = await self._progress(address)
        except (BrokerError, BadAnswer, ValueError, KeyError) as error:
            return f"does not say how far it has indexed its log: {error}"
        if dispatched < stored:
            return (
                f"{stored - dispatched} bytes that it had stored are in no queue or index yet: "
                "ask again"
            )
        return None

    async def _progress(self, address: str) -> tuple[int, int]:
        """Return the physical offsets up to which a broker has stored, and dispatched, messages."""
        runtime = await runtime_table(self._cluster, address)
        stored = int(runtime[_LOG_END])
        return stored, stored - int(runtime[_BEHIND])

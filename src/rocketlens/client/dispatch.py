"""Waits until brokers have dispatched what they had stored when a question was asked.

RocketMQ acknowledges a message as soon as it is in the commit log. A thread of its own writes the
queue and index entries afterwards: within a millisecond as a rule, later on a busy broker or one
that has just started. Until then no look-up by key, queue offset or time finds the message, and
the answer does not say so. What a broker says of its own progress does (`getBrokerRuntimeInfo`).
"""

import asyncio
from typing import Final

from rocketlens import limits
from rocketlens.client.cluster import ClusterCalls
from rocketlens.errors import BrokerError
from rocketlens.wire.bodies.key_value import KvTable
from rocketlens.wire.commands.broker import GET_BROKER_RUNTIME_INFO
from rocketlens.wire.commands.command_table import NoFields
from rocketlens.wire.declare import read_body

_LOG_END: Final = "commitLogMaxOffset"
_BEHIND: Final = "dispatchBehindBytes"
_DELAYS_S: Final = (0.002, 0.1)
"""Seconds until a broker is asked again: the first, doubled up to the last."""


class Dispatch:
    """How far each broker came, for one question: each address is asked once."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster: Final = cluster
        self._turns: dict[str, asyncio.Lock] = {}
        self._said: dict[str, str | None] = {}

    async def wait(self, address: str) -> str | None:
        """Wait until a broker has dispatched all that it had stored at the first call.

        Return None, or why a look-up after this may miss messages, in one line.

        :raises RemotingError: when there is no answer.
        """
        async with self._turns.setdefault(address, asyncio.Lock()):
            if address not in self._said:
                self._said[address] = await self._wait(address)
        return self._said[address]

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
        except (BrokerError, ValueError, KeyError) as error:
            return f"does not say how far it has indexed its log: {error}"
        if dispatched < stored:
            return (
                f"{stored - dispatched} bytes that it had stored are in no queue or index yet: "
                "ask again"
            )
        return None

    async def _progress(self, address: str) -> tuple[int, int]:
        """Return up to which physical offset a broker has stored, and dispatched, messages."""
        answer = await self._cluster.ask(address, GET_BROKER_RUNTIME_INFO, NoFields())
        figures = read_body(KvTable, answer.body).table
        stored = int(figures[_LOG_END])
        return stored, stored - int(figures[_BEHIND])

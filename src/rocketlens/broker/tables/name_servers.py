"""The topics that each name server knows of this broker, and requests that wait for it.

Topics announce their changes here, and :mod:`rocketlens.broker.life.registration` sends them.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from rocketlens.net.channel import Channel

MAX_ANNOUNCEMENT_S: Final = 2.0
"""Seconds for which a request that creates a topic waits for name servers to know it: one that does
not answer must not make clients give up the request, after 3 seconds. RocketMQ does not wait.
"""


class NameServerState(Struct):
    """The topics that one name server knows of this broker."""

    channel: Channel | None = None
    """The connection over which it received all topics; it knows them while that is open."""
    counter: int = -1
    """Counter of the last change that it received."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a topic has changed."""
    next: asyncio.Future[None] | None = None
    """Ends with the next registration; None while no request waits for it."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a registration."""

    @property
    def is_up_to_date(self) -> bool:
        """Whether it knows all topics, except those that changed since."""
        return self.channel is not None and self.channel.is_open

    def announced(self) -> asyncio.Future[None]:
        """Return a future that ends with the next registration."""
        if self.next is None:
            self.next = asyncio.get_running_loop().create_future()
        return self.next


class NameServers:
    """The name servers of a broker, and their failures."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.states: Final = {address: NameServerState() for address in addresses}
        self.are_served = False
        """Whether this broker is being registered with them now."""
        self.failures: Final[dict[str, str]] = {}
        """Name servers at which this broker could not be registered, and why."""
        self.name_taken: Final[dict[str, str]] = {}
        """By name server: the address of another broker registered under this broker's name."""
        self.name_taken_times = 0
        self.name_last_taken: tuple[str, int] = "", 0
        """The address of that broker, and when it was first seen."""

    def announce(self) -> asyncio.Future[Any] | None:
        """Announce a change to the name servers.

        The future ends when those that know this broker received it, or when
        ``MAX_ANNOUNCEMENT_S`` are over; None if there are none.
        """
        for state in self.states.values():
            state.wake.set()
        up_to_date = [state for state in self.states.values() if state.is_up_to_date]
        if not self.are_served or not up_to_date:
            return None
        futures = [state.announced() for state in up_to_date]
        return asyncio.ensure_future(asyncio.wait(futures, timeout=MAX_ANNOUNCEMENT_S))

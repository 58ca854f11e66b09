"""Tracks which topic changes each name server has received, and the requests that wait for it.

Topics announce their changes here, and :mod:`rocketlens.broker.life.registration` sends them.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from rocketlens.net.channel import Channel

MAX_ANNOUNCEMENT_S: Final = 2.0
"""Seconds for which a request that creates a topic waits for name servers to receive it. Clients
give up after 3 seconds, also if a name server does not reply. RocketMQ does not wait.
"""


class NameServerState(Struct):
    """The registration state of one name server."""

    channel: Channel | None = None
    """The connection over which it received all topics. It has them as long as that is open."""
    counter: int = -1
    """Counter of the last change that it received."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a topic has changed."""
    next: asyncio.Future[None] | None = None
    """Ends with the next registration; None if no request waits."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a registration."""

    def next_registration(self) -> asyncio.Future[None]:
        if self.next is None:
            self.next = asyncio.get_running_loop().create_future()
        return self.next


class NameServers:
    """The name servers of a broker, and the problems of registration."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.states: Final = {address: NameServerState() for address in addresses}
        self.are_served = False
        """True while this broker registers with them."""
        self.failures: Final[dict[str, str]] = {}
        """Errors of registration, by name server."""
        self.name_taken: Final[dict[str, str]] = {}
        """By name server: the address of another broker registered under this broker's name."""
        self.name_taken_times = 0
        self.name_last_taken: tuple[str, int] = "", 0
        """The address of that broker, and the time at which it was first seen, in ms."""

    def announce(self) -> asyncio.Future[Any] | None:
        """Announce a change to the name servers.

        Return a future that ends when those that know this broker received the change, at most
        ``MAX_ANNOUNCEMENT_S`` later; None if no name server does.
        """
        for state in self.states.values():
            state.wake.set()
        futures = [
            each.next_registration()
            for each in self.states.values()
            if self.are_served and each.channel and each.channel.is_open
        ]
        if not futures:
            return None
        return asyncio.ensure_future(asyncio.wait(futures, timeout=MAX_ANNOUNCEMENT_S))

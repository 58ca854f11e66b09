"""Chooses the connections to close when there are too many.

First those of the address with the largest number. Of these, first those that never sent a request,
then those that wait for no response, and each time the one that was silent for longest. A
connection that was active in the last two seconds is not closed; if all were, the new one is
refused.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketlens import limits

if TYPE_CHECKING:
    from rocketlens.net.channel import Channel


def host_of(channel: "Channel") -> str:
    """Return the address of a channel's peer, without the port."""
    return channel.address.rpartition(":")[0].strip("[]")


def idle_channels(channels: Iterable["Channel"], now_s: float) -> "list[Channel]":
    """Return the connections that may be closed for others, the first to close last. O(n log n)."""
    counts: Counter[str] = Counter()
    idle: defaultdict[str, list[Channel]] = defaultdict(list)
    for channel in channels:
        host = host_of(channel)
        counts[host] += 1
        if now_s - channel.last_active_s >= limits.MIN_IDLE_S:
            idle[host].append(channel)
    ranked: list[tuple[int, int, Channel]] = []
    for host, some in idle.items():
        some.sort(key=_worth)
        # Number of connections of its address when its turn comes.
        ranked += [(counts[host] - n, n, channel) for n, channel in enumerate(some)]
    ranked.sort(key=lambda row: (row[0], -row[1]))
    return [channel for _, _, channel in ranked]


def _worth(channel: "Channel") -> tuple[bool, bool, float]:
    return (
        channel.events_received > 0,
        channel.connection.unanswered > 0,
        channel.last_active_s,
    )

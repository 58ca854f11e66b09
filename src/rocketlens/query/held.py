"""The messages of an answer on their way to it: as many as it may hold, each once.

Kept are the newest, or the oldest. What is left out is neither decompressed nor held: a body of
64 KB can grow to 64 MiB, so whether a message would be kept is decided by its time before its body
is looked at.
"""

import sys
from heapq import heappop, heappush
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.message import Host, MessageExt


class _Rank(NamedTuple):
    """By what messages are ordered, and told apart: what is smaller is left out first."""

    store_timestamp_ms: int
    store_host: Host
    physical_offset: int


class Held:
    """The newest ``max_num`` messages (None: all), and no more than an answer can hold.

    With ``oldest`` the oldest are kept instead. ``truncated`` says whether any was left out.
    """

    def __init__(self, max_num: int | None, *, oldest: bool = False) -> None:
        """Hold nothing."""
        self.max_num: Final = max_num
        self.truncated = False
        self._sign: Final = -1 if oldest else 1
        self._messages: dict[_Rank, MessageExt] = {}
        self._ranks: list[_Rank] = []
        """A heap."""
        self._held_bytes = 0
        self._left_out: _Rank | None = None
        """The greatest rank that was left out: nothing below it is wanted any more."""

    def __len__(self) -> int:
        """Count the messages."""
        return len(self._messages)

    def is_past(self, store_timestamp_ms: int) -> bool:
        """Return whether nothing from that time or further on would be kept any more."""
        if self._left_out is None:
            return False
        return self._sign * store_timestamp_ms < self._left_out.store_timestamp_ms

    def take(self, record: Record) -> None:
        """Keep a record's message, if it is to be kept."""
        rank = self._rank(record)
        if rank not in self._messages and self._wants(rank):
            self._add(rank, message_of(record))

    def add(self, message: MessageExt) -> None:
        """Keep a message, if it is to be kept."""
        rank = self._rank(message)
        if rank not in self._messages and self._wants(rank):
            self._add(rank, message)

    def in_order(self) -> tuple[MessageExt, ...]:
        """Return the messages by store time, then broker by broker in the order of their logs."""
        return tuple(
            sorted(
                self._messages.values(),
                key=lambda each: (each.store_timestamp_ms, each.store_host, each.physical_offset),
            )
        )

    def _rank(self, stored: Record | MessageExt) -> _Rank:
        sign = self._sign
        return _Rank(
            sign * stored.store_timestamp_ms, stored.store_host, sign * stored.physical_offset
        )

    def _wants(self, rank: _Rank) -> bool:
        is_wanted = self._left_out is None or rank > self._left_out
        self.truncated = self.truncated or not is_wanted
        return is_wanted

    def _add(self, rank: _Rank, message: MessageExt) -> None:
        self._messages[rank] = message
        heappush(self._ranks, rank)
        self._held_bytes += held_bytes(message)
        most = len(self._ranks) if self.max_num is None else self.max_num
        while len(self._ranks) > most or self._held_bytes > limits.MAX_ANSWER_BYTES:
            left_out = heappop(self._ranks)
            self._held_bytes -= held_bytes(self._messages.pop(left_out))
            self._left_out = left_out if self._left_out is None else max(self._left_out, left_out)
            self.truncated = True


def held_bytes(message: MessageExt) -> int:
    """Return about how many bytes a message takes in memory: O(properties and keys).

    Properties of 32 KB can be 8,000 texts, and those take ten times as much.
    """
    size = limits.MESSAGE_OVERHEAD_BYTES + len(message.body)
    for name, value in message.properties.items():
        size += limits.TEXT_OVERHEAD_BYTES + sys.getsizeof(name) + sys.getsizeof(value)
    for key in message.keys:
        size += sys.getsizeof(key)
    return size

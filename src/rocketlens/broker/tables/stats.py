"""Counts and rates of a broker: messages stored and delivered, pulls.

Source: ``StoreStatsService``, ``BrokerStats``.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import Struct, field

SPANS_S: Final = (10, 60, 600)
"""Spans of the averages, in seconds."""


class _Sample(NamedTuple):
    at_ms: int
    put_total: int
    get_total: int
    get_found: int
    get_missed: int


class BrokerStats(Struct):
    """Counts since the start. Call ``sample`` once a second; rates are computed from samples."""

    clock: Callable[[], int]
    started_ms: int = 0
    put_total: int = 0
    get_total: int = 0
    """Messages delivered to consumers."""
    get_found: int = 0
    """Pulls that returned messages."""
    get_missed: int = 0
    """Pulls that returned no message."""
    put_until_midnight: int = 0
    get_until_midnight: int = 0
    """Totals at the last midnight of the local time zone."""
    put_until_previous_midnight: int = 0
    get_until_previous_midnight: int = 0
    """Totals at the midnight before."""
    disk_use: dict[str, str] = field(default_factory=dict)
    """Disk usage in the form that tools get, from the last measurement."""
    disk_measured_ms: int = 0
    _day: int = 0
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=SPANS_S[-1] + 1))

    def __post_init__(self) -> None:
        self.started_ms = self.clock()
        self._day = _day_of(self.started_ms)
        self.sample()

    def sample(self) -> None:
        """Record the current counts, and at midnight the totals."""
        now_ms = self.clock()
        self._samples.append(self._counts(now_ms))
        if _day_of(now_ms) != self._day:
            self._day = _day_of(now_ms)
            self.put_until_previous_midnight = self.put_until_midnight
            self.get_until_previous_midnight = self.get_until_midnight
            self.put_until_midnight, self.get_until_midnight = self.put_total, self.get_total

    def rates(self) -> dict[str, str]:
        """Return rates per second, by RocketMQ's names (28).

        Each value has the averages of the last 10 s, 60 s and 600 s: ``"12.5 3.0 1.1"``.
        """
        delivered = self._rates(lambda sample: sample.get_total)
        return {
            "putTps": self._rates(lambda sample: sample.put_total),
            "getTransferredTps": delivered,
            "getTransferedTps": delivered,
            "getFoundTps": self._rates(lambda sample: sample.get_found),
            "getMissTps": self._rates(lambda sample: sample.get_missed),
            "getTotalTps": self._rates(lambda sample: sample.get_found + sample.get_missed),
        }

    def _counts(self, now_ms: int) -> _Sample:
        return _Sample(now_ms, self.put_total, self.get_total, self.get_found, self.get_missed)

    def _rates(self, count: Callable[[_Sample], int]) -> str:
        now = self._counts(self.clock())
        return " ".join(str(self._rate(now, count, span_s)) for span_s in SPANS_S)

    def _rate(self, now: _Sample, count: Callable[[_Sample], int], span_s: int) -> float:
        oldest = self._samples[max(len(self._samples) - 1 - span_s, 0)]
        elapsed_ms = now.at_ms - oldest.at_ms
        return (count(now) - count(oldest)) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


def _day_of(now_ms: int) -> int:
    return datetime.fromtimestamp(now_ms / 1000).astimezone().toordinal()

"""What a broker counts: messages put and got, and their rates over time.

Source: ``StoreStatsService``, ``BrokerStats``.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

SPANS_S: Final = (10, 60, 600)
"""Rates are given over so many seconds."""


class _Sample(NamedTuple):
    at_ms: int
    put: int
    got: int
    found: int
    missed: int


@dataclass(slots=True)
class Figures:
    """Counts since the start. ``sample`` once a second gives them a history."""

    clock: Callable[[], int]
    started_ms: int = 0
    put: int = 0
    """Messages stored."""
    put_bytes: int = 0
    got: int = 0
    """Messages handed to consumers."""
    found: int = 0
    """Pulls that found something."""
    missed: int = 0
    put_morning: int = 0
    got_morning: int = 0
    put_yesterday: int = 0
    got_yesterday: int = 0
    """Messages until the last midnight, and until the one before it."""
    _day: int = 0
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=SPANS_S[-1] + 1))

    def __post_init__(self) -> None:
        """Begin now."""
        self.started_ms = self.clock()
        self._day = _day_of(self.started_ms)
        self.sample()

    def sample(self) -> None:
        """Note the counts of now."""
        now_ms = self.clock()
        self._samples.append(_Sample(now_ms, self.put, self.got, self.found, self.missed))
        if _day_of(now_ms) != self._day:
            self._day = _day_of(now_ms)
            self.put_yesterday, self.put_morning = self.put_morning, self.put
            self.got_yesterday, self.got_morning = self.got_morning, self.got

    def put_rates(self) -> str:
        """Return messages put in a second, over 10 s, 60 s and 600 s: ``"12.5 3.0 1.1"``."""
        return self._rates(lambda sample: sample.put)

    def got_rates(self) -> str:
        """Return messages handed out in a second."""
        return self._rates(lambda sample: sample.got)

    def found_rates(self) -> str:
        """Return pulls in a second that found something."""
        return self._rates(lambda sample: sample.found)

    def missed_rates(self) -> str:
        """Return pulls in a second that found nothing."""
        return self._rates(lambda sample: sample.missed)

    def asked_rates(self) -> str:
        """Return pulls in a second."""
        return self._rates(lambda sample: sample.found + sample.missed)

    def _rates(self, count: Callable[[_Sample], int]) -> str:
        now = _Sample(self.clock(), self.put, self.got, self.found, self.missed)
        return " ".join(str(self._rate(now, count, span_s)) for span_s in SPANS_S)

    def _rate(self, now: _Sample, count: Callable[[_Sample], int], span_s: int) -> float:
        """Return the rate since the oldest sample that is in the span."""
        then = self._samples[max(len(self._samples) - 1 - span_s, 0)]
        passed_ms = now.at_ms - then.at_ms
        return (count(now) - count(then)) * 1000 / passed_ms if passed_ms > 0 else 0.0


def _day_of(now_ms: int) -> int:
    """Number the day in the local zone."""
    return datetime.fromtimestamp(now_ms / 1000).astimezone().toordinal()

"""How fast a consumer is in each topic: what RocketMQ's tools show of it (ConsumeStatus).

Rates and times are of the last minute, failures of the last hour. Source:
``ConsumerStatsManager``.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketlens.wire.bodies.clients import ConsumeStatus

_SLOT_S: Final = 10.0
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0


@dataclass(slots=True)
class _Slot:
    """The counts of ten seconds."""

    begins_s: float
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    batches: int = 0
    consume_s: float = 0.0
    consumed: int = 0
    failed: int = 0


class ConsumeRates:
    """Counts of one topic; ``clock`` returns seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._slots: deque[_Slot] = deque()

    def pulled(self, messages: int, seconds: float) -> None:
        """Count a pull that brought messages."""
        slot = self._slot()
        slot.pulls += 1
        slot.pulled += messages
        slot.pull_s += seconds

    def consumed(self, succeeded: int, failed: int, seconds: float) -> None:
        """Count a call of a listener."""
        slot = self._slot()
        slot.batches += 1
        slot.consume_s += seconds
        slot.consumed += succeeded
        slot.failed += failed

    def status(self) -> ConsumeStatus:
        """Return what the tools show."""
        now_s = self._clock()
        recent = [each for each in self._slots if each.begins_s > now_s - _MINUTE_S]
        pulls = sum(each.pulls for each in recent)
        batches = sum(each.batches for each in recent)
        return ConsumeStatus(
            pull_rt=1000 * sum(each.pull_s for each in recent) / pulls if pulls else 0.0,
            pull_tps=sum(each.pulled for each in recent) / _MINUTE_S,
            consume_rt=1000 * sum(each.consume_s for each in recent) / batches if batches else 0.0,
            consume_ok_tps=sum(each.consumed for each in recent) / _MINUTE_S,
            consume_failed_tps=sum(each.failed for each in recent) / _MINUTE_S,
            consume_failed_msgs=sum(
                each.failed for each in self._slots if each.begins_s > now_s - _HOUR_S
            ),
        )

    def _slot(self) -> _Slot:
        now_s = self._clock()
        if not self._slots or now_s - self._slots[-1].begins_s >= _SLOT_S:
            self._slots.append(_Slot(now_s))
            while self._slots[0].begins_s < now_s - _HOUR_S:
                self._slots.popleft()
        return self._slots[-1]

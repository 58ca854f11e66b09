"""Groups the dead letters of a consumer group by cause, for ``dlq list`` and for metrics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from prometheus_client import Metric

MAX_CAUSES_READ: Final = 1_000
"""Newest dead letters of a group whose causes are read, unless a filter is given."""
MAX_CAUSE_LABELS: Final = 20
"""Causes of a group that are exported, the most frequent ones. The rest are combined."""
_HOUR_MS: Final = 3_600_000
_OTHERS: Final = "others"


class LetterCause(Struct):
    """The dead letters of a group with one cause."""

    cause: str
    messages: int = 0
    last_hour: int = 0
    sent_again: int = 0
    """Dead letters that jobs sent again, or may have sent."""
    oldest_ms: int = 2**63
    newest_ms: int = 0

    def add(self, other: "LetterCause") -> None:
        self.messages += other.messages
        self.last_hour += other.last_hour
        self.sent_again += other.sent_again
        self.oldest_ms = min(self.oldest_ms, other.oldest_ms)
        self.newest_ms = max(self.newest_ms, other.newest_ms)


class LetterCauses:
    """Counts dead letters by cause; recent ones are those of the hour before ``now_ms``."""

    def __init__(self, now_ms: int) -> None:
        self._hour_begin_ms: Final = now_ms - _HOUR_MS
        self._causes: Final[dict[str, LetterCause]] = {}

    def add(self, cause: str, stored_ms: int, *, was_sent: bool = False) -> None:
        if cause not in self._causes and len(self._causes) >= MAX_CAUSES_READ:
            cause = _OTHERS
        is_recent = stored_ms >= self._hour_begin_ms
        one = LetterCause(cause, 1, is_recent, was_sent, stored_ms, stored_ms)
        self._causes.setdefault(cause, LetterCause(cause)).add(one)

    def most(self, count: int) -> list[LetterCause]:
        """Return the causes by descending number; those after ``count`` are combined."""
        causes = self._causes.values()
        ranked = sorted(
            causes, key=lambda each: (each.cause == _OTHERS, -each.messages, each.cause)
        )
        if len(ranked) > count:
            others = LetterCause(_OTHERS)
            for each in ranked[count:]:
                others.add(each)
            ranked[count:] = [others]
        return ranked


_VALUES: Final = (
    ("", "Dead letters of a cause", "messages"),
    ("_last_hour", "Dead letters of a cause that came in the last hour", "last_hour"),
    ("_oldest_timestamp_seconds", "When the oldest of a cause was stored", "oldest_ms"),
    ("_newest_timestamp_seconds", "When the newest of a cause was stored", "newest_ms"),
)


def cause_metrics(
    groups: Iterable[tuple[str, Iterable[LetterCause]]],
    names: tuple[str, ...] = (),
    values: tuple[str, ...] = (),
) -> "list[Metric]":
    """Return the Prometheus metrics of groups; ``names`` and ``values`` are additional labels."""
    from prometheus_client.core import GaugeMetricFamily

    rows = [(group, each) for group, causes in groups for each in causes]
    metrics: list[Metric] = []
    for suffix, meaning, field in _VALUES:
        text = f"{meaning}, of the newest {MAX_CAUSES_READ:,} of a group."
        name = f"rocketlens_dead_letters_by_cause{suffix}"
        metric = GaugeMetricFamily(name, text, labels=(*names, "consumer_group", "cause"))
        for group, each in rows:
            number = getattr(each, field) / (1000 if field.endswith("_ms") else 1)
            metric.add_metric((*values, group, each.cause), number)
        metrics.append(metric)
    return metrics

"""Chooses the next queue of a producer: round robin, avoiding brokers that just failed.

Without latency isolation, as is RocketMQ's default, only the brokers of the same send's failed
attempts are avoided (RocketMQ: only the last one, so that of three brokers it may never try the
one that is well). With it, a broker that was slow or failed is left alone for a while:

===============  ====  ====  ====  ====  ====  ====  ======
took (s)         0.05  0.1   0.55  1.8   3     5     15
left alone (s)   0     0     2     5     6     10    30
===============  ====  ====  ====  ====  ====  ====  ======

A failed attempt counts as 10 s. When all are to be left alone, the one that may be used soonest is
taken. Source: ``MQFaultStrategy``, ``TopicPublishInfo`` of 5.x.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from rocketlens.client.connect.route import MessageQueue

LEFT_ALONE_S: Final = (
    (15.0, 30.0),
    (5.0, 10.0),
    (3.0, 6.0),
    (1.8, 5.0),
    (0.55, 2.0),
)
"""Latency, and for how long a broker is then avoided, the longest first."""
FAILED_S: Final = 10.0


class QueueChooser:
    """Chooses queues of all topics of one producer."""

    def __init__(
        self, *, isolates_latency: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._isolates_latency: Final = isolates_latency
        self._clock: Final = clock
        self._counters: dict[str, itertools.count[int]] = {}
        self._back_at_s: dict[str, float] = {}

    def choose(self, queues: Sequence[MessageQueue], tried: Sequence[str] = ()) -> MessageQueue:
        """Return the next queue, on a broker that is not in ``tried`` if there is one.

        ``tried`` are the brokers of this send's failed attempts, the last one last; once all have
        been tried, another than the last is taken. ``queues`` are those of one topic, and there is
        at least one. O(queues) at worst.
        """
        topic = queues[0].topic
        counter = self._counters.get(topic)
        if counter is None:
            # Producers that start together must not all begin with the same queue.
            counter = self._counters[topic] = itertools.count(secrets.randbelow(1 << 16))
        start = next(counter) % len(queues)
        if not tried and not self._back_at_s:
            return queues[start]
        now_s = self._clock()

        def reluctance(queue: MessageQueue) -> tuple[bool, bool, float]:
            name = queue.broker_name
            return (
                name in tried[-1:],
                name in tried,
                max(0.0, self._back_at_s.get(name, now_s) - now_s),
            )

        # Of equal ones min() returns the first, which is the next in turn.
        return min([*queues[start:], *queues[:start]], key=reluctance)

    def took(self, broker_name: str, seconds: float, *, failed: bool) -> None:
        """Record the latency and outcome of an attempt."""
        if not self._isolates_latency:
            return
        latency_s = FAILED_S if failed else seconds
        alone_s = next((rest for least, rest in LEFT_ALONE_S if latency_s >= least), 0.0)
        if alone_s:
            self._back_at_s[broker_name] = self._clock() + alone_s
        else:
            self._back_at_s.pop(broker_name, None)

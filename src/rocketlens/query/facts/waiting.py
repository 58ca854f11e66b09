"""Counts the messages that brokers keep for later, by their target topic.

Delivered and recalled messages stay in the log, so a message waits if it is due later than now and
is not recalled. In a store, "now" is the time of the newest message, as its broker can be down. A
limited number of the newest messages is checked in each topic with kept messages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rocketlens.model import properties as props
from rocketlens.model.answer import Answer
from rocketlens.model.life import LifeState, life_of
from rocketlens.model.rocketmq import DELAY_TOPIC, TIMER_TOPIC

MAX_TIMER_MS: Final = 3 * 86_400_000
"""Assumed maximum delay of a timed message. RocketMQ: timerMaxDelaySec (default 3 days)."""
MAX_DELAY_MS: Final = 2 * 3_600_000
"""Assumed maximum delay of a delayed message. RocketMQ: messageDelayLevel (default up to 2h)."""
KEPT_FOR_MS: Final = {DELAY_TOPIC: MAX_DELAY_MS, TIMER_TOPIC: MAX_TIMER_MS}
"""The default maximum delay of messages in each topic."""


class WaitingMessages(NamedTuple):
    """The number of messages that wait for each topic."""

    counts: Mapping[str, int]
    is_exact: bool
    """Whether all waiting messages were counted."""


def waiting_messages(answers: Iterable[Answer], now_ms: int) -> WaitingMessages | None:
    """Return how many messages are due later than ``now_ms``; None if an answer is incomplete.

    ``answers`` has the newest messages of each topic for waiting, up to
    `rocketlens.limits.MAX_WAITING_MESSAGES`.
    """
    counts: Counter[str] = Counter()
    is_exact = True
    for answer in answers:
        if not answer.complete:
            return None
        recalled = {each.properties.get(props.TIMER_DELETED_KEY) for each in answer} - {None}
        for message in answer:
            life = life_of(message)
            is_timed = life.state is LifeState.TIMED and message.unique_key not in recalled
            is_later = (life.next_ms or 0) > now_ms
            if is_later and (is_timed or life.state is LifeState.DELAYED):
                counts[message.properties.get(props.REAL_TOPIC, "")] += 1
        oldest = min((each.store_timestamp_ms for each in answer), default=0)
        longest = max((KEPT_FOR_MS.get(each.topic, 0) for each in answer), default=0)
        # Messages that were left out are older.
        is_exact &= not answer.truncated or oldest + longest <= now_ms
    return WaitingMessages(counts, is_exact)


def newest_ms(answers: Iterable[Answer], others: Iterable[int | None]) -> int:
    """Return the newest store time of messages and of other times, in epoch milliseconds."""
    times = [each.store_timestamp_ms for answer in answers for each in answer]
    return max((*times, *(each for each in others if each is not None)), default=0)

"""Counts the messages that brokers keep for later, by the topics that they are for.

Those that were delivered or recalled stay in the log, so a message waits if it is due later than
now and not recalled; in the
files of a store, later than the newest message there, because no broker may run on it.
The newest messages of each topic in which brokers keep them are looked at, up to a bound.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rocketlens.model import properties as props
from rocketlens.model.answer import Answer
from rocketlens.model.life import LifeState, life_of
from rocketlens.model.rocketmq import DELAY_TOPIC, TIMER_TOPIC

MAX_TIMER_MS: Final = 3 * 86_400_000
"""How long a timer is taken to wait. RocketMQ: timerMaxDelaySec (default 3 days)."""
MAX_DELAY_MS: Final = 2 * 3_600_000
"""How long a delayed message is taken to wait. RocketMQ: messageDelayLevel, by default up to 2h."""
KEPT_FOR_MS: Final = {DELAY_TOPIC: MAX_DELAY_MS, TIMER_TOPIC: MAX_TIMER_MS}
"""How long a message waits at most by default, by the topic in which it does."""


class WaitingMessages(NamedTuple):
    """The number of messages that wait for each topic."""

    counts: Mapping[str, int]
    is_exact: bool
    """Whether these are all, and not only those that were looked at."""


def waiting_messages(answers: Iterable[Answer], now_ms: int) -> WaitingMessages | None:
    """Return how many of the newest messages of the topics for waiting are due later; None if not
    all of these topics could be searched.

    ``answers`` has those of each topic, up to `rocketlens.limits.MAX_WAITING_MESSAGES`.
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
        # What is left out is older.
        is_exact &= not answer.truncated or oldest + longest <= now_ms
    return WaitingMessages(counts, is_exact)


def newest_ms(answers: Iterable[Answer], others: Iterable[int | None]) -> int:
    """Return the newest store time of messages and of others, in epoch milliseconds."""
    times = [each.store_timestamp_ms for answer in answers for each in answer]
    return max((*times, *(each for each in others if each is not None)), default=0)

"""When a message that a broker keeps for later is due, or was delivered.

===========================  ====================================================================
a copy in                    is due
===========================  ====================================================================
``SCHEDULE_TOPIC_XXXX``      the delay of its level after it was stored, by default: a broker can
                             have other delays (``messageDelayLevel``)
``rmq_sys_wheel_timer``      at its property ``TIMER_OUT_MS``
===========================  ====================================================================
"""

from collections.abc import Iterable
from typing import Final

from rocketlens import limits
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import (
    DELAY_LEVELS,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    parse_delay_levels,
)
from rocketlens.model.text.counted import span_text
from rocketlens.model.text.sentences import Sentence, TimeText

WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_DELAYS_MS: Final = parse_delay_levels(DELAY_LEVELS)
_MAX_DIGITS: Final = 19


def due_ms(copy: MessageExt) -> int | None:
    """Return when a copy is due, in epoch milliseconds; None if that is not known, or it waits for
    nothing.
    """
    if copy.topic == TIMER_TOPIC:
        due = _number(copy.properties.get(props.TIMER_OUT_MS))
        return due if due is not None and due <= limits.MAX_TIMESTAMP_MS else None
    level = props.delay_level(copy.properties) if copy.topic == SCHEDULE_TOPIC else 0
    if not 0 < level < len(_DELAYS_MS):
        return None
    return copy.store_timestamp_ms + _DELAYS_MS[level]


def delivered_ms(copy: MessageExt, others: Iterable[MessageExt]) -> int | None:
    """Return when a copy that waited was delivered, in epoch milliseconds, as others show.

    That is the store time of the first record in the topic it waited for, of the same retry.
    """
    topic, number = copy.properties.get(props.REAL_TOPIC), copy.reconsume_times
    times = [
        each.store_timestamp_ms
        for each in others
        if (each.topic, each.reconsume_times) == (topic, number)
        and each.store_timestamp_ms >= copy.store_timestamp_ms
    ]
    return min(times, default=None)


def due_text(copy: MessageExt, others: Iterable[MessageExt], now_ms: int) -> Sentence | None:
    """Return in words when a copy is due, was due, or was delivered; None if it never waited.

    ``others`` are other copies of the message. Times are local, with their zone.
    """
    if copy.topic not in WAITING_TOPICS:
        return None
    level = _level_text(copy) if copy.topic == SCHEDULE_TOPIC else ""
    delivered = delivered_ms(copy, others)
    if delivered is not None:
        return Sentence("delivered_at", time=_time_text(delivered), level=level)
    due = due_ms(copy)
    if due is None:
        return Sentence("due_unknown", level=level)
    name = "due_in" if due > now_ms else "due_ago"
    return Sentence(name, time=_time_text(due), span=span_text(abs(due - now_ms)), level=level)


def _level_text(copy: MessageExt) -> Sentence:
    number = props.delay_level(copy.properties)
    if 0 < number < len(_DELAYS_MS):
        return Sentence("at_level_for", level=number, delay=DELAY_LEVELS.split()[number - 1])
    return Sentence("at_level", level=copy.properties.get(props.DELAY, "?"))


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if text and is_number and len(text) <= _MAX_DIGITS else None


def _time_text(epoch_ms: int) -> TimeText:
    # Late: it is needed for few messages.
    from datetime import datetime

    try:
        local = datetime.fromtimestamp(epoch_ms / 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        return TimeText(f"{epoch_ms} ms", epoch_ms)
    return TimeText(local.isoformat(" ", "seconds"), epoch_ms)

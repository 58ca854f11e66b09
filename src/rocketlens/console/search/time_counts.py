"""How many of the messages of a page are of each time: the bars above its rows.

Bars are of equal lengths that begin at round times, as a clock has them in UTC. They go from the
oldest to the newest message, or over all of the time that was asked for if the page has all that
was found in it, and they are of several bars there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocketlens import limits
from rocketlens.console.search.question import Question
from rocketlens.console.values import MessageRow, TimeCountsValue
from rocketlens.console.zones import time_text, zone_named

_SECOND_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(each * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * 60 * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * 3_600 * _SECOND_MS for each in (1, 2, 3, 6, 12)),
    *(each * _DAY_MS for each in (1, 2, 7, 14, 30, 90, 365)),
)
"""Lengths of a bar. Longer ones are multiples of the last."""


def time_counts(
    rows: Sequence[MessageRow], question: Question, *, is_whole: bool
) -> TimeCountsValue | None:
    """Return the counts of the rows of a page; None if there is one bar or none.

    ``is_whole``: the page has all that was found.
    """
    times = [each.store_timestamp_ms for each in rows]
    if not times:
        return None
    own = min(times), max(times)
    asked = (
        own[0] if question.begin is None else min(own[0], question.begin),
        own[1] if question.end is None else max(own[1], question.end),
    )
    # In a long time that was asked for, all of them can be in one bar.
    return (_counts(times, *asked) if is_whole else None) or _counts(times, *own)


def _counts(times: Sequence[int], low: int, high: int) -> TimeCountsValue | None:
    step = _step_for(high - low)
    first = low // step
    counted = Counter(each // step - first for each in times)
    if len(counted) < 2:
        return None
    length = high // step - first + 1
    return TimeCountsValue(
        begin_ms=first * step, step_ms=step, counts=[counted[number] for number in range(length)]
    )


def _step_for(span_ms: int) -> int:
    """Return the shortest length of a bar of which not too many are needed."""
    # One more can be begun at either end.
    shortest = span_ms // (limits.MAX_TIME_BARS - 1) + 1
    longest = _STEPS_MS[-1]
    return next((each for each in _STEPS_MS if each >= shortest), -(-shortest // longest) * longest)


def within(question: Question, begin_ms: int, end_ms: int, zone_name: str) -> Question:
    """Return a question for the messages of a part of its time, both ends included, as its reader
    writes times.
    """
    begin = max(begin_ms, question.begin or 0)
    end = end_ms if question.end is None else min(end_ms, question.end)
    zone = zone_named(zone_name)
    return replace(
        question,
        since=time_text(begin, zone),
        until=time_text(end, zone),
        begin=begin,
        end=end,
        zone_name=zone_name,
        cursor=None,
    )

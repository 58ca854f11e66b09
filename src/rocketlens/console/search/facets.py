"""Facets: how many of the messages of a page have each topic and each tag, and are of each hour.

They are counted in the rows that are shown, so they tell no more than these, and what is masked
there is masked here. A facet with one value is left out: it would narrow nothing.

The bars above the rows count them by time. Bars are of equal lengths that begin at round times, as
a clock has them in UTC. They go from the oldest to the newest message, or over all of the time that
was asked for if the page has all that was found in it, and they are of several bars there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocketlens import limits
from rocketlens.console.preferences import time_text, zone_named
from rocketlens.console.search.question import Question
from rocketlens.console.sources.masks import MASK
from rocketlens.console.values import FacetCount, FacetName, FacetValue, MessageRow, TimeCountsValue
from rocketlens.query.request import parse_tags
from rocketlens.query.topic_choice import is_pattern

_HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(each * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * 60 * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR_MS for each in (1, 2, 3, 6, 12)),
    *(each * _DAY_MS for each in (1, 2, 7, 14, 30, 90, 365)),
)
"""Lengths of a bar. Longer ones are multiples of the last."""


def facets_of(rows: Sequence[MessageRow]) -> list[FacetValue]:
    """Return the facets of some rows: topics and tags by their counts, hours the newest first."""
    hours = Counter(each.store_timestamp_ms // _HOUR_MS * _HOUR_MS for each in rows)
    facets = (
        _facet("topic", Counter(each.topic for each in rows).most_common()),
        _facet("tag", Counter(each.tags or None for each in rows).most_common()),
        _facet("hour", [(str(hour), hours[hour]) for hour in sorted(hours, reverse=True)]),
    )
    return [each for each in facets if len(each.counts) > 1]


def _facet(name: FacetName, counts: Sequence[tuple[str | None, int]]) -> FacetValue:
    listed = counts[: limits.MAX_FACET_VALUES]
    return FacetValue(
        name=name,
        counts=[FacetCount(value=value, count=count) for value, count in listed],
        more=len(counts) - len(listed),
    )


def question_for_facet(question: Question, name: FacetName, value: str | None) -> Question | None:
    """Return a question for the messages of one value of a facet alone; None if there is none."""
    if value is None or len(value) > limits.MAX_TOPIC_CHARACTERS:
        return None
    first_page = replace(question, cursor=None)
    if name == "topic":
        return None if is_pattern(value) or "," in value else replace(first_page, topic=value)
    if name == "tag":
        is_tag = MASK not in value and parse_tags(value) == frozenset({value})
        return replace(first_page, tag=value) if is_tag else None
    begin = max(int(value), question.begin or 0)
    end = int(value) + _HOUR_MS - 1
    end = end if question.end is None else min(end, question.end)
    return replace(first_page, since=str(begin), until=str(end), begin=begin, end=end, zone_name="")


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
    span = (
        own[0] if question.begin is None else min(own[0], question.begin),
        own[1] if question.end is None else max(own[1], question.end),
    )
    # In a long time that was asked for, all of them can be in one bar.
    return (_counts(times, *span) if is_whole else None) or _counts(times, *own)


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


def question_for_bar(question: Question, begin_ms: int, end_ms: int, zone_name: str) -> Question:
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

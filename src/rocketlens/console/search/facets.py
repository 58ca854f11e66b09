"""Facets: how many of the messages of a page have each topic and each tag, and are of each hour.

They are counted in the rows that are shown, so they tell no more than these, and what is masked
there is masked here. A facet with one value is left out: it would narrow nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocketlens import limits
from rocketlens.console.search.question import Question
from rocketlens.console.sources.masks import MASK
from rocketlens.console.values import FacetCount, FacetName, FacetValue, MessageRow
from rocketlens.query.request import parse_tags
from rocketlens.query.topic_choice import is_pattern

_HOUR_MS: Final = 3_600_000


def facets_of(rows: Sequence[MessageRow]) -> list[FacetValue]:
    """Return the facets of some rows: topics and tags by their counts, hours the newest first."""
    hours = Counter(each.store_timestamp_ms // _HOUR_MS * _HOUR_MS for each in rows)
    found = (
        _facet("topic", Counter(each.topic for each in rows).most_common()),
        _facet("tag", Counter(each.tags or None for each in rows).most_common()),
        _facet("hour", [(str(hour), hours[hour]) for hour in sorted(hours, reverse=True)]),
    )
    return [each for each in found if len(each.counts) > 1]


def _facet(name: FacetName, counts: Sequence[tuple[str | None, int]]) -> FacetValue:
    listed = counts[: limits.MAX_FACET_VALUES]
    return FacetValue(
        name=name,
        counts=[FacetCount(value=value, count=count) for value, count in listed],
        more=len(counts) - len(listed),
    )


def narrowed(question: Question, name: FacetName, value: str | None) -> Question | None:
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

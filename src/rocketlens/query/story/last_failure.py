"""How a consumer group failed with a message last, as far as traces of its clients tell."""

from collections.abc import Collection, Iterable

from rocketlens import limits
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import TRACE_TOPIC
from rocketlens.query.request import FindRequest
from rocketlens.query.story.story_events import deliveries_of
from rocketlens.query.story.story_search import trace_entries


def traces_of(unique_key: str) -> FindRequest:
    """Return the request for the traces of a message; its copies have the same unique key."""
    return FindRequest(unique_key, (TRACE_TOPIC,), kind="key", max_num=limits.MAX_STORY_RECORDS)


def last_failure(
    traces: Iterable[MessageExt], unique_key: str, group_names: Collection[str]
) -> str | None:
    """Return how a group failed with a message last, in a few words; None if no trace tells it.

    ``group_names`` are those of the one group, with and without its namespace.
    """
    entries = list(trace_entries(traces, unique_key, TRACE_TOPIC, []))
    failed = [
        each
        for each in deliveries_of(entries)
        if each.group in group_names and each.is_success is False
    ]
    return failed[-1].outcome if failed else None

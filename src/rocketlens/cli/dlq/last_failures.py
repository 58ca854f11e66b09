"""How groups failed with their dead letters last, as far as traces of their clients tell.

Commands import this when they run: their options must not cost what reads traces.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, TRACE_TOPIC
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest
from rocketlens.query.story.story_events import deliveries_of
from rocketlens.query.story.story_search import trace_entries

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.offline import Store

_AT_ONCE: Final = 8
"""Messages whose traces a cluster is asked for at once."""


async def last_failures(admin: "MQAdmin", messages: Sequence[MessageExt]) -> dict[str, str]:
    """Return how each dead letter failed last, by its offset message id.

    Those that no trace tells of are left out, and those whose traces cannot be read.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    has_traces = True

    async def look_up(message: MessageExt) -> str | None:
        nonlocal has_traces
        async with turns:
            if not (has_traces and message.unique_key):
                return None
            try:
                answer = await find(_traces_of(message.unique_key), admin.source)
            except TopicNotFound:
                has_traces = False
                return None
            except RocketLensError:
                return None
        group = message.topic.removeprefix(DEAD_LETTER_PREFIX)
        names = {group, without_namespace(admin.namespace, group)}
        return _last_failure(answer.messages, message.unique_key, names)

    texts = await asyncio.gather(*map(look_up, messages))
    return _by_id(messages, texts)


def last_failures_in(store: "Store", messages: Sequence[MessageExt]) -> dict[str, str]:
    """Return what `last_failures` does, by the traces in a store."""
    texts: list[str | None] = []
    for message in messages:
        text = None
        if message.unique_key:
            try:
                answer = store.find_for(_traces_of(message.unique_key))
            except TopicNotFound:
                break
            except RocketLensError:
                # The dead letter was found, and is printed.
                texts.append(None)
                continue
            group = message.topic.removeprefix(DEAD_LETTER_PREFIX)
            text = _last_failure(answer.messages, message.unique_key, {group})
        texts.append(text)
    return _by_id(messages, texts)


def _by_id(messages: Sequence[MessageExt], texts: Sequence[str | None]) -> dict[str, str]:
    pairs = zip(messages, texts, strict=False)
    return {each.offset_msg_id: text for each, text in pairs if text is not None}


def _traces_of(unique_key: str) -> FindRequest:
    """Return the request for the traces of a message; its copies have the same unique key."""
    return FindRequest(unique_key, (TRACE_TOPIC,), kind="key", max_num=limits.MAX_STORY_RECORDS)


def _last_failure(
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

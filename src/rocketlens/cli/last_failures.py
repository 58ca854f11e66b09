"""Finds the last failure of each dead letter, in the letter itself or in traces of clients.

Commands import this module when they run, because reading traces needs many imports.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.model.answer import Answer
from rocketlens.model.life import failure_of
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, TRACE_TOPIC
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest
from rocketlens.query.story.story_events import deliveries_of
from rocketlens.query.story.story_search import trace_entries

if TYPE_CHECKING:
    from rocketlens.query.offline import Store

_AT_ONCE: Final = 8
"""Concurrent look-ups of traces."""


async def last_failures(admin: MQAdmin, messages: Sequence[MessageExt]) -> dict[str, str]:
    """Return the last failure of each dead letter, by its offset message id.

    Dead letters without a recorded failure, or with unreadable traces, are left out.
    """
    return await _last_failures(
        lambda request: find(request, admin.source), messages, admin.namespace
    )


def last_failures_in(store: "Store", messages: Sequence[MessageExt]) -> dict[str, str]:
    """Return the same as `last_failures`, from the traces in a store."""

    async def find_here(request: FindRequest) -> Answer:
        return store.find_for(request)

    return asyncio.run(_last_failures(find_here, messages))


async def _last_failures(
    find: Callable[[FindRequest], Awaitable[Answer]],
    messages: Sequence[MessageExt],
    namespace: str = "",
) -> dict[str, str]:
    slots = asyncio.Semaphore(_AT_ONCE)
    failures: dict[str, str] = {}
    has_traces = True

    async def look_up(message: MessageExt) -> None:
        nonlocal has_traces
        recorded = failure_of(message)
        if recorded is not None:
            failures[message.offset_msg_id] = f"{recorded.error} (on {recorded.host})"
            return
        async with slots:
            if not (has_traces and message.unique_key):
                return
            try:
                most = limits.MAX_STORY_RECORDS
                answer = await find(
                    FindRequest(message.unique_key, (TRACE_TOPIC,), kind="key", max_num=most)
                )
            except TopicNotFound:
                has_traces = False
                return
            except RocketLensError:
                # The dead letter itself was found: print it without a failure.
                return
        group = message.topic.removeprefix(DEAD_LETTER_PREFIX)
        names = {group, without_namespace(namespace, group)}
        # Copies have the same unique key.
        entries = list(trace_entries(answer.messages, message.unique_key, TRACE_TOPIC, []))
        failed = [
            each.outcome
            for each in deliveries_of(entries)
            if each.group in names and each.is_success is False
        ]
        if failed and failed[-1] is not None:
            failures[message.offset_msg_id] = failed[-1]

    await asyncio.gather(*map(look_up, messages))
    return failures

"""How groups failed with their dead letters last, for the commands that show these."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.model.message import MessageExt
    from rocketlens.query.offline import Store

_AT_ONCE: Final = 8
"""Messages whose traces a cluster is asked for at once."""


async def last_failures(admin: "MQAdmin", messages: "Sequence[MessageExt]") -> dict[str, str]:
    """Return how each dead letter failed last, by its offset message id.

    Those that no trace tells of are left out, and those whose traces cannot be read.
    """
    from rocketlens.client.connect.namespace import without_namespace
    from rocketlens.query.find import find
    from rocketlens.query.story.last_failure import last_failure, traces_of

    turns = asyncio.Semaphore(_AT_ONCE)
    has_traces = True

    async def look_up(message: "MessageExt") -> str | None:
        nonlocal has_traces
        async with turns:
            if not (has_traces and message.unique_key):
                return None
            try:
                answer = await find(traces_of(message.unique_key), admin.source)
            except TopicNotFound:
                has_traces = False
                return None
            except RocketLensError:
                return None
        group = message.topic.removeprefix(DEAD_LETTER_PREFIX)
        names = {group, without_namespace(admin.namespace, group)}
        return last_failure(answer.messages, message.unique_key, names)

    texts = await asyncio.gather(*map(look_up, messages))
    return _by_id(messages, texts)


def last_failures_in(store: "Store", messages: "Sequence[MessageExt]") -> dict[str, str]:
    """Return what `last_failures` does, by the traces in a store."""
    from rocketlens.query.story.last_failure import last_failure, traces_of

    texts: list[str | None] = []
    for message in messages:
        text = None
        if message.unique_key:
            try:
                answer = store.find_for(traces_of(message.unique_key))
            except TopicNotFound:
                break
            group = message.topic.removeprefix(DEAD_LETTER_PREFIX)
            text = last_failure(answer.messages, message.unique_key, {group})
        texts.append(text)
    return _by_id(messages, texts)


def _by_id(messages: "Sequence[MessageExt]", texts: Sequence[str | None]) -> dict[str, str]:
    pairs = zip(messages, texts, strict=False)
    return {each.offset_msg_id: text for each, text in pairs if text is not None}

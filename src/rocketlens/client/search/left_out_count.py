"""How many messages of RocketMQ's own topics a search of a cluster leaves out.

They are counted beside the search: by a look-up, if a key is searched for, else by the offsets that
brokers name for each queue, and for its times. What cannot be counted leaves the answer as it is.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.broker_calls import offset_at_time
from rocketlens.client.connect.route import Broker, MessageQueue
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.tally import SearchTally
from rocketlens.wire.bodies.tables import TopicOffset

if TYPE_CHECKING:
    from collections.abc import Collection

    from rocketlens.client.search.cluster_source import ClusterSource


async def count_left_out(
    source: "ClusterSource", request: FindRequest, topics: "Collection[str]", tally: SearchTally
) -> None:
    """Count in ``tally`` the messages of some topics, whatever their content is."""

    async def count(topic: str) -> None:
        try:
            if request.text is None:
                tally.put_internal(topic, await _held(source, request, topic))
            else:
                await _count_with_key(source, request, topic, tally)
        except TopicNotFound:
            # Deleted since the name server listed it.
            return
        except RocketLensError:
            tally.put_internal(topic, None)

    await asyncio.gather(*map(count, topics))


async def _count_with_key(
    source: "ClusterSource", request: FindRequest, topic: str, tally: SearchTally
) -> None:
    most = limits.MAX_QUERY_MESSAGES
    findings = Findings(AnswerMessages(most))
    key_filter = request.filter_of(findings.tally, [topic], with_key=True)
    key_filter = replace(key_filter, content=None, leaves_out=False)
    await source.find_by_key(key_filter, findings, tries_index=False)
    is_least = findings.messages.truncated or not findings.is_complete
    tally.put_internal(topic, min(findings.count, most), is_least=is_least)


async def _held(source: "ClusterSource", request: FindRequest, topic: str) -> int | None:
    """Return about how many messages a topic has of the request's times; None if not known."""
    route = (await source.topology.route(topic)).value

    async def ask(_: Broker, address: str) -> int:
        count = 0
        table = await broker_calls.topic_stats(source.cluster, address, topic, missing_ok=True)
        for queue, offsets in table.items():
            count += await _between(source, request, address, queue, offsets)
        return count

    answers = await source.cluster.ask_brokers(route.brokers.values(), ask)
    counts = [each.value for each in answers]
    return None if None in counts else sum(each or 0 for each in counts)


async def _between(
    source: "ClusterSource",
    request: FindRequest,
    address: str,
    queue: MessageQueue,
    offsets: TopicOffset,
) -> int:
    low, high = offsets.min_offset, offsets.max_offset
    if request.begin is not None and 0 < offsets.last_update_timestamp_ms < request.begin:
        return 0
    if low < high and request.begin is not None:
        low = max(low, await offset_at_time(source.cluster, address, queue, request.begin))
    if low < high and request.end < limits.MAX_TIMESTAMP_MS:
        high = min(high, await offset_at_time(source.cluster, address, queue, request.end + 1))
    return max(high - low, 0)

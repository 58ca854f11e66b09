"""Counts the messages that wait for each topic of a store or a cluster."""

import time
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.model.topic import TopicsAnswer

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.facts.waiting import WaitingMessages
    from rocketlens.query.offline import Store


def waiting_in_store(store: "Store", answer: TopicsAnswer) -> "WaitingMessages | None":
    """Return the number of waiting messages in a store with the topics ``answer``, or None."""
    from rocketlens.query.facts.waiting import KEPT_FOR_MS, newest_ms, waiting_messages

    most = limits.MAX_WAITING_MESSAGES
    try:
        answers = [store.find(topic=topic, max_num=most) for topic in KEPT_FOR_MS]
    except RocketLensError:
        return None
    now_ms = newest_ms(answers, (each.newest_ms for each in answer.topics))
    return waiting_messages(answers, now_ms)


async def waiting_in_cluster(admin: "MQAdmin") -> "WaitingMessages | None":
    """Return the number of waiting messages in a cluster, by topics of its namespace, or None."""
    from rocketlens.client.connect.namespace import is_in_namespace, without_namespace
    from rocketlens.query.facts.waiting import KEPT_FOR_MS, waiting_messages

    now_ms = time.time_ns() // 1_000_000
    answers = []
    for topic, longest_ms in KEPT_FOR_MS.items():
        try:
            answers.append(
                await admin.find(
                    topic=topic, begin=now_ms - longest_ms, max_num=limits.MAX_WAITING_MESSAGES
                )
            )
        except TopicNotFound:
            # RocketMQ 4 has no timers.
            continue
        except RocketLensError:
            return None
    waiting = waiting_messages(answers, now_ms)
    if waiting is None:
        return None
    space = admin.namespace
    counts = {
        without_namespace(space, name): count
        for name, count in waiting.counts.items()
        if is_in_namespace(space, name)
    }
    return waiting._replace(counts=counts)

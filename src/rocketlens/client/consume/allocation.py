"""Which member of a group has which queues: every member computes it by itself, the same.

All sort queues and client ids as Java does, so members in Python and Java share a topic without
a gap or an overlap, once they see the same members and queues. Sources:
``AllocateMessageQueueAveragely``, ``AllocateMessageQueueAveragelyByCircle``,
``MessageQueue.compareTo``, ``String.compareTo``.
"""

from collections.abc import Callable, Iterable, Sequence

from rocketlens.client.connect.route import MessageQueue

AllocateStrategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Of a client id, all queues of a topic and all client ids of the group, both in Java's order."""


def java_text_order(text: str) -> bytes:
    """Return a key that sorts texts as Java does: by UTF-16 units, not by characters."""
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues as Java sorts them: by topic, broker name and number."""
    return sorted(
        queues,
        key=lambda each: (
            java_text_order(each.topic),
            java_text_order(each.broker_name),
            each.queue_id,
        ),
    )


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return a run of queues for each member; the first members have one more. The default."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, remainder = divmod(len(queues), len(client_ids))
    if len(queues) <= len(client_ids):
        share, has_more = 1, index < remainder
    else:
        has_more = index < remainder
        share += has_more
    start = index * share if remainder and has_more else index * share + remainder
    return list(queues[start : start + min(share, max(0, len(queues) - start))])


def allocate_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return every n-th queue for each of n members."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])

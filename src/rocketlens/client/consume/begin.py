"""Where a consumer begins in a queue in which its group has no offset yet.

======================  =====================================  ==============================
begin                   a topic's queue                        the group's retry topic
======================  =====================================  ==============================
LAST_OFFSET (default)   its end: what is sent from now on      its beginning: nothing of the
                                                               group's own failures is lost
FIRST_OFFSET            its beginning                          its beginning
TIMESTAMP               the first message stored then          its end
======================  =====================================  ==============================

A broker whose queue still begins at its first message answers 0 to the question for an offset, so
there LAST_OFFSET begins at 0, too: RocketMQ means to lose nothing of a new topic. Source:
``RebalancePushImpl.computePullFromWhereWithException``.
"""

from collections.abc import Awaitable, Callable

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.offsets import OffsetStore
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.wire.bodies.heartbeat import ConsumeFromWhere


async def first_offset(
    store: OffsetStore,
    queue: MessageQueue,
    begin: ConsumeFromWhere,
    max_offset: Callable[[MessageQueue], Awaitable[int]],
    offset_at_begin: Callable[[MessageQueue], Awaitable[int]],
) -> int:
    """Return where to begin: what is stored, or what the table above has.

    ``max_offset`` and ``offset_at_begin`` ask a queue's broker.

    :raises RocketLensError: when that cannot be learnt: then the queue is tried again later.
    """
    stored = await store.read(queue)
    if stored is not None and stored >= 0:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if begin is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if begin is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not is_retry:
        return await offset_at_begin(queue)
    if begin is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and is_retry:
        return 0
    return await max_offset(queue)

"""The messages that ``async for message in consumer`` gives, and what becomes of each.

To the rest of the consumer this is a listener, which returns when its message is acked.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from rocketlens.client.consume.listener import Abandoned, ConsumeConcurrentlyStatus, ConsumeContext
from rocketlens.errors import WrongUse
from rocketlens.model.message import MessageExt

Settled = ConsumeConcurrentlyStatus | Abandoned


class _Pending:
    """Messages that wait for their acks."""

    def __init__(self, messages: Sequence[MessageExt], context: ConsumeContext) -> None:
        self.left: Final = {each.offset_msg_id for each in messages}
        self.context: Final = context
        self.settled: Final[asyncio.Future[Settled]] = asyncio.get_running_loop().create_future()


class HandedOut:
    """Messages on their way to an iteration, and those that are not acked yet."""

    def __init__(self) -> None:
        self._ready: Final[asyncio.Queue[MessageExt | None]] = asyncio.Queue()
        self._pending: Final[dict[str, _Pending]] = {}
        self._is_closed = False

    async def hand_out(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Settled:
        """Deliver messages, and return once they are settled, or the consumer is closed."""
        if self._is_closed:
            return Abandoned.ABANDONED
        pending = _Pending(messages, context)
        for each in messages:
            self._pending[each.offset_msg_id] = pending
            self._ready.put_nowait(each)
        try:
            return await pending.settled
        finally:
            for each in messages:
                if self._pending.get(each.offset_msg_id) is pending:
                    del self._pending[each.offset_msg_id]

    async def messages(self) -> AsyncIterator[MessageExt]:
        """Iterate over messages, until the consumer is closed."""
        while not self._is_closed:
            message = await self._ready.get()
            # One that timed out before it was returned is delivered again.
            if message is not None and message.offset_msg_id in self._pending:
                yield message
        self._ready.put_nowait(None)

    def ack(self, message: MessageExt) -> None:
        """Count a message as consumed.

        :raises WrongUse: when it is not waited for.
        """
        pending = self._take(message)
        if not pending.left and not pending.settled.done():
            pending.settled.set_result(ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    def later(self, message: MessageExt, delay_level: int) -> None:
        """Request another delivery of a message; errors as `ack`."""
        pending = self._take(message)
        pending.context.delay_level = delay_level
        if not pending.settled.done():
            pending.settled.set_result(ConsumeConcurrentlyStatus.RECONSUME_LATER)

    def close(self) -> None:
        """End the iteration; what is not acked is delivered again, to another member."""
        self._is_closed = True
        for pending in self._pending.values():
            if not pending.settled.done():
                pending.settled.set_result(Abandoned.ABANDONED)
        self._ready.put_nowait(None)

    def _take(self, message: MessageExt) -> _Pending:
        pending = self._pending.get(message.offset_msg_id)
        if pending is None or message.offset_msg_id not in pending.left:
            raise WrongUse(f"{message.msg_id} does not wait for an ack: it had one, or came again")
        pending.left.discard(message.offset_msg_id)
        return pending

"""The result of a send, with RocketMQ's fields and printed form."""

from enum import Enum
from typing import Final

from msgspec import Struct

from rocketlens.client.connect.route import MessageQueue
from rocketlens.model.rocketmq import DEFAULT_REGION
from rocketlens.wire.codes import ResponseCode


class SendStatus(Enum):
    """The durability of a message. It is stored with each of these."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Not flushed to disk in time (SYNC_FLUSH brokers)."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Not copied to a slave in time (SYNC_MASTER brokers)."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """No slave is available (SYNC_MASTER brokers)."""


STATUS_OF_CODE: Final = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(Struct, frozen=True):
    """The position at which a message was stored.

    ``msg_id`` is its unique key and ``offset_msg_id`` the broker's id. For a batch both list those
    of all members in order, separated by commas, and ``queue_offset`` is the first one's. The topic
    of ``message_queue`` has no namespace. Brokers since 5.4 return a ``recall_handle`` for messages
    with a timer.
    """

    send_status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
    recall_handle: str | None = None

    @property
    def msg_ids(self) -> tuple[str, ...]:
        """The unique keys, one for each message sent."""
        return tuple(self.msg_id.split(","))

    @property
    def offset_msg_ids(self) -> tuple[str, ...]:
        """The offset message ids, one for each message sent."""
        return tuple(self.offset_msg_id.split(","))

    def __str__(self) -> str:
        """Return RocketMQ 5.5's printed form."""
        return self.text()

    def text(self, *, with_recall_handle: bool = True) -> str:
        """Return RocketMQ's printed form: since 5.4 with the recall handle."""
        tail = f", recallHandle={self.recall_handle or 'null'}" if with_recall_handle else ""
        return (
            f"SendResult [sendStatus={self.send_status.name}, msgId={self.msg_id}, "
            f"offsetMsgId={self.offset_msg_id}, messageQueue={self.message_queue}, "
            f"queueOffset={self.queue_offset}{tail}]"
        )

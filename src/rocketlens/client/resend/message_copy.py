"""Sends a stored message again, as it was: to its own topic, with all its properties.

It keeps its unique key, so that afterwards two records have it, and every group of the topic gets
the message again. Source: ``QueryMsgByIdSubCommand``.
"""

from typing import Final

from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput
from rocketlens.model.message import MessageExt
from rocketlens.model.properties import TRANSACTION_PREPARED

RESEND_GROUP: Final = "ReSendMsgById"
"""The producer group that RocketMQ's tool sends with."""


def message_again(stored: MessageExt) -> Message:
    """Return a stored message as it is sent again.

    :raises BadInput: if it was sent in a transaction, which would never be ended, or its body
        cannot be decompressed.
    """
    if stored.body_error is not None:
        raise BadInput(f"{stored.msg_id} cannot be sent again as it was: {stored.body_error}")
    if stored.properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        raise BadInput(
            f"{stored.msg_id} was sent in a transaction: sent again, it would stay a half message"
        )
    message = Message(stored.topic, stored.body, flag=stored.flag)
    for name, value in stored.properties.items():
        message.put(name, value)
    return message

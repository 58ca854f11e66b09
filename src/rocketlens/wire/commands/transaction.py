"""Transactions: end one (37, one-way) and, from broker to producer, ask how it went (39)."""

from typing import Final

from rocketlens.model.rocketmq import SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK
from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text

COMMIT: Final = SYS_FLAG_COMMIT
ROLLBACK: Final = SYS_FLAG_ROLLBACK
UNKNOWN: Final = 0
"""Values of ``commit_or_rollback``."""


@declare("EndTransactionRequestHeader")
class EndTransactionRequest:
    """Commit or roll back a half message."""

    producer_group: str = text("producerGroup")
    tran_state_table_offset: int = i64("tranStateTableOffset")
    """The half message's queue offset."""
    commit_log_offset: int = i64("commitLogOffset")
    commit_or_rollback: int = i32("commitOrRollback")
    from_transaction_check: bool = boolean("fromTransactionCheck", default=False)
    msg_id: str | None = text("msgId", default=None)
    transaction_id: str | None = text("transactionId", default=None)
    topic: str | None = text("topic", default=None, since=V5_0_0)


@declare("CheckTransactionStateRequestHeader")
class CheckTransactionStateRequest:
    """Broker to producer, one-way; the body is the half message, its real topic restored."""

    tran_state_table_offset: int = i64("tranStateTableOffset")
    commit_log_offset: int = i64("commitLogOffset")
    msg_id: str | None = text("msgId", default=None)
    transaction_id: str | None = text("transactionId", default=None)
    offset_msg_id: str | None = text("offsetMsgId", default=None)
    topic: str | None = text("topic", default=None, since=V5_0_0)


END_TRANSACTION: Final = Command(RequestCode.END_TRANSACTION, EndTransactionRequest, NoFields)
CHECK_TRANSACTION_STATE: Final = Command(
    RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequest, NoFields
)

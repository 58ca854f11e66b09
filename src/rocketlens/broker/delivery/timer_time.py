"""When a message with a delivery time of its own (a timer) is due.

======================  ========================================================================
property                due
======================  ========================================================================
``TIMER_DELAY_SEC``     so many seconds from now
``TIMER_DELAY_MS``      so many milliseconds from now
``TIMER_DELIVER_MS``    at that time
======================  ========================================================================

The first of them counts; a delay level makes all three go. A message that is due already is stored
like any other. Else ``TIMER_OUT_MS`` is the second before the one in which it is due: it is
delivered when that second is over, so up to a second late, and never early. Source: ``HookUtils``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.errors import MessageIllegal, ProtocolError
from rocketlens.model import properties as props
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.declare import read_i64

SECOND_MS: Final = 1000
"""RocketMQ's default ``timerPrecisionMs``."""
ROLL_WINDOW_MS: Final = 172_800 * SECOND_MS
"""A message that waits longer than two days is stored again on the way, because the log is deleted
after some days. RocketMQ: ``timerRollWindowSlot``."""


class TimersDisabled(MessageIllegal):
    """A message has a delivery time of its own, and the broker is configured to refuse that."""

    code = ResponseCode.SYSTEM_ERROR

    def __init__(self) -> None:
        """Build the message in RocketMQ's words."""
        super().__init__("accurate timer message is not enabled, timerWheelEnable is false")


class TimerIllegal(MessageIllegal):
    """A delivery time that is not a number or too far off, or a deletion that is due already."""

    def __init__(self, max_delay_ms: int) -> None:
        """Build the message in RocketMQ's words."""
        super().__init__(
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{max_delay_ms}ms; or if set del msg, the delay time should be bigger than the "
            "current time"
        )


class TooManyTimers(MessageIllegal):
    """As many messages wait for their time as a broker keeps."""

    code = ResponseCode.SYSTEM_ERROR

    def __init__(self, max_count: int) -> None:
        """Build the message in RocketMQ's words."""
        super().__init__(
            f"timer message is under flow control, max num limit is {max_count} or the current "
            f"value is greater than {max_count} and less than {2 * max_count}, trigger random "
            "flow control"
        )


def out_time_ms(properties: Mapping[str, str], now_ms: int, max_delay_ms: int) -> int | None:
    """Return the ``TIMER_OUT_MS`` of a message; None if it is due already.

    :raises TimerIllegal: if it may not be stored.
    """
    try:
        deliver_ms = _deliver_ms(properties, now_ms)
    except ProtocolError:
        raise TimerIllegal(max_delay_ms) from None
    if deliver_ms <= now_ms:
        if props.TIMER_DELETED_KEY in properties:
            raise TimerIllegal(max_delay_ms)
        return None
    if deliver_ms - now_ms > max_delay_ms:
        raise TimerIllegal(max_delay_ms)
    return (deliver_ms - 1) // SECOND_MS * SECOND_MS


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int:
    name = props.TIMER_DELAY_SEC
    if name in properties:
        return _wrapped(now_ms + _wrapped(read_i64(properties[name], name) * SECOND_MS))
    name = props.TIMER_DELAY_MS
    if name in properties:
        return _wrapped(now_ms + read_i64(properties[name], name))
    name = props.TIMER_DELIVER_MS
    return read_i64(properties[name], name)


def _wrapped(number: int) -> int:
    """Return a number as Java's 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63


def slot_ms(out_ms: int, store_timestamp_ms: int) -> int:
    """Return the ``TIMER_OUT_MS`` at which a stored message is taken up: its own, or earlier.

    What waits longer than the window is stored again when the window is over, or half of it, if
    little would be left then. This follows from the record alone, so that every start of a broker
    finds the same.
    """
    since_ms = store_timestamp_ms // SECOND_MS * SECOND_MS
    rest_ms = out_ms - since_ms - ROLL_WINDOW_MS
    if rest_ms < 0:
        return out_ms
    return since_ms + (ROLL_WINDOW_MS // 2 if rest_ms < ROLL_WINDOW_MS // 3 else ROLL_WINDOW_MS)

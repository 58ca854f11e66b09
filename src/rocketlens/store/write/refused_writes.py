"""The log's lines about writes that are refused: when that begins, while it lasts, when it is over.

======================================  ========================================================
what happens                            the line
======================================  ========================================================
a write is refused, the last was not    the reason
writes are refused for longer           once in `rocketlens.limits.MIN_WARNING_INTERVAL_S`: the
                                        reason, and how many were refused
a write is accepted again               how many were refused
it begins again soon after a line       none before that time is over; what is refused is counted
======================================  ========================================================

A producer sends again at once, and a broker tries to deliver what is due ten times a second, so
not each write that is refused is worth a line.
"""

import logging
from collections.abc import Callable
from typing import Final

from rocketlens import limits
from rocketlens.errors import MessageIllegal, StoreBusy, StoreFull
from rocketlens.store import fs

_log: Final = logging.getLogger(__name__)

_INTERVAL_MS: Final = int(limits.MIN_WARNING_INTERVAL_S * 1000)

DISK_FULL: Final = (
    "service not available now. It may be caused by one of the following reasons: "
    "the broker's disk is full"
)
"""Start of RocketMQ's remark to code 14."""
NOT_NOW: Final = "service not available now: the broker cannot open or map a file of its store"


def refused(error: OSError) -> StoreFull | StoreBusy:
    """Return the error for a client if nothing could be written now, with the reason; it may try
    again.
    """
    text = DISK_FULL if error.errno in fs.DISK_FULL_ERRORS else NOT_NOW
    kind = StoreFull if error.errno in fs.DISK_FULL_ERRORS else StoreBusy
    return kind(f"{text} [{error.strerror}: {error.filename or 'write'}]")


def too_large(message_bytes: int) -> MessageIllegal:
    """Return the error for a message over the bounds, in RocketMQ's words."""
    return MessageIllegal(
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {message_bytes}B, msg properties length limit 32KB."
    )


class RefusedWrites:
    """Logs that writes of one kind are refused, in few lines. For one thread at a time."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        log: logging.Logger = _log,
        begins: str = "nothing can be stored now",
        over: str = "messages are stored again",
    ) -> None:
        """Start without a refused write; ``clock`` returns milliseconds.

        ``begins`` and ``over`` are what the lines say, in ``log``.
        """
        self._clock: Final = clock
        self._log: Final = log
        self._begins: Final = begins
        self._over: Final = over
        self._is_refusing = self._is_logged = False
        self._count = 0
        """Writes refused since the last line that it is over."""
        self._logged_ms: int | None = None
        """When a line said that writes are refused."""

    def refuse(self, error: Exception) -> None:
        """Count a write that was refused because of ``error``; log it if it is time to."""
        if not self._is_refusing:
            self._is_refusing, self._is_logged = True, False
        self._count += 1
        now_ms = self._clock()
        # A clock that was set back must not make it silent.
        if self._logged_ms is not None and 0 <= now_ms - self._logged_ms < _INTERVAL_MS:
            return
        self._is_logged, self._logged_ms = True, now_ms
        if self._count == 1:
            self._log.warning("%s: %s", self._begins, error)
        else:
            text = "%s: %s; writes refused so far: %d"
            self._log.warning(text, self._begins, error, self._count)

    def accept(self) -> None:
        """End a time of refused writes, if there is one; log it if a line said that it began."""
        if not self._is_refusing:
            return
        self._is_refusing = False
        if self._is_logged:
            text = "%s; writes refused meanwhile: %d"
            self._log.warning(text, self._over, self._count)
            self._count = 0

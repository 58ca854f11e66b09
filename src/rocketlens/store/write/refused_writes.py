"""Logs refused writes, in few lines.

The first refused write is logged with its reason, then one line every
`rocketlens.limits.MIN_WARNING_INTERVAL_S` with the number of refused writes, and the end of the
refusals. Within the interval after a line, new refusals are only counted: producers retry at once,
and a broker retries due deliveries ten times a second.
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
"""The start of RocketMQ's remark for code 14."""
NOT_NOW: Final = "service not available now: the broker cannot open or map a file of its store"


def refused(error: OSError) -> StoreFull | StoreBusy:
    """Return the error for a client if nothing can be written now: the client can retry."""
    text = DISK_FULL if error.errno in fs.DISK_FULL_ERRORS else NOT_NOW
    kind = StoreFull if error.errno in fs.DISK_FULL_ERRORS else StoreBusy
    return kind(f"{text} [{error.strerror}: {error.filename or 'write'}]")


def too_large(message_bytes: int) -> MessageIllegal:
    """Return the error for a message that is too large, in RocketMQ's words."""
    return MessageIllegal(
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {message_bytes}B, msg properties length limit 32KB."
    )


class RefusedWrites:
    """Logs refused writes of one kind. For one thread at a time."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        log: logging.Logger = _log,
        begins: str = "nothing can be stored now",
        over: str = "messages are stored again",
    ) -> None:
        """``clock`` returns milliseconds. ``begins`` and ``over``: the texts of the log lines."""
        self._clock: Final = clock
        self._log: Final = log
        self._begins: Final = begins
        self._over: Final = over
        self._is_refusing = self._is_logged = False
        self._count = 0
        """Writes refused since the last line with the text ``over``."""
        self._logged_ms: int | None = None
        """The time of the last line with the text ``begins``."""

    def refuse(self, error: Exception) -> None:
        """Count a refused write, and log it if a line is due."""
        if not self._is_refusing:
            self._is_refusing, self._is_logged = True, False
        self._count += 1
        now_ms = self._clock()
        # A clock that was set back must not suppress lines.
        if self._logged_ms is not None and 0 <= now_ms - self._logged_ms < _INTERVAL_MS:
            return
        self._is_logged, self._logged_ms = True, now_ms
        if self._count == 1:
            self._log.warning("%s: %s", self._begins, error)
        else:
            text = "%s: %s; writes refused so far: %d"
            self._log.warning(text, self._begins, error, self._count)

    def accept(self) -> None:
        """End a time of refused writes, and log that if its begin was logged."""
        if not self._is_refusing:
            return
        self._is_refusing = False
        if self._is_logged:
            text = "%s; writes refused meanwhile: %d"
            self._log.warning(text, self._over, self._count)
            self._count = 0

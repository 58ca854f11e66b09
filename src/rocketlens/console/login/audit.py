"""The audit log: a line of JSON for each login, refusal, view and act, written before the answer.

::

    {"time":"2026-11-20T10:31:02.114Z","event":"view","user":"li","address":"10.0.0.7",...}

What others wrote is escaped: a line has ASCII characters only, and no line end of theirs.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from rocketlens import limits
from rocketlens.console.login.viewer import current_address, current_viewer
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.text.escape import printable


class AuditFailed(RocketLensError):
    """What was asked could not be written down, so it was not done."""


def open_log(path: Path) -> TextIO:
    """Open a file to append to, which only its owner may read if it is new.

    :raises BadInput: if it cannot be opened.
    """
    try:
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(opened, "a", encoding="ascii")
    except OSError as error:
        raise BadInput(f"the audit log {path}: {error.strerror or error}") from error


class AuditLog:
    """Writes who did what; without a file nothing is written."""

    def __init__(
        self,
        file: TextIO | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        errors: TextIO | None = None,
    ) -> None:
        """Append to an open file; failures are reported to ``errors``, else to stderr."""
        self._file: Final = file
        self._clock_ns: Final = clock_ns
        self._errors: Final = errors

    def record(
        self, event: str, *, address: str | None = None, user: str | None = None, **facts: object
    ) -> None:
        """Write that something is done by the current viewer, or by another user.

        ``event`` is a word such as ``view`` or ``resend``. Without ``user`` and ``address`` they
        are those of the request that is being answered. Facts are texts, numbers or lists of these.
        Call it before the act.

        :raises AuditFailed: if it cannot be written; then do not act.
        """
        if self._file is None:
            return
        moment = datetime.fromtimestamp(self._clock_ns() // 1_000_000 / 1000, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "user": _cut(current_viewer().name if user is None else user),
            "address": _cut(current_address() if address is None else address),
            **{name: _cut(value) for name, value in facts.items()},
        }
        try:
            self._file.write(json.dumps(line, default=str, separators=(",", ":")) + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:
            reason = printable(str(error))
            (self._errors or sys.stderr).write(f"the audit log cannot be written: {reason}\n")
            raise AuditFailed(f"the audit log cannot be written: {reason}") from error


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > limits.MAX_AUDIT_CHARACTERS:
        return value[: limits.MAX_AUDIT_CHARACTERS] + "…"
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    return value

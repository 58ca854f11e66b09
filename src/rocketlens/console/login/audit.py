"""The audit log: a line of JSON for each login, refusal, view and act, written before the answer.

::

    {"time":"2026-11-20T10:31:02.114Z","event":"view","user":"li","address":"10.0.0.7",...}

Lines are ASCII. Texts of others are escaped, and so cannot add lines.
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
    """The audit log could not be written, so the request was not carried out."""


def open_log(path: Path) -> TextIO:
    """Open a log for appending. A new file is readable by its owner only.

    :raises BadInput: if it cannot be opened.
    """
    try:
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(opened, "a", encoding="ascii")
    except OSError as error:
        raise BadInput(f"the audit log {path}: {error.strerror or error}") from error


class AuditLog:
    """Writes what users do. Without a file it writes nothing. Its failures are also on stderr."""

    def __init__(
        self, file: TextIO | None = None, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._file: Final = file
        self._clock_ns: Final = clock_ns

    def record(
        self, event: str, *, address: str | None = None, user: str | None = None, **facts: object
    ) -> None:
        """Write an event such as ``view`` or ``resend``. Call it before the act.

        ``user`` and ``address`` are those of the current request unless given. Facts are texts,
        numbers, or lists and dictionaries of them.

        :raises AuditFailed: if it cannot be written. Do not act then.
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
            sys.stderr.write(f"the audit log cannot be written: {reason}\n")
            raise AuditFailed(f"the audit log cannot be written: {reason}") from error


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > limits.MAX_AUDIT_CHARACTERS:
        return value[: limits.MAX_AUDIT_CHARACTERS] + "…"
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    return value

"""One finding of ``rocketlens doctor``, and how it is printed."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.model.installation import reinstall_command
from rocketlens.model.text.escape import printable
from rocketlens.terminal.output import BOLD, GREEN, RED, YELLOW, coloured, size_text

_COLOURS: Final = {"ok": GREEN, "warn": YELLOW, "fail": RED, "note": BOLD}
_NAME_WIDTH: Final = 14
_INDENT: Final = " " * (_NAME_WIDTH + 7)
_MIN_TEXT_COLUMNS: Final = 30
_MAX_LISTED: Final = 10
"""Findings of one kind that are printed one by one."""


class Check(NamedTuple):
    """A state, what was checked, the finding, and what mends it: a command, or what to do."""

    state: str
    name: str
    detail: str
    mend: str = ""

    @property
    def text(self) -> str:
        """The finding, and behind it what mends it."""
        return f"{self.detail}; to mend: {self.mend}" if self.mend else self.detail


def ok(name: str, detail: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check("ok", name, detail)


def about(name: str, detail: str) -> Check:
    """Return what is not a fault and should be known."""
    return Check("note", name, detail)


def warn(name: str, detail: str, mend: str) -> Check:
    """Return what should be mended."""
    return Check("warn", name, detail, mend)


def fail(name: str, detail: str, mend: str) -> Check:
    """Return what keeps commands from working, or has lost messages."""
    return Check("fail", name, detail, mend)


def listed(checks: Iterable[Check]) -> Iterator[Check]:
    """Return the first checks of a kind, and one that counts the others."""
    left_out = 0
    last = None
    for count, check in enumerate(checks):
        if count < _MAX_LISTED:
            yield check
        else:
            left_out += 1
            last = check
    if last is not None:
        yield Check(last.state, last.name, f"{left_out} more like these", last.mend)


def guarded(checks: Callable[[], Iterator[Check]], name: str) -> Iterator[Check]:
    """Turn whatever a check raises into a failure of that check."""
    try:
        yield from checks()
    except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
        detail = f"{type(error).__name__}: {error}"
        yield fail(name, detail, f"install RocketLens again: {reinstall_command()}")


def free_space(name: str, directory: Path, needed_bytes: int) -> Check:
    """Check whether a disk has room for a rebuild."""
    free = shutil.disk_usage(directory).free
    detail = f"{directory}: {size_text(free)} free"
    if free < needed_bytes:
        detail += f", and a rebuild may need {size_text(needed_bytes)}"
        return warn(name, detail, "free some, or build elsewhere: rocketlens index build --out DIR")
    return ok(name, detail)


def print_check(check: Check) -> None:
    """Print a check: in columns on a terminal, else as one line."""
    state = coloured(f"{check.state:5}", _COLOURS[check.state], sys.stdout)
    text = printable(check.text)
    lines = [text]
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size((100, 24)).columns - len(_INDENT) - 1
        room = max(columns, _MIN_TEXT_COLUMNS)
        lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]
    print(f"{state} {check.name:{_NAME_WIDTH}} {lines[0]}")
    for line in lines[1:]:
        print(f"{_INDENT}{line}")

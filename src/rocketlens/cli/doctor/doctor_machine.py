"""Findings of ``rocketlens doctor``, and the checks of this machine."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import __version__
from rocketlens.errors import RocketLensError
from rocketlens.late import np
from rocketlens.model.installation import install_command, reinstall_command
from rocketlens.model.text.escape import printable
from rocketlens.terminal.output import BOLD, GREEN, RED, YELLOW, coloured, size_text, wrap_lines

_COLOURS: Final = {"ok": GREEN, "warn": YELLOW, "fail": RED, "note": BOLD}
_NAME_WIDTH: Final = 14
_INDENT: Final = " " * (_NAME_WIDTH + 7)
_MAX_LISTED: Final = 10
"""Findings of one kind that are printed."""


class Check(NamedTuple):
    """A finding: its state, the subject, the text, and the remedy."""

    state: str
    name: str
    detail: str
    mend: str = ""

    @property
    def text(self) -> str:
        return f"{self.detail}; to mend: {self.mend}" if self.mend else self.detail


ok = partial(Check, "ok")
about = partial(Check, "note")
"""A finding that is no fault."""
warn = partial(Check, "warn")
fail = partial(Check, "fail")
"""Commands do not work, or messages are lost."""


def listed(checks: Iterable[Check]) -> Iterator[Check]:
    """Yield the first `_MAX_LISTED` checks of a kind, and one that counts the rest."""
    rest = iter(checks)
    yield from islice(rest, _MAX_LISTED)
    left_out, last = 0, None
    for left_out, last in enumerate(rest, 1):  # noqa: B007 - the last of them is used
        pass
    if last is not None:
        yield last._replace(detail=f"{left_out} more like these")


def guarded(checks: Callable[[], Iterator[Check]], name: str) -> Iterator[Check]:
    """Turn any exception of a check into a failed check."""
    try:
        yield from checks()
    except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
        detail = f"{type(error).__name__}: {error}"
        yield fail(name, detail, f"install RocketLens again: {reinstall_command()}")


def free_space(name: str, directory: Path, needed_bytes: int) -> Check:
    """Check that a disk has space for a rebuild."""
    free = shutil.disk_usage(directory).free
    detail = f"{directory}: {size_text(free)} free"
    if free < needed_bytes:
        detail += f", and a rebuild may need {size_text(needed_bytes)}"
        return warn(name, detail, "free some, or build elsewhere: rocketlens index build --out DIR")
    return ok(name, detail)


def print_check(check: Check) -> None:
    state = coloured(f"{check.state:5}", _COLOURS[check.state], sys.stdout)
    lines = wrap_lines(printable(check.text), len(_INDENT))
    print(f"{state} {check.name:{_NAME_WIDTH}} {lines[0]}")
    for line in lines[1:]:
        print(f"{_INDENT}{line}")


FREE_BYTES_NEEDED: Final = 1 << 30
_MIN_FILES: Final = 4096
"""A broker needs a file descriptor for each connection and each open file of the store."""
_SPARK_TOO: Final = "`index build` and `index verify` need it"


def machine_checks() -> Iterator[Check]:
    checks = {
        "RocketLens": _versions,
        "kernels": _kernels,
        "Java": _java,
        "PySpark": _pyspark,
        "PYSPARK_PYTHON": _workers,
        "temp dir": _temporary,
        "file limit": _file_limit,
        "clock": _clock,
    }
    for name, check in checks.items():
        yield from guarded(check, name)


def _versions() -> Iterator[Check]:
    yield ok("RocketLens", __version__)
    yield ok("Python", f"{platform.python_version()} ({sys.executable})")


def _kernels() -> Iterator[Check]:
    from rocketlens.formats.compiled import scan

    record = scan.find_start(bytes(64), 0, 0, 64)
    versions = f"numpy {np.__version__}"
    if record == -1:
        yield ok("kernels", f"{versions}: compiled code works")
    else:
        mend = "pip install --force-reinstall --no-deps rocketlens"
        yield fail("kernels", f"{versions}: compiled code fails", mend)


def _java() -> Iterator[Check]:
    from rocketlens.pipeline.session import INSTALL_JDK, OLDEST_JDK, find_java

    try:
        java, version = find_java()
    except RocketLensError as error:
        yield warn("Java", f"{error} ({_SPARK_TOO})", INSTALL_JDK)
        return
    detail = f"{version} ({java})"
    yield ok("Java", detail) if version >= OLDEST_JDK else warn("Java", detail, INSTALL_JDK)


def _pyspark() -> Iterator[Check]:
    from importlib import metadata

    versions = []
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield warn(
                "PySpark", f"{name} is not installed ({_SPARK_TOO})", install_command("spark")
            )
            return
    yield ok("PySpark", ", ".join(versions))


def _workers() -> Iterator[Check]:
    """Check that Spark's workers run the same Python as this program."""
    if find_spec("pyspark") is None:
        return
    name, this = "PYSPARK_PYTHON", sys.executable
    mend = f"export {name}={this}"
    chosen = os.environ.get(name)
    path = shutil.which(chosen or "python3")
    if path is None and chosen:
        yield warn(name, f"{chosen} is not a program", mend)
    elif path is not None and _is_same_python(path):
        yield ok(name, chosen or f"not set: Spark runs python3 of PATH, which is this one ({path})")
    elif chosen:
        yield warn(name, f"{chosen} is not the Python that runs this; commands use {this}", mend)
    else:
        runs = f"python3 of PATH is {path}" if path else "PATH has no python3"
        detail = (
            f"not set, and {runs}, not {this}: commands and rocketlens.spark() use the latter, but "
            "other Spark sessions do not find the source rocketmq"
        )
        yield warn(name, detail, mend)


def _is_same_python(path: str) -> bool:
    """Return True if a program is this Python, in the same virtual environment.

    Environments can link to the same file, so their directories are compared, too.
    """
    one, other = Path(path), Path(sys.executable)
    return one.resolve() == other.resolve() and one.parent.resolve() == other.parent.resolve()


def _temporary() -> Iterator[Check]:
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(b"rocketlens")
    yield free_space("temp dir", Path(tempfile.gettempdir()), FREE_BYTES_NEEDED)


def _file_limit() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _MIN_FILES:
        yield ok("file limit", f"{soft:,} files can be open")
        return
    mend = "ulimit -n 65536" if hard == resource.RLIM_INFINITY or hard >= 65_536 else ""
    mend = mend or f"ulimit -n {hard}, and raise the hard limit (LimitNOFILE=65536 in systemd)"
    detail = f"{soft:,} files can be open: a broker closes connections that find no room"
    yield warn("file limit", detail, mend)


def _clock() -> Iterator[Check]:
    now = datetime.now(UTC)
    zone = datetime.now().astimezone().strftime("%z")
    yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, local zone {zone}")

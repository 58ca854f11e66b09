"""Results as text: tables, ratios, goals."""

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = ("rocketlens", "numpy", "pyspark", "pyarrow")


def machine_lines() -> Iterator[str]:
    """Return lines about the machine and the versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    yield f"machine   {processor()}, {cores} cores, {memory_gib():.0f} GiB, {platform.system()}"
    yield f"load      {load} (1, 5, 15 minutes) at the start; others on the machine slow all of it"
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield f"versions  Python {platform.python_version()}, {versions}"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def heading(text: str) -> str:
    return f"\n== {text}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return aligned lines: the first column to the left, all others to the right."""
    lines = [titles, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(titles))]
    for line in lines:
        first, *others = [
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join((f"  {first}", *others)).rstrip()


def ratio(ours: float, theirs: float) -> str:
    """Return the ratio of two numbers as text, such as ``2.0x``."""
    return f"{ours / theirs:.1f}x" if theirs else "-"


def thirds_p99(samples: Sequence[float]) -> list[float]:
    """Return the 99th percentile of each third of samples in order of time."""
    size = max(len(samples) // 3, 1)
    parts = [sorted(samples[start : start + size]) for start in range(0, 3 * size, size)]
    return [part[len(part) * 99 // 100] for part in parts if part]


def goal(*, is_met: bool, text: str) -> str:
    """Return a line that compares a result with its goal."""
    return f"  {'reached' if is_met else 'MISSED '}  {text}"


def size_text(count: int) -> str:
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"

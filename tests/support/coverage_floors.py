"""How much of each room the tests reach: ``python -m tests.support.coverage_floors``.

Prints lines and branches of each room that ran, those of every file that has some left, and ends
with code 1 if a room is below its floor. ``make coverage`` measures first.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coverage import Coverage

PACKAGE = Path(__file__).parents[2] / "src" / "rocketlens"
DEFAULT_FLOOR = 85
FLOORS = {"formats": 100, "wire": 100, "store": 95, "query": 95}
"""Percent of lines and branches together."""


@dataclass(slots=True)
class Room:
    """What ran of a room's lines and branches, and what is left in its files."""

    name: str
    ran: int = 0
    total: int = 0
    left: dict[str, str] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        """The percentage below which it may not be."""
        return FLOORS.get(self.name, DEFAULT_FLOOR)

    @property
    def is_low(self) -> bool:
        """Whether it is below its floor; exact, so that 99.99 % is not 100 %."""
        return self.ran * 100 < self.floor * self.total

    def __str__(self) -> str:
        percent = self.ran * 100 / max(1, self.total)
        verdict = "  below its floor" if self.is_low else ""
        return f"{self.name:10} {percent:6.2f} %  of {self.total:6,}  floor {self.floor}{verdict}"


def rooms_of(files: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Room]:
    """Return the rooms, by name, of files as coverage's JSON has them.

    Modules beside the rooms, such as limits.py, are a room named ``.``.
    """
    rooms: dict[str, Room] = {}
    for path, measured in files:
        name = path.split("/")[0] if "/" in path else "."
        room = rooms.setdefault(name, Room(name))
        summary = measured["summary"]
        room.ran += summary["covered_lines"] + summary["covered_branches"]
        room.total += summary["num_statements"] + summary["num_branches"]
        lines = [str(line) for line in measured["missing_lines"]]
        branches = [
            f"{start}->{end}"
            for start, end in measured["missing_branches"]
            if start not in measured["missing_lines"]
        ]
        if lines or branches:
            room.left[path] = ", ".join([*lines, *branches])
    return sorted(rooms.values(), key=lambda room: room.name)


def measured_files(configuration: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return path below the package and figures of each file that was measured."""
    coverage = Coverage(config_file=str(configuration))
    coverage.combine(keep=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        # A test may have run a copy of the package, which is gone.
        coverage.json_report(outfile=report.name, include=[str(PACKAGE / "*")])
        files = json.load(report)["files"]
    root = Path.cwd()
    return [
        ((root / path).relative_to(PACKAGE).as_posix(), measured)
        for path, measured in files.items()
    ]


def main() -> int:
    """Write the figures to stdout; return 1 if a room is below its floor, else 0."""
    rooms = rooms_of(measured_files(Path(__file__).parents[2] / "pyproject.toml"))
    for room in rooms:
        for path, left in room.left.items():
            sys.stdout.write(f"{path}: {left}\n")
    sys.stdout.write("".join(f"{room}\n" for room in rooms))
    return int(any(room.is_low for room in rooms))


if __name__ == "__main__":
    sys.exit(main())

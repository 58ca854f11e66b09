"""The table of modules, and the size of each room.

``make map`` prints the sizes. The documentation includes the table.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).parents[1]
PACKAGE: Final = REPOSITORY / "src" / "rocketlens"
ROOMS: Final = (
    *("model", "formats", "wire", "store", "query", "net", "decode", "bulk", "archive"),
    *("client", "namesrv", "broker", "pipeline", "tap", "testing"),
    *("terminal", "cli", "mqadmin", "console"),
)
"""Lower rooms first."""

SUFFIXES: Final = (".py", ".pyx", ".pxd", ".c", ".h")
"""Files that count as source."""

_ROLE: Final = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?([^`]+)`")


class Size(NamedTuple):
    """The source files of a room."""

    modules: int
    lines: int


def main() -> None:
    for room, size in sizes().items():
        print(  # noqa: T201 - the purpose of the program
            f"{room:10} {size.modules:4} modules {size.lines:8,} lines"
        )


def sizes() -> dict[str, Size]:
    """Return the size of each room, of ``root`` modules, ``all`` source and ``tests``."""
    found = {room: _size(PACKAGE.joinpath(room).rglob("*")) for room in ROOMS}
    found["root"] = _size(PACKAGE.glob("*"))
    found["all"] = _size(REPOSITORY.joinpath("src").rglob("*"))
    found["tests"] = _size(REPOSITORY.joinpath("tests").rglob("*.py"))
    return found


def _size(paths: Iterator[Path]) -> Size:
    # Constants of kernels are generated.
    files = [
        path
        for path in paths
        if path.suffix in SUFFIXES and path.is_file() and not path.name.endswith("_constants.pxd")
    ]
    return Size(
        sum(path.suffix == ".py" for path in files),
        sum(path.read_bytes().count(b"\n") for path in files),
    )


def module_map() -> str:
    """Return the modules and their purposes as a Markdown table.

    :raises ValueError: if `ROOMS` does not match the packages.
    """
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    if rooms != set(ROOMS):
        raise ValueError(f"ROOMS of docs/module_map.py differs by {rooms ^ set(ROOMS)}")
    rows = ["| module | what it does |", "|---|---|", *_rows_of(PACKAGE)]
    for room in ROOMS:
        rows += _rows_of(PACKAGE / room)
    return "\n".join(rows)


def _rows_of(directory: Path) -> Iterator[str]:
    """Yield the rows of a package, its modules and its subpackages."""
    if directory != PACKAGE:
        purpose = _purpose(directory / "__init__.py")
        yield f"| **{directory.relative_to(PACKAGE).as_posix()}** | *{purpose}* |"
    for path in sorted(directory.glob("*.py")):
        if path.name != "__init__.py":
            name = path.relative_to(PACKAGE).with_suffix("").as_posix()
            yield f"| `{name if '/' in name else path.name}` | {_purpose(path)} |"
    if directory != PACKAGE:
        for package in sorted(directory.glob("*/__init__.py")):
            yield from _rows_of(package.parent)


def _purpose(path: Path) -> str:
    """Return the first paragraph of a module's docstring, as Markdown on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return _ROLE.sub(r"`\1`", paragraph).replace("``", "`").replace("|", "\\|").rstrip(".:")


if __name__ == "__main__":
    main()

"""Write the map of modules in ARCHITECTURE.md: a row a module, from its docstring.

    make map

The map stands between two marks. ``tests/unit/test_docs.py`` compares it with the modules.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
PACKAGE: Final = REPOSITORY / "src" / "rocketlens"
PAGE: Final = REPOSITORY / "ARCHITECTURE.md"
ROOMS: Final = (
    *("model", "formats", "wire", "store", "query", "net", "decode", "bulk", "archive"),
    *(
        "client",
        "namesrv",
        "broker",
        "pipeline",
        "tap",
        "testing",
        "terminal",
        "cli",
        "mqadmin",
        "console",
    ),
)
"""The order of the map: from below to above, rooms that belong together side by side."""

_MAP: Final = re.compile(r"(?<=<!-- modules -->\n).*(?=<!-- end of modules -->)", re.DOTALL)
_ROLE: Final = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?([^`]+)`")


def main() -> None:
    """Write the map into ARCHITECTURE.md."""
    PAGE.write_text(with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_map(page: str) -> str:
    """Return the page with the map of today's modules.

    :raises ValueError: if the page has no marks, or a room is not in `ROOMS`.
    """
    rows = "".join(f"{row}\n" for row in _rows())
    page, count = _MAP.subn(lambda _: rows, page)
    if count != 1:
        raise ValueError(f"{PAGE.name} needs one <!-- modules --> and one <!-- end of modules -->")
    return page


def _rows() -> Iterator[str]:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    if rooms != set(ROOMS):
        raise ValueError(f"docs/module_map.py: ROOMS lacks or has too many: {rooms ^ set(ROOMS)}")
    yield from ("", "| module | what it does |", "|---|---|")
    yield from _shelf(PACKAGE)
    for room in ROOMS:
        yield from _shelf(PACKAGE / room)
    yield ""


def _shelf(directory: Path) -> Iterator[str]:
    """Yield the rows of a directory: its own, those of its modules, those of its directories."""
    if directory != PACKAGE:
        purpose = _purpose(directory / "__init__.py")
        yield f"| **{directory.relative_to(PACKAGE).as_posix()}** | *{purpose}* |"
    for path in sorted(directory.glob("*.py")):
        if path.name != "__init__.py":
            name = path.relative_to(PACKAGE).with_suffix("").as_posix()
            yield f"| `{name if '/' in name else path.name}` | {_purpose(path)} |"
    if directory != PACKAGE:
        for package in sorted(directory.glob("*/__init__.py")):
            yield from _shelf(package.parent)


def _purpose(path: Path) -> str:
    """Return the first paragraph of a module's docstring, as Markdown on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return _ROLE.sub(r"`\1`", paragraph).replace("``", "`").replace("|", "\\|").rstrip(".:")


if __name__ == "__main__":
    main()

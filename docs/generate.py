"""Fills the pages of ``docs/`` with tables from the code. A hook of MkDocs, and importable.

A line ``<!-- generate: NAME ARGUMENTS -->`` in a page is replaced by the Markdown that the function
``NAME`` of :data:`GENERATORS` returns. So options, configuration keys and formats are written once,
in the code, and generated text is never committed. ``tests/unit/test_docs.py`` fills the pages
without MkDocs and compares them with the program.
"""

import argparse
import ast
import codecs
import inspect
import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Final

from rocketlens.main import build_parser, main
from rocketlens.mqadmin.commands import ONLY_REAL

DOCS: Final = Path(__file__).parent
REPOSITORY: Final = DOCS.parent
ROOT_PAGES: Final = {
    "ARCHITECTURE.md": "internals/architecture.md",
    "SECURITY.md": "internals/security.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
"""Root documents, and the pages that include them."""

_MARKER: Final = re.compile(r"^<!-- generate: (\w+)((?: \S+)*) -->$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")
_ROLE: Final = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?([^`]+)`")
_BOUND: Final = re.compile(r"^(?:MAX|MIN)_\w+: Final", re.MULTILINE)
_RULE: Final = re.compile(r"=+( +=+)+")


def on_config(config: Any) -> None:
    """Make this module importable for ``docs/docstrings.py``. Called by MkDocs."""
    del config
    sys.path.insert(0, str(REPOSITORY))


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Fill one page. Called by MkDocs."""
    return filled(markdown, page.file.src_uri)


def on_post_page(output: str, *, page: Any, **_: object) -> None:
    """Check that a page loads nothing from another host. Called by MkDocs.

    :raises ValueError: if it does.
    """
    for loaded in re.findall(r"<(?:script|link|img|iframe)\b[^>]*https?://[^>]*>", output):
        raise ValueError(f"{page.file.src_uri} loads from another host: {loaded}")


def pages() -> dict[str, str]:
    """Return all filled pages of ``docs/``, by path."""
    return {
        path.relative_to(DOCS).as_posix(): filled(
            path.read_text(encoding="utf-8"), path.relative_to(DOCS).as_posix()
        )
        for path in sorted(DOCS.rglob("*.md"))
    }


def filled(markdown: str, page: str) -> str:
    """Return a page with its markers replaced.

    :raises KeyError: if a marker names no generator.
    """

    def generated(marker: re.Match[str]) -> str:
        text = GENERATORS[marker[1]](*marker[2].split())
        return _links_from(text, page) if marker[1] in {"file", "section"} else text

    return _MARKER.sub(generated, markdown)


# Documents of the root.


def root_file(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """Return a second-level section of a root document; ``_`` in `heading` is a space."""
    _, _, rest = root_file(name).partition(f"\n## {heading.replace('_', ' ')}\n")
    if not rest:
        raise KeyError(f"{name} has no section {heading}")
    return rest.partition("\n## ")[0].strip()


def _links_from(text: str, page: str) -> str:
    """Point the links of a root document to pages, and replace links to other files by names."""
    up = "../" * page.count("/")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        inside = ROOT_PAGES.get(target) or (
            target.removeprefix("docs/") if target.startswith("docs/") else None
        )
        if inside is None:
            return text if "`" in text else f"`{text}`"
        return f"[{text}]({up}{inside}{anchor})"

    return _LINK.sub(link, text)


# The command line.


def commands() -> str:
    return "\n".join(_command_section(parser) for parser in leaf_parsers(build_parser()))


def leaf_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers without subcommands, in order."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from leaf_parsers(child)


def _command_section(parser: argparse.ArgumentParser) -> str:
    # argparse wraps the usage at the width of the terminal: join and wrap again.
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    parts = [f"## {parser.prog}", parser.description or ""]
    lines = textwrap.wrap(
        usage, 96, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    parts.append("```text\n" + "\n".join(lines) + "\n```")
    for group in parser._action_groups:
        rows = [
            (_names(action), _help(parser, action))
            for action in group._group_actions
            if "--help" not in action.option_strings
        ]
        if rows:
            title = {"positional arguments": "Argument", "options": "Option"}.get(
                group.title or "", (group.title or "").capitalize()
            )
            parts.append(table((title, "Meaning"), rows))
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog}\n```")
    return "\n\n".join(parts) + "\n"


def _names(action: argparse.Action) -> str:
    """Return an option with its value, or the name of an argument."""
    value = "" if action.nargs == 0 or action.metavar is None else f" {action.metavar}"
    if action.choices is not None:
        value = " " + "|".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return escaped(parser._get_formatter()._expand_help(action))


def mqadmin() -> str:
    overview = _printed("mqadmin", "help")
    names = re.findall(r"^ {3}(\w+)", overview, re.MULTILINE)
    parts = [f"```text\n{overview.strip()}\n```"]
    parts += [
        f"## {name}\n\n```text\n{_printed('mqadmin', 'help', name).strip()}\n```" for name in names
    ]
    others = ", ".join(f"`{name}`" for name in ONLY_REAL)
    parts.append(f"## Commands that only RocketMQ's own tool has\n\nOf RocketMQ 5.5.0: {others}.")
    return "\n\n".join(parts)


def _printed(*words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        main(words)
    return out.getvalue()


# Terminals.


def screen(columns: str, *words: str) -> str:
    """Return the output of a command on a terminal of `columns` columns, on the store of the demo.

    A non-zero exit code is shown as in a shell.
    """
    line = " ".join(words)
    printed, code = terminal_text(int(columns), line)
    asked = f"\n$ echo $?\n{code}" if code else ""
    return f"```console\n$ rocketlens {line}\n{printed}{asked}\n```"


@cache
def terminal_text(columns: int, line: str) -> tuple[str, int]:
    """Run a command on a terminal, in the demo's directory; return text and exit code."""
    from rocketlens.cli.demo import unpack

    leader, follower = pty.openpty()
    with tempfile.TemporaryDirectory() as directory:
        unpack(Path(directory))
        # A page must not show the configuration of the build machine.
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment = kept | {
            "COLUMNS": str(columns),
            "NO_COLOR": "1",
            "PAGER": "cat",
            "ROCKETLENS_STORE": "store",
            "TERM": "xterm",
            "TZ": "UTC",
            "XDG_CONFIG_HOME": directory,
            "XDG_STATE_HOME": directory,
        }
        with subprocess.Popen(
            [sys.executable, "-m", "rocketlens", *shlex.split(line)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
        ) as process:
            os.close(follower)
            printed = "".join(_read_terminal(leader))
        os.close(leader)
    lines = [_overwritten(each) for each in printed.replace("\r\n", "\n").splitlines()]
    return "\n".join(lines), process.returncode


_KEPT_VARIABLES: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR")


def _read_terminal(leader: int) -> Iterator[str]:
    """Yield the output until the last program closes the terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            read = os.read(leader, 1 << 16)
        except OSError:  # Linux reports the end as EIO
            return
        if not read:
            return
        yield decoder.decode(read)


def _overwritten(line: str) -> str:
    """Return a line as a terminal shows it, with carriage returns applied."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


# Docstrings.


def docstring(module: str) -> str:
    return markdown_of(docstring_of(module))


def docstring_of(module: str) -> str:
    """Return the docstring of a module from its source, because imports are slow."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(module)
    return ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""


def formats() -> str:
    from rocketlens import formats as package

    names = [module.name for module in iter_modules(package.__path__)]
    texts = {name: docstring_of(f"{package.__name__}.{name}") for name in names}
    return "\n\n".join(
        f"## {name}\n\n{markdown_of(text)}" for name, text in texts.items() if tables_of(text)
    )


def markdown_of(text: str) -> str:
    """Convert the reStructuredText of docstrings to Markdown."""
    lines = text.splitlines()
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if _RULE.fullmatch(line):
            stop = _table_end(lines, at)
            names, rows = rst_table(lines[at:stop])
            out.append(table(map(inline, names), [map(inline, row) for row in rows]))
            at = stop
        elif line.endswith("::"):
            out += [inline(line[:-1])] if line != "::" else []
            at += 1
            stop = at
            while stop < len(lines) and (not lines[stop] or lines[stop].startswith(" ")):
                stop += 1
            block = textwrap.dedent("\n".join(lines[at:stop])).strip("\n")
            out += ["```text", block, "```", ""]
            at = stop
        else:
            out.append(inline(line))
            at += 1
    return "\n".join(out)


def _table_end(lines: Sequence[str], start: int) -> int:
    """Return the index after the last rule of the table that begins at `start`."""
    for at in range(start + 1, len(lines)):
        if _RULE.fullmatch(lines[at]) and not "".join(lines[at + 1 : at + 2]).strip():
            return at + 1
    raise ValueError(f"a table without an end: {lines[start]}")


def rst_table(lines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of a simple table.

    Names are empty in a table with two rules. A line without its first cell continues the row
    above.
    """
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    cells = [[line[a:b].strip() for a, b in spans] for line in lines if not _RULE.fullmatch(line)]
    names = cells.pop(0) if _RULE.fullmatch(lines[2]) else [""] * len(spans)
    rows: list[list[str]] = []
    for row in cells:
        if row[0] or not rows:
            rows.append(row)
        else:
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], row, strict=True)]
    return names, rows


def tables_of(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return the names and rows of the tables with column names."""
    lines = text.splitlines()
    tables = []
    at = 0
    while at < len(lines):
        if _RULE.fullmatch(lines[at]):
            stop = _table_end(lines, at)
            tables.append(rst_table(lines[at:stop]))
            at = stop
        at += 1
    return [(names, rows) for names, rows in tables if any(names)]


def inline(text: str) -> str:
    return escaped(re.sub(r"``(.+?)``", r"`\1`", _ROLE.sub(r"`\1`", text)))


def escaped(text: str) -> str:
    """Escape ``<`` outside code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    names = list(names)
    return "\n".join([line(names), "|---" * len(names) + "|", *map(line, rows)])


# Configuration keys, fields, options, bounds.


def keys(module: str, name: str) -> str:
    return key_table(getattr(import_module(module), name))


def key_table(configuration: Any) -> str:
    from rocketlens.model.config_keys import OURS, keys_of

    rows = []
    for row in keys_of(configuration):
        default = str(row.default)
        default = default.lower() if isinstance(row.default, bool) else default
        shown = f"`{default}`" if default else ""
        since = {"": "4.9, 5", OURS: "no"}.get(row.since, row.since)
        cells = (row.type_name, row.unit, row.allowed_text, shown, since, row.meaning)
        rows.append((f"`{row.name}`", *cells))
    titles = ("Key", "Type", "Unit", "Allowed", "Default", "RocketMQ", "Meaning")
    return table(titles, rows)


def fields() -> str:
    from rocketlens.model.fields import FIELDS

    rows = []
    for name, each in FIELDS.items():
        names = ", ".join(f"`{one}`" for one in (name, *each.aliases))
        column = f"`{each.column}`" if each.column else ""
        rows.append((names, column, "yes" if each.is_filter else "", each.meaning))
    return table(("Field", "Column", "In expressions", "Meaning"), rows)


def source_options() -> str:
    from rocketlens.bulk.options import OPTIONS, READS

    rows = []
    for option in OPTIONS:
        has = "all reads" if option.readers == READS else ", ".join(option.readers)
        default = f"`{option.default}`" if option.default else ""
        rows.append((f"`{option.name}`", default, has, inline(option.meaning)))
    return table(("Option", "Default", "For", "Meaning"), rows)


def metrics() -> str:
    from rocketlens.broker.life.metrics import markdown_rows

    return "\n".join(markdown_rows())


def limits() -> str:
    rows = []
    for value, name, meaning in bounds():
        shown = f"{value:,}" if isinstance(value, int | float) else f"`{value}`"
        rows.append((f"`{name}`", shown, inline(" ".join(meaning.split()))))
    return table(("Bound", "Value", "Meaning"), rows)


def bounds() -> Iterator[tuple[Any, str, str]]:
    """Yield value, name and docstring of the shared bounds, then of those of single modules."""
    from rocketlens import limits as shared

    first = Path(shared.__file__)
    package = first.parent
    for path in (first, *sorted(set(package.rglob("*.py")) - {first})):
        is_shared = path == first
        if is_shared or _BOUND.search(path.read_text(encoding="utf-8")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            module = import_module(".".join(parts))
            for name, meaning in attribute_docs(module).items():
                if is_shared or name.startswith(("MAX_", "MIN_")):
                    yield getattr(module, name), name, meaning


def modules() -> str:
    return str(import_module("docs.module_map").module_map())


def attribute_docs(module: ModuleType) -> dict[str, str]:
    """Return the docstrings of assignments in a module and its classes, by name."""
    found: dict[str, str] = {}
    for parent in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(parent, ast.Module | ast.ClassDef):
            for statement, after in pairwise(parent.body):
                target = statement.target if isinstance(statement, ast.AnnAssign) else None
                if (
                    isinstance(target, ast.Name)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                ):
                    found[target.id] = str(after.value.value)
    return found


GENERATORS: Final[Mapping[str, Callable[..., str]]] = {
    "commands": commands,
    "docstring": docstring,
    "fields": fields,
    "file": root_file,
    "formats": formats,
    "keys": keys,
    "limits": limits,
    "metrics": metrics,
    "modules": modules,
    "mqadmin": mqadmin,
    "screen": screen,
    "section": section,
    "source_options": source_options,
}

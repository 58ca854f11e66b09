"""Fill the pages of ``docs/`` with what the program declares. A hook of MkDocs, and importable.

A line ``<!-- generate: NAME ARGUMENTS -->`` in a page is replaced by the Markdown that the function
of :data:`GENERATORS` with that name returns. So options, configuration keys, formats and the like
are written once, in the code; what is generated is never committed. ``tests/unit/test_docs.py``
fills the pages without MkDocs and compares them with the program.
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
"""Documents at the repository's root, and the pages that include them."""

_MARKER: Final = re.compile(r"^<!-- generate: (\w+)((?: \S+)*) -->$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")
_ROLE: Final = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?([^`]+)`")
_BOUND: Final = re.compile(r"^(?:MAX|MIN)_\w+: Final", re.MULTILINE)
_RULE: Final = re.compile(r"=+( +=+)+")


def on_config(config: Any) -> None:
    """Let the extension in ``docs/docstrings.py`` import this module. MkDocs calls this."""
    del config
    sys.path.insert(0, str(REPOSITORY))


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Fill one page. MkDocs calls this."""
    return filled(markdown, page.file.src_uri)


def on_post_page(output: str, *, page: Any, **_: object) -> None:
    """Check that a page loads nothing from another host. MkDocs calls this.

    :raises ValueError: when it does.
    """
    for loaded in re.findall(r"<(?:script|link|img|iframe)\b[^>]*https?://[^>]*>", output):
        raise ValueError(f"{page.file.src_uri} loads from another host: {loaded}")


def pages() -> dict[str, str]:
    """Return every page of ``docs/``, filled, by its path in there."""
    return {
        path.relative_to(DOCS).as_posix(): filled(
            path.read_text(encoding="utf-8"), path.relative_to(DOCS).as_posix()
        )
        for path in sorted(DOCS.rglob("*.md"))
    }


def filled(markdown: str, page: str) -> str:
    """Return a page with each marker replaced by what it stands for.

    :raises KeyError: when a marker names no generator.
    """

    def generated(marker: re.Match[str]) -> str:
        text = GENERATORS[marker[1]](*marker[2].split())
        return _links_from(text, page) if marker[1] in {"file", "section"} else text

    return _MARKER.sub(generated, markdown)


# Documents of the root.


def root_file(name: str) -> str:
    """Return a document of the repository's root."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """Return what stands under a second-level heading of a root document; ``_`` is a blank."""
    _, _, rest = root_file(name).partition(f"\n## {heading.replace('_', ' ')}\n")
    if not rest:
        raise KeyError(f"{name} has no section {heading}")
    return rest.partition("\n## ")[0].strip()


def _links_from(text: str, page: str) -> str:
    """Point the links of a root document to pages. One to another file becomes its name."""
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
    """Return a section for each command: what it does, how it is called, its options."""
    return "\n".join(_command_section(parser) for parser in leaf_parsers(build_parser()))


def leaf_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return the parsers that have no commands below them, in order."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from leaf_parsers(child)


def _command_section(parser: argparse.ArgumentParser) -> str:
    # The width of a usage line follows the terminal, which a page does not have.
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
    """Return an option with its value as one types it; an argument by its name."""
    value = "" if action.nargs == 0 or action.metavar is None else f" {action.metavar}"
    if action.choices is not None:
        value = " " + "|".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return escaped(parser._get_formatter()._expand_help(action))


def mqadmin() -> str:
    """Return the help of each command of ``rocketlens mqadmin``, as it is printed."""
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
    """Return what a command prints on a terminal of so many columns, on the store of the demo.

    An exit code that is not 0 is shown as a shell shows it.
    """
    line = " ".join(words)
    printed, code = terminal_text(int(columns), line)
    asked = f"\n$ echo $?\n{code}" if code else ""
    return f"```console\n$ rocketlens {line}\n{printed}{asked}\n```"


@cache
def terminal_text(columns: int, line: str) -> tuple[str, int]:
    """Run a command on a real terminal, above the store of the demo; return text and exit code."""
    from rocketlens.cli.demo import unpack

    leader, follower = pty.openpty()
    with tempfile.TemporaryDirectory() as directory:
        unpack(Path(directory))
        # A page must not show what the machine that builds it has configured.
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
    """Return what is printed until the last program closes its terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            read = os.read(leader, 1 << 16)
        except OSError:  # EIO, as Linux reports the end
            return
        if not read:
            return
        yield decoder.decode(read)


def _overwritten(line: str) -> str:
    """Return a line as a terminal shows it: what follows a carriage return is written over it."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


# Docstrings.


def docstring(module: str) -> str:
    """Return the docstring of a module as Markdown."""
    return markdown_of(docstring_of(module))


def docstring_of(module: str) -> str:
    """Return the docstring of a module, read from its source: importing some takes a second."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(module)
    return ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""


def formats() -> str:
    """Return a section for each on-disk format: the docstring of its module."""
    from rocketlens import formats as package

    names = [module.name for module in iter_modules(package.__path__)]
    texts = {name: docstring_of(f"{package.__name__}.{name}") for name in names}
    return "\n\n".join(
        f"## {name}\n\n{markdown_of(text)}" for name, text in texts.items() if tables_of(text)
    )


def markdown_of(text: str) -> str:
    """Return reStructuredText, as docstrings here have it, as Markdown."""
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
    """Return the index after the last rule of the table that begins at ``start``."""
    for at in range(start + 1, len(lines)):
        if _RULE.fullmatch(lines[at]) and not "".join(lines[at + 1 : at + 2]).strip():
            return at + 1
    raise ValueError(f"a table without an end: {lines[start]}")


def rst_table(lines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of a simple table, its rules included.

    Names are empty in a table with two rules. A line without its first cell goes on with the row
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
    """Return the tables of a docstring that have column names: those, and the rows."""
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
    """Return a line of reStructuredText as Markdown: roles and literals become code."""
    return escaped(re.sub(r"``(.+?)``", r"`\1`", _ROLE.sub(r"`\1`", text)))


def escaped(text: str) -> str:
    """Return text whose ``<`` and ``*`` outside code are characters, not markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown, with a bar inside a cell escaped."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    names = list(names)
    return "\n".join([line(names), "|---" * len(names) + "|", *map(line, rows)])


# Configuration keys, fields, options, bounds.


def keys(module: str, name: str) -> str:
    """Return the configuration keys of a class that declares them."""
    from rocketlens.model.config_keys import markdown_rows

    return "\n".join(markdown_rows(getattr(import_module(module), name)))


def fields() -> str:
    """Return the fields of a message, and which of them tables and expressions have."""
    from rocketlens.model.fields import FIELDS

    rows = []
    for name, each in FIELDS.items():
        names = ", ".join(f"`{one}`" for one in (name, *each.aliases))
        column = f"`{each.column}`" if each.column else ""
        rows.append((names, column, "yes" if each.is_filter else "", each.meaning))
    return table(("Field", "Column", "In expressions", "Meaning"), rows)


def source_options() -> str:
    """Return the options of the Spark data source, and which readers have them."""
    from rocketlens.bulk.options import OPTIONS, READS

    rows = []
    for option in OPTIONS:
        has = "all reads" if option.readers == READS else ", ".join(option.readers)
        default = f"`{option.default}`" if option.default else ""
        rows.append((f"`{option.name}`", default, has, inline(option.meaning)))
    return table(("Option", "Default", "For", "Meaning"), rows)


def metrics() -> str:
    """Return the table of values of a broker."""
    from rocketlens.broker.life.metrics import markdown_rows

    return "\n".join(markdown_rows())


def limits() -> str:
    """Return every bound: its value, and what its docstring says."""
    rows = []
    for value, name, meaning in bounds():
        shown = f"{value:,}" if isinstance(value, int | float) else f"`{value}`"
        rows.append((f"`{name}`", shown, inline(" ".join(meaning.split()))))
    return table(("Bound", "Value", "Meaning"), rows)


def bounds() -> Iterator[tuple[Any, str, str]]:
    """Yield value, name and docstring of the bounds that modules share, then of those of one."""
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
    """Return a table of all modules with their docstrings."""
    return str(import_module("docs.module_map").module_map())


def attribute_docs(module: ModuleType) -> dict[str, str]:
    """Return the docstrings of assignments, at the top of a module or of its classes, by name."""
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

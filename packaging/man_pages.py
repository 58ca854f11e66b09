"""Writes manual pages from the parsers of the commands: one of the program, one for each command.

    python packaging/man_pages.py DIR

`hatch_build.py` beside it puts them into the wheel, so that `man rocketlens-find` finds them where
a virtual environment's or a user's `share/man` is searched. They need nothing to be written with.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_STARTS_A_REQUEST = re.compile(r"^(?=[.'])", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the text of each page by its file name, such as ``rocketlens-find.1``."""
    from rocketlens.main import build_parser

    program = build_parser()
    commands = list(_commands(program))
    found = {"rocketlens.1": _program_page(program, commands)}
    for parser, purpose in commands:
        found[f"{_page_name(parser)}.1"] = _command_page(parser, purpose)
    return found


def write(directory: Path) -> list[Path]:
    """Write all pages into a directory, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages().items():
        path = directory / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            purposes = {each.dest: each.help or "" for each in action._choices_actions}
            for word, child in action.choices.items():
                below = list(_commands(child))
                yield from below or [(child, purposes.get(word, ""))]


def _program_page(
    program: argparse.ArgumentParser, commands: list[tuple[argparse.ArgumentParser, str]]
) -> str:
    purpose = program.description or ""
    parts = [*_head(program, purpose), ".SH COMMANDS"]
    for parser, what in commands:
        parts += [".TP", f".BR {_text(_page_name(parser))} (1)", _text(what)]
    parts += [*_options(program), *_end(program)]
    return "\n".join(parts) + "\n"


def _command_page(parser: argparse.ArgumentParser, purpose: str) -> str:
    parts = [*_head(parser, purpose), *_options(parser), *_end(parser)]
    return "\n".join([*parts, ".SH SEE ALSO", ".BR rocketlens (1)"]) + "\n"


def _head(parser: argparse.ArgumentParser, purpose: str) -> Iterator[str]:
    from rocketlens import __version__

    name = _page_name(parser)
    yield f'.TH "{name.upper()}" 1 "" "RocketLens {__version__}" "RocketLens"'
    yield from (
        ".SH NAME",
        f"{_text(name)} \\- {_text(purpose[:1].lower() + purpose[1:].rstrip('.'))}",
    )
    # The width of a usage line follows the terminal, which a page does not have.
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (".SH SYNOPSIS", _text(usage))
    yield from (".SH DESCRIPTION", _text(parser.description or purpose))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        actions = [
            each
            for each in group._group_actions
            if not isinstance(each, argparse._SubParsersAction) and each.help != argparse.SUPPRESS
        ]
        if actions:
            yield f'.SH "{_text((group.title or "options").upper())}"'
        for action in actions:
            yield from (".TP", f"\\fB{_text(_spelling(action))}\\fR")
            yield _text(parser._get_formatter()._expand_help(action)) if action.help else ""


def _spelling(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    if action.choices is not None:
        value = " " + "|".join(map(str, action.choices))
    if not action.option_strings:
        return str(action.metavar or action.dest)
    return ", ".join(f"{option}{value}" for option in action.option_strings)


def _end(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return what stands below the options: examples, exit codes."""
    for part in filter(None, (parser.epilog or "").split("\n\n")):
        title, _, rest = part.partition("\n")
        if title == "examples:":
            yield from (".SH EXAMPLES", ".nf", _text(rest), ".fi")
        elif part.startswith("exit codes: "):
            yield from (".SH EXIT STATUS", _text(part.removeprefix("exit codes: ")))
        else:
            yield from (".PP", _text(part))


def _page_name(parser: argparse.ArgumentParser) -> str:
    return parser.prog.replace(" ", "-")


def _text(text: str) -> str:
    """Return text that roff prints as it is."""
    return _STARTS_A_REQUEST.sub(r"\\&", text.replace("\\", "\\e").replace("-", "\\-"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))

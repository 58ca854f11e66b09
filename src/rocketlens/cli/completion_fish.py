"""The script that completes command lines in fish, made from the parsers of all commands."""

from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any, Final

KindOf = Callable[[Action], str | None]
"""Returns what the values of an option are: a kind of `completion --words`, FILE, DIR or None."""

# Commands stand before all options, so the begin of a line says which one it is.
_FUNCTIONS: Final = """\
function __rocketlens_behind
    set -l line (commandline -opc)
    set -e line[1]
    test "$line" = "$argv"
end
function __rocketlens_in
    set -l line (commandline -opc)
    set -e line[1]
    string match -q -- "$argv *" "$line "
end
function __rocketlens_words
    set -l line (commandline -opc) (commandline -ct)
    set -e line[1]
    rocketlens completion --words $argv -- $line 2>/dev/null
end
complete -c rocketlens -f
"""
_VALUES: Final = {
    None: "-x",
    "FILE": "-r -F",
    "DIR": "-x -a '(__fish_complete_directories)'",
    "topics": "-x -a '(__rocketlens_words topics)'",
    "contexts": "-x -a '(__rocketlens_words contexts)'",
}


def fish_script(parser: ArgumentParser, kind_of: KindOf) -> str:
    """Return the script for all commands of a parser."""
    return _FUNCTIONS + "\n".join(_lines(parser, "", kind_of))


def _lines(parser: ArgumentParser, command: str, kind_of: KindOf) -> Iterator[str]:
    """Return the lines for a command, and for those below it."""
    # argparse has no public list of arguments, and no public text of one's help.
    actions: list[Any] = parser._actions  # noqa: SLF001
    for action in actions:
        if isinstance(action.choices, dict):
            for each in action._get_subactions():  # noqa: SLF001
                condition = _quoted(f"__rocketlens_behind '{command}'")
                words = f"-a {each.dest} -d {_quoted(each.help or '')}"
                yield f"complete -c rocketlens -n {condition} {words}"
            for word, below in action.choices.items():
                yield from _lines(below, f"{command} {word}".strip(), kind_of)
        elif action.help != SUPPRESS:
            test = "in" if command else "behind"
            condition = _quoted(f"__rocketlens_{test} '{command}'")
            text = parser._get_formatter()._expand_help(action)  # noqa: SLF001
            words = _words(action, kind_of(action))
            if words:
                yield f"complete -c rocketlens -n {condition} {words} -d {_quoted(text)}"


def _words(action: Action, kind: str | None) -> str:
    """Return the options of ``complete`` for an argument; none if there is nothing to propose."""
    values = _VALUES[kind]
    if action.choices is not None:
        values = f"-x -a {_quoted(' '.join(map(str, action.choices)))}"
    if not action.option_strings:
        return values.removeprefix("-r ").removeprefix("-x").strip()
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-{'so'[len(name) > 2]} {name[1:]}"
        for name in action.option_strings
    ]
    return " ".join(names if action.nargs == 0 else [*names, values])


def _quoted(text: str) -> str:
    """Return a text as one word of fish."""
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""A command line parser with one-line errors that suggest corrections."""

import re
from argparse import PARSER, Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.output import ExitCode, note

_USAGE: Final = "usage: "
_NEGATIVE: Final = re.compile(r"-\.?\d")
"""A value rather than an option, although it starts with ``-``: ``-1``, or ``-2h``, a time.

As in Python 3.14; earlier versions accept only numbers.
"""
_MAX_MESSAGE: Final = 300
"""Characters of an error: arguments can have any length."""


_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "after": ("since",),
    "before": ("until",),
    "begin": ("since",),
    "bootstrap-server": ("namesrv",),
    "brokers": ("namesrv",),
    "count": ("max", "newest"),
    "end": ("until",),
    "filter": ("where",),
    "from": ("since",),
    "limit": ("max", "newest"),
    "listen": ("bind",),
    "max": ("newest",),
    "name-server": ("namesrv",),
    "nameserver": ("namesrv",),
    "newest": ("max",),
    "query": ("where",),
    "store": ("home",),
    "to": ("until",),
}
"""Names of options in other tools; the first one that the command has is suggested."""


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Lists commands under headings, without a line for the group of all commands."""

    def _format_action(self, action: Action) -> str:
        text = super()._format_action(action)
        heading = getattr(action, "heading", "")
        if action.nargs == PARSER:
            text = text.partition("\n")[2].removeprefix("\n")
        return f"\n{' ' * (self._current_indent - 2)}{heading}:\n{text}" if heading else text


class CommandParser(ArgumentParser):
    """An argument parser without abbreviations, whose errors suggest corrections."""

    def __init__(self, **options: Any) -> None:
        options = {"formatter_class": _HelpFormatter, "allow_abbrev": False, **options}
        super().__init__(**options)
        self._negative_number_matcher = _NEGATIVE
        self._folded: list[Action] = []
        self._folded_as = ""

    def add_commands(self) -> Any:
        """Return the object that adds the parsers of commands."""
        self._commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        return self._commands

    def head(self, heading: str) -> None:
        """Show a heading above the command that was added last."""
        vars(self._commands._choices_actions[-1])["heading"] = heading  # noqa: SLF001

    def fold(self, actions: Iterable[Action], text: str) -> None:
        """Show some options as ``text`` in the usage line; the help still lists them."""
        self._folded += actions
        self._folded_as = text

    def add_examples(self, examples: str) -> None:
        """Add examples at the end of the help.

        Each line is a command with a comment after two spaces.
        """
        lines: list[str] = []
        for line in filter(None, examples.split("\n")):
            command, mark, purpose = line.partition("  # ")
            lines += [f"  # {purpose}", f"  {command}"] if mark else [f"  {line}"]
        if lines:
            parts = ("examples:\n" + "\n".join(lines), self.epilog)
            self.epilog = "\n\n".join(filter(None, parts))

    def format_usage(self) -> str:
        self._fold_usage()
        return super().format_usage()

    def format_help(self) -> str:
        self._fold_usage()
        return super().format_help()

    def _fold_usage(self) -> None:
        if self._folded and self.usage is None:
            shown = [each for each in self._actions if each not in self._folded]
            formatter = self._get_formatter()
            formatter.add_usage(None, shown, [])
            lines = formatter.format_help().removeprefix(_USAGE).rstrip()
            indent = " " * (len(_USAGE) + len(self.prog) + 1)
            self.usage = f"{lines}\n{indent}[{self._folded_as}]".replace("%", "%%")

    def error(self, message: str) -> NoReturn:
        """Print an error on one line, and exit."""
        note(f"{message[:_MAX_MESSAGE]} (see {self.prog} --help)")
        self.exit(ExitCode.FAILED)

    def refuse_arguments(self, unknown: Sequence[str]) -> NoReturn:
        """Exit because of unknown arguments."""
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        meant = _meant_option(options[0], self._option_string_actions) if options else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)[:_MAX_MESSAGE]}{meant}")

    def refuse_command(
        self, word: str, commands: Iterable[str], synonyms: Mapping[str, str]
    ) -> NoReturn:
        """Exit because of an unknown command; ``synonyms`` are names in other tools."""
        self.error(f"no command {word[:_MAX_MESSAGE]!r}{suggestion(word, commands, synonyms)}")


def _meant_option(option: str, options: Collection[str]) -> str:
    """Return "; did you mean A?" with a synonym or the nearest option."""
    for meant in _SYNONYMS.get(option.removeprefix("--"), ()):
        if f"--{meant}" in options:
            return f"; did you mean --{meant}?"
    return suggestion(option, options)

"""The parser of a command line: complaints are one line, with what was probably meant."""

import re
from argparse import PARSER, Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.output import ExitCode, note

_USAGE: Final = "usage: "
_NEGATIVE: Final = re.compile(r"-\.?\d")
"""What is a value, and not an option, though it begins with ``-``: ``-1``, and ``-2h``, a time.

As in Python 3.14; before, only whole numbers and fractions were.
"""
_MAX_MESSAGE: Final = 300
"""Characters of a complaint: arguments can be of any length."""


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
"""What other tools call an option; it means the first of those that the command has."""


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Lists commands under their headings, without a line for all of them."""

    def _format_action(self, action: Action) -> str:
        text = super()._format_action(action)
        heading = getattr(action, "heading", "")
        if action.nargs == PARSER:
            text = text.partition("\n")[2].removeprefix("\n")
        return f"\n{' ' * (self._current_indent - 2)}{heading}:\n{text}" if heading else text


class CommandParser(ArgumentParser):
    """An argument parser that takes no abbreviations, and suggests what may have been meant."""

    def __init__(self, **options: Any) -> None:
        options = {
            "formatter_class": _HelpFormatter,
            "allow_abbrev": False,
            **options,
        }
        super().__init__(**options)
        self._negative_number_matcher = _NEGATIVE
        self._folded: list[Action] = []
        self._folded_as = ""

    def add_commands(self) -> Any:
        """Return what adds the parsers of commands to this one."""
        self._commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        return self._commands

    def head(self, heading: str) -> None:
        """Show a heading above the command that was added last."""
        vars(self._commands._choices_actions[-1])["heading"] = heading  # noqa: SLF001

    def fold(self, actions: Iterable[Action], text: str) -> None:
        """Show some options in the usage line as ``text``: each is explained below it."""
        self._folded += actions
        self._folded_as = text

    def add_examples(self, examples: str) -> None:
        """Add command lines to the help, behind the options.

        Each has a comment with what it is for, behind it or in the line before.
        """
        lines: list[str] = []
        for line in filter(None, examples.split("\n")):
            command, mark, purpose = line.partition("  # ")
            lines += [f"  # {purpose}", f"  {command}"] if mark else [f"  {line}"]
        if lines:
            parts = ("examples:\n" + "\n".join(lines), self.epilog)
            self.epilog = "\n\n".join(filter(None, parts))

    def format_usage(self) -> str:
        """Return the usage line, with folded options as words."""
        self._fold_usage()
        return super().format_usage()

    def format_help(self) -> str:
        """Return the help; its usage line is that of `format_usage`."""
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
        """Print what is wrong, in one line, and end the program."""
        note(f"{message[:_MAX_MESSAGE]} (see {self.prog} --help)")
        self.exit(ExitCode.FAILED)

    def refuse_arguments(self, unknown: Sequence[str]) -> NoReturn:
        """Refuse arguments that the command does not have."""
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        meant = _meant_option(options[0], self._option_string_actions) if options else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)[:_MAX_MESSAGE]}{meant}")

    def refuse_command(
        self, word: str, commands: Iterable[str], synonyms: Mapping[str, str]
    ) -> NoReturn:
        """Refuse a command that the program does not have; other tools have it as a synonym."""
        self.error(f"no command {word[:_MAX_MESSAGE]!r}{suggestion(word, commands, synonyms)}")


def _meant_option(option: str, options: Collection[str]) -> str:
    """Return "; did you mean A?" with the known option that one stands for, or resembles."""
    for meant in _SYNONYMS.get(option.removeprefix("--"), ()):
        if f"--{meant}" in options:
            return f"; did you mean --{meant}?"
    return suggestion(option, options)

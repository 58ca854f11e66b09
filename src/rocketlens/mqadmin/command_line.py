"""Parses command lines as Apache Commons CLI does, and prints its help.

An option is written as ``-t X``, ``-tX``, ``-t=X``, ``--topic X``, ``--topic=X`` or ``-topic X``. A
long name can be abbreviated if that is not ambiguous. Options without a value can be combined:
``-ah``. If an option is repeated, the first value counts. Source: ``DefaultParser``,
``HelpFormatter`` (with RocketMQ's width of 110).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rocketlens.errors import BadInput

WIDTH: Final = 110
_INDENT: Final = len("usage: ")


class Option(NamedTuple):
    """One option. `long` can end in a space, as in RocketMQ's help."""

    short: str
    long: str
    description: str
    flags: frozenset[str] = frozenset()
    """See `rocketlens.mqadmin.commands`."""
    description_4: str | None = None

    @property
    def takes_value(self) -> bool:
        return "no_value" not in self.flags

    @property
    def name(self) -> str:
        """The letter, or the long name without one."""
        return self.short or self.long


class SubCommand(NamedTuple):
    """One command: runs `function` of `module`, which is imported when it runs."""

    name: str
    purpose: str
    module: str
    function: str
    options: tuple[Option, ...]
    namespaced: bool = True
    """Whether -t and -g are a topic and a group, which get the namespace."""
    only_reads: bool = False
    """Whether read-only contexts allow it, except with an option that writes."""


COMMON: Final = (
    Option("h", "help", "Print help", frozenset({"no_value"})),
    Option("n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'"),
)

NAMES: Final = ("t", "g")
"""The letters of topics and consumer groups, in every command."""


class Given:
    """The given options by letter; options without a letter by name."""

    def __init__(self, values: dict[str, str | None]) -> None:
        self._values: Final = values

    def __contains__(self, letter: str) -> bool:
        return letter in self._values

    def text(self, letter: str) -> str | None:
        """Return the stripped value of an option, or None if it is missing."""
        value = self._values.get(letter)
        return None if value is None else value.strip()

    def required(self, letter: str) -> str:
        """Return the value of an option that `check_required` has checked."""
        return self.text(letter) or ""

    def number(self, letter: str, default: int, minimum: int, maximum: int = 2**63 - 1) -> int:
        """Return a number within bounds, or the default if the option is missing.

        :raises BadInput: if the value is not a number within the bounds.
        """
        text = self.text(letter)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise BadInput(f"invalid -{letter} {text[:40]!r}: expected a number")
        if not minimum <= int(text) <= maximum:
            raise BadInput(f"invalid -{letter} {text[:40]}: expected {minimum} to {maximum}")
        return int(text)

    def in_namespace(self, namespace: str) -> "Given":
        """Return the options with the namespace added to topic and group."""
        if not namespace:
            return self
        from rocketlens.client.connect.namespace import with_namespace

        full = {
            letter: with_namespace(namespace, value.strip())
            for letter, value in self._values.items()
            if letter in NAMES and value is not None
        }
        return Given({**self._values, **full})

    def flag(self, letter: str, *, default: bool = False) -> bool:
        """Return the value as Java's ``parseBoolean`` does."""
        text = self.text(letter)
        return default if text is None else text.lower() == "true"


def parse(options: Sequence[Option], arguments: Sequence[str]) -> Given:
    """:raises BadInput: if an option is unknown, ambiguous or incomplete, or a word is surplus."""
    return Given(_CommandLine(options).read(arguments))


def check_required(options: Iterable[Option], given: Given) -> None:
    """:raises BadInput: if a required option is missing."""
    missing = [
        option.short
        for option in options
        if {"required", "forgiven"} & option.flags == {"required"} and option.short not in given
    ]
    if missing:
        raise BadInput(f"Missing required option{'s' * (len(missing) > 1)}: {', '.join(missing)}")
    group = [option.short for option in options if "one_of" in option.flags]
    present = [letter for letter in group if letter in given]
    if group and len(present) != 1:
        raise BadInput(f"give exactly one of {', '.join(f'-{letter}' for letter in group)}")


class _CommandLine:
    """Parses one command line."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.by_letter: Final = {option.short: option for option in options if option.short}
        self.by_name: Final = {
            option.long: option for option in options if "ours" not in option.flags
        }
        self.ours: Final = {option.long: option for option in options if "ours" in option.flags}
        self.values: Final[dict[str, str | None]] = {}
        self.waiting: Option | None = None

    def read(self, arguments: Sequence[str]) -> dict[str, str | None]:
        is_over = False
        for word in arguments:
            if self.waiting is not None and not self._is_option(word):
                self._keep(self.waiting, _unquote(word))
            elif word == "--" and not is_over:
                self._check_value_given()
                is_over = True
            elif is_over or word == "-" or not word.startswith("-"):
                raise BadInput(f"{word[:60]!r} does not belong to an option")
            elif word.startswith("--"):
                self._check_value_given()
                self._long(word, word[2:])
            else:
                self._check_value_given()
                self._short_or_long(word, word[1:])
        self._check_value_given()
        return self.values

    def _check_value_given(self) -> None:
        if self.waiting is not None:
            raise BadInput(f"Missing argument for option: {self.waiting.name}")

    def _is_option(self, word: str) -> bool:
        """Return True for options: negative numbers and unknown options are values."""
        if len(word) < 2 or not word.startswith("-") or _is_number(word):
            return False
        name = word.lstrip("-").partition("=")[0]
        if self._matching(name) or (word.startswith("--") and name in self.ours):
            return True
        if word.startswith("--"):
            return word == "--"
        return bool(name) and (name in self.by_letter or name[0] in self.by_letter)

    def _matching(self, name: str) -> list[Option]:
        if name in self.by_name:
            return [self.by_name[name]]
        return [option for long, option in self.by_name.items() if name and long.startswith(name)]

    def _long(self, word: str, text: str) -> None:
        name, equals, value = text.partition("=")
        matching = [self.ours[name]] if name in self.ours else self._matching(name)
        if len(matching) > 1:
            names = ", ".join(option.long.strip() for option in matching)
            raise BadInput(f"Ambiguous option: {word[:60]!r} (could be: {names})")
        if not matching:
            raise BadInput(f"Unrecognized option: {word[:60]}")
        self._take(matching[0], word, value if equals else None)

    def _short_or_long(self, word: str, text: str) -> None:
        name, equals, value = text.partition("=")
        if name in self.by_letter:
            self._take(self.by_letter[name], word, value if equals else None)
        elif self._matching(name):
            self._long(word, text)
        else:
            self._parse_letters(word, text)

    def _parse_letters(self, word: str, text: str) -> None:
        for number, letter in enumerate(text):
            if letter not in self.by_letter:
                raise BadInput(f"Unrecognized option: {word[:60]}")
            option = self.by_letter[letter]
            if option.takes_value:
                self._take(option, word, text[number + 1 :] or None)
                return
            self._take(option, word)

    def _take(self, option: Option, word: str, value: str | None = None) -> None:
        """Record an option; `value` is the text in the same word, if any."""
        if option.takes_value:
            self.waiting = option
        elif value is None:
            self.values.setdefault(option.name, None)
        else:
            raise BadInput(f"Unrecognized option: {word[:60]}")
        if value is not None:
            self._keep(option, _unquote(value))

    def _keep(self, option: Option, value: str) -> None:
        self.values.setdefault(option.name, value)
        self.waiting = None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _unquote(value: str) -> str:
    """Remove the quotation marks around a value that contains no others."""
    inner = value[1:-1]
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in inner:
        return inner
    return value


def usage(command: str, options: Sequence[Option], *, is_5: bool) -> str:
    """Return the help of a command as RocketMQ prints it, with a newline at the end."""
    other = "only_4" if is_5 else "only_5"
    known = [option for option in (*COMMON, *options) if other not in option.flags]
    shown = sorted(known, key=lambda option: option.name.lower())
    apart = frozenset() if is_5 else frozenset({"apart_in_4"})
    group = [option for option in shown if "one_of" in option.flags and not apart & option.flags]
    parts = []
    for option in shown:
        if option in group:
            # RocketMQ prints a space for each further option of the group.
            is_first = option is group[0]
            parts.append(" | ".join(map(_option_text, group)) if is_first else "")
        else:
            parts.append(
                _option_text(option) if "required" in option.flags else f"[{_option_text(option)}]"
            )
    lines = _wrap(f"usage: mqadmin {command} {' '.join(parts)}", _INDENT)
    names = [
        f" {f'-{option.short},' if option.short else '   '}--{option.long}"
        f"{' <arg>' if option.takes_value else ''}"
        for option in shown
    ]
    column = max(map(len, names)) + 3
    for name, option in zip(names, shown, strict=True):
        description = option.description
        if not is_5 and option.description_4 is not None:
            description = option.description_4
        lines += _wrap(f"{name.ljust(column)}{description}", column)
    return "\n".join([*lines, ""])


def _option_text(option: Option) -> str:
    dashed = f"-{option.short}" if option.short else f"--{option.long}"
    return f"{dashed}{' <arg>' if option.takes_value else ''}"


def _wrap(text: str, indent: int) -> list[str]:
    lines = []
    cut = _cut(text)
    while cut is not None:
        lines.append(text[:cut].rstrip())
        text = " " * indent + text[cut:].strip()
        cut = _cut(text)
        if cut is not None and cut == indent - 1:
            cut = WIDTH
    return [*lines, text.rstrip()]


def _cut(text: str) -> int | None:
    """Return the end of the first line of a text, or None if the text is one line."""
    if len(text) <= WIDTH:
        return None
    space = text.rfind(" ", 0, WIDTH + 1)
    return space if space > 0 else WIDTH

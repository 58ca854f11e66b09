"""``rocketlens completion``: what a shell needs to complete command lines.

Commands, options and their choices stand in the script. Topics and contexts are asked for while a
line is typed, by the script, with ``--words``: of the store or the cluster that the line names.
"""

import itertools
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from rocketlens.cli.options import add_source
from rocketlens.cli.source import choose_source
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.terminal.contexts import all_contexts
from rocketlens.terminal.output import ExitCode

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_KINDS: Final = ("topics", "contexts")
_TIMEOUT_S: Final = 2.0
"""Seconds for which a Tab may wait for a cluster."""
_SOURCE_OPTIONS: Final = ("--store", "--namesrv", "-n", "--context")
_KIND_OF_OPTION: Final = {"--topic": "topics", "-t": "topics", "--context": "contexts"}
_SHELL_CHARACTERS: Final = frozenset(" \t$`\\\"'*?[]{}();<>|&!#~")
_BASH: Final = """
_rocketlens_words() {
  compgen -W "$(rocketlens completion --words "$1" -- "${COMP_WORDS[@]:1}" 2>/dev/null)" -- "$2"
}
_rocketlens_topics() { _rocketlens_words topics "$1"; }
_rocketlens_contexts() { _rocketlens_words contexts "$1"; }
"""
_ZSH: Final = """
_rocketlens_words() {
  local -a found
  found=(${(f)"$(rocketlens completion --words "$1" -- "${words[@]:1}" 2>/dev/null)"})
  compadd -a found
}
_rocketlens_topics() { _rocketlens_words topics }
_rocketlens_contexts() { _rocketlens_words contexts }
"""
_FISH: Final = """
function _rocketlens_words
  set -l line (commandline -opc) (commandline -ct)
  rocketlens completion --words $argv -- $line[2..] 2>/dev/null
end
"""
EXAMPLES: Final = (
    (
        "rocketlens completion bash",
        "for bash: into ~/.local/share/bash-completion/completions/rocketlens",
    ),
    ("rocketlens completion zsh", "for zsh: into ~/.zfunc/_rocketlens, with ~/.zfunc in fpath"),
    ("rocketlens completion fish", "for fish: into ~/.config/fish/completions/rocketlens.fish"),
    ("rocketlens completion tcsh", "for tcsh: into a file that ~/.tcshrc reads"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("shell", metavar="SHELL", nargs="?", help=f"one of {', '.join(SHELLS)}")
    parser.add_argument(
        "--words", choices=_KINDS, help="print topics or contexts, one a line, for the script"
    )
    parser.add_argument(
        "line", metavar="WORD", nargs="*", help="with --words: the command line so far, behind --"
    )


def run(arguments: Namespace) -> ExitCode:
    """Print the script of a shell, or the words that its script asks for."""
    if arguments.words:
        line = [word for word in (arguments.shell, *arguments.line) if word is not None]
        with suppress(Exception):
            # Whatever is wrong: a Tab prints no complaints.
            for word in _words(arguments.words, line):
                print(word)
        return ExitCode.OK
    if arguments.shell not in SHELLS or arguments.line:
        raise BadInput(f"which shell? One of {', '.join(SHELLS)}")
    print(script(arguments.shell, arguments.all_commands()))
    return ExitCode.OK


def script(shell: str, parser: ArgumentParser) -> str:
    """Return the script of a shell for all commands of a parser."""
    import shtab

    for each in _parsers(parser):
        for action in each._actions:  # noqa: SLF001 - argparse has no public list of them
            _mark(action)
    # A text for each shell, which its annotations do not know.
    preamble: Any = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
    return shtab.complete(parser, shell, root_prefix="rocketlens", preamble=preamble)


def _parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action.choices, dict):
            for each in action.choices.values():
                yield from _parsers(each)


def _mark(action: Action) -> None:
    """Set what completes the values of an option."""
    import shtab

    marked: Any = action
    kind = _kind_of(action)
    if kind in _KINDS:
        function = f"_rocketlens_{kind}"
        marked.complete = {"bash": function, "zsh": function, "fish": f"(_rocketlens_words {kind})"}
    elif kind is not None:
        marked.complete = shtab.DIRECTORY if kind == "DIR" else shtab.FILE


def _kind_of(action: Action) -> str | None:
    """Return what the values of an option are: one of `_KINDS`, DIR, FILE, or None for others."""
    for name in action.option_strings:
        if name in _KIND_OF_OPTION:
            return _KIND_OF_OPTION[name]
    return action.metavar if action.metavar in {"DIR", "FILE"} else None


def _words(kind: str, line: Sequence[str]) -> list[str]:
    """Return the words of a kind that can stand in a command line, sorted."""
    names = list(all_contexts()[1]) if kind == "contexts" else _topics(line)
    # A name that a shell would take for several words, or obey, is left out.
    return sorted(
        name
        for name in names
        if name == printable(name) and not _SHELL_CHARACTERS.intersection(name)
    )


def _topics(line: Sequence[str]) -> list[str]:
    parser = ArgumentParser(exit_on_error=False)
    add_source(parser)
    given: list[str] = []
    for word, following in itertools.pairwise((*line, "")):
        name, equals, _ = word.partition("=")
        if name in _SOURCE_OPTIONS:
            given += [word] if equals else [word, following]
    arguments = parser.parse_args(given)
    source = choose_source(arguments)
    access = source.cluster
    if access is None:
        from rocketlens.query.offline import open_store

        with open_store(source.directory) as store:
            return [topic.name for topic in store.topics().topics]
    from asyncio import run, timeout

    from rocketlens.client.mq_admin import MQAdmin

    async def ask() -> list[str]:
        async with (
            timeout(_TIMEOUT_S),
            MQAdmin(access.name_servers, **access.client_options) as admin,
        ):
            return [topic.name for topic in (await admin.topics()).topics]

    return run(ask())

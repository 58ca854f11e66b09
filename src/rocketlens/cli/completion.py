"""``rocketlens completion``: what a shell needs to complete command lines.

Commands, options and their choices stand in the script. Names of topics, groups, jobs and contexts,
and what mqadmin takes, are asked for while a line is typed, by the script, with ``--words``: topics
and groups are those of the store or the cluster that the line names.
"""

import itertools
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from rocketlens.cli.options import add_source, option
from rocketlens.cli.source import choose_source
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import jobs_directory
from rocketlens.terminal.contexts import all_contexts
from rocketlens.terminal.output import ExitCode

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_KINDS: Final = ("topics", "groups", "jobs", "contexts", "mqadmin")
_TIMEOUT_S: Final = 2.0
"""Seconds for which a Tab may wait for a cluster."""
_SOURCE_OPTIONS: Final = ("--store", "--namesrv", "-n", "--context")
_KIND_OF_OPTION: Final = {
    "--topic": "topics",
    "-t": "topics",
    "--to-topic": "topics",
    "--context": "contexts",
    "--group": "groups",
    "-g": "groups",
    "--to-group": "groups",
    "--groupName": "groups",
}
_KIND_OF_ARGUMENT: Final = {
    "TOPIC": "topics",
    "GROUP": "groups",
    "JOB": "jobs",
    "NAME": "contexts",
    "COMMAND ...": "mqadmin",
}
_SHELL_CHARACTERS: Final = frozenset(" \t$`\\\"'*?[]{}();<>|&!#~")
_BASH: Final = """
_rocketlens_words() {
  compgen -W "$(rocketlens completion --words "$1" -- "${COMP_WORDS[@]:1}" 2>/dev/null)" -- "$2"
}
""" + "".join(f'_rocketlens_{each}() {{ _rocketlens_words {each} "$1"; }}\n' for each in _KINDS)
_ZSH: Final = """
_rocketlens_words() {
  local -a found line
  line=(${(Q)${(z)LBUFFER}})
  [[ $LBUFFER == *" " ]] && line+=("")
  found=(${(f)"$(rocketlens completion --words "$1" -- "${line[@]:1}" 2>/dev/null)"})
  compadd -a found
}
""" + "".join(f"_rocketlens_{each}() {{ _rocketlens_words {each} }}\n" for each in _KINDS)
_FISH: Final = """
function _rocketlens_words
  set -l line (commandline -opc) (commandline -ct)
  rocketlens completion --words $argv -- $line[2..] 2>/dev/null
end
"""
EXAMPLES: Final = """
rocketlens completion bash  # for bash: into ~/.local/share/bash-completion/completions/rocketlens
rocketlens completion zsh  # for zsh: into ~/.zfunc/_rocketlens, with ~/.zfunc in fpath
rocketlens completion fish  # for fish: into ~/.config/fish/completions/rocketlens.fish
rocketlens completion tcsh  # for tcsh: into a file that ~/.tcshrc reads
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("shell", metavar="SHELL", nargs="?", help=f"one of {', '.join(SHELLS)}")
    option(parser, "--words", "print names of a kind, one a line, for the script", choices=_KINDS)
    parser.add_argument(
        "line", metavar="WORD", nargs="*", help="with --words: the command line so far, behind --"
    )


def run(arguments: Namespace) -> ExitCode:
    """Print the script of a shell, or the words that its script asks for."""
    if arguments.words:
        words = [word for word in (arguments.shell, *arguments.line) if word is not None]
        # Bash has what is around a colon or an equals sign as words of their own.
        line = "\0".join(words).replace("\0:\0", ":").replace("\0=\0", "=").split("\0")
        with suppress(Exception):
            # Whatever is wrong: a Tab prints no complaints.
            for word in _words(arguments, line):
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
    """Return what the values of an argument are: one of `_KINDS`, DIR, FILE, or None for others."""
    for name in action.option_strings:
        if name in _KIND_OF_OPTION:
            return _KIND_OF_OPTION[name]
    if not action.option_strings and action.metavar in _KIND_OF_ARGUMENT:
        return _KIND_OF_ARGUMENT[str(action.metavar)]
    return action.metavar if action.metavar in {"DIR", "FILE"} else None


def _words(arguments: Namespace, line: Sequence[str]) -> list[str]:
    """Return the words of a kind that can stand at the end of a command line, sorted."""
    kind = arguments.words
    names: Sequence[str] = ()
    if kind == "mqadmin":
        before = line[-2] if len(line) > 1 else ""
        kind = _KIND_OF_OPTION.get(before, "options" if before.startswith("-") else kind)
    if kind == "contexts":
        names = list(all_contexts()[1])
    elif kind == "jobs":
        names = [each.stem for each in jobs_directory().iterdir()]
    elif kind == "mqadmin":
        names = arguments.all_commands([kind]).parse_args([kind]).words_after(line[:-1])
    elif kind in {"topics", "groups"}:
        names = _names(kind, line)
    # A name that a shell would take for several words, or obey, is left out.
    return sorted(
        name
        for name in names
        if name == printable(name) and not _SHELL_CHARACTERS.intersection(name)
    )


def _names(kind: str, line: Sequence[str]) -> list[str]:
    """Return the names of the topics or groups of the source that a command line names."""
    parser = ArgumentParser(exit_on_error=False)
    add_source(parser)
    given: list[str] = []
    for word, following in itertools.pairwise((*line, "")):
        name, equals, _ = word.partition("=")
        if name in _SOURCE_OPTIONS:
            given += [word] if equals else [word, following]
    source = choose_source(parser.parse_args(given))
    access = source.cluster
    if access is None:
        from rocketlens.query.offline import open_store

        with open_store(source.directory) as store:
            return [each.name for each in getattr(getattr(store, kind)(), kind)]
    from asyncio import run, timeout

    from rocketlens.client.mq_admin import MQAdmin

    async def ask() -> list[str]:
        async with (
            timeout(_TIMEOUT_S),
            MQAdmin(access.name_servers, **access.client_options) as admin,
        ):
            return [each.name for each in getattr(await getattr(admin, kind)(), kind)]

    return run(ask())

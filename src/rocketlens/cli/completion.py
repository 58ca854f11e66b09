"""``rocketlens completion``: prints the completion script of a shell.

The script contains all commands, options and choices. For names of topics, groups, jobs and
contexts, and for commands of mqadmin, it runs ``rocketlens completion --words`` at each Tab. Topics
and groups come from the store or cluster that the line names.
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
"""How long a Tab waits for a cluster."""
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
    parser.add_argument("shell", metavar="SHELL", nargs="?", help=f"one of {', '.join(SHELLS)}")
    option(
        parser, "--words", "print the names of a kind, one per line, for the script", choices=_KINDS
    )
    parser.add_argument(
        "line", metavar="WORD", nargs="*", help="with --words: the command line so far, after --"
    )


def run(arguments: Namespace) -> ExitCode:
    if arguments.words:
        words = [word for word in (arguments.shell, *arguments.line) if word is not None]
        # Bash splits words at colons and equals signs.
        line = "\0".join(words).replace("\0:\0", ":").replace("\0=\0", "=").split("\0")
        with suppress(Exception):
            # A Tab prints no errors.
            for word in _words(arguments, line):
                print(word)
        return ExitCode.OK
    if arguments.shell not in SHELLS or arguments.line:
        raise BadInput(f"which shell? One of {', '.join(SHELLS)}")
    print(script(arguments.shell, arguments.all_commands()))
    return ExitCode.OK


def script(shell: str, parser: ArgumentParser) -> str:
    import shtab

    for each in _parsers(parser):
        for action in each._actions:  # noqa: SLF001 - argparse has no public list of them
            _set_completer(action)
    # shtab accepts a text per shell, but its annotations do not.
    preamble: Any = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
    return shtab.complete(parser, shell, root_prefix="rocketlens", preamble=preamble)


def _parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action.choices, dict):
            for each in action.choices.values():
                yield from _parsers(each)


def _set_completer(action: Action) -> None:
    import shtab

    marked: Any = action
    kind = _kind_of(action)
    if kind in _KINDS:
        function = f"_rocketlens_{kind}"
        marked.complete = {"bash": function, "zsh": function, "fish": f"(_rocketlens_words {kind})"}
    elif kind is not None:
        marked.complete = shtab.DIRECTORY if kind == "DIR" else shtab.FILE


def _kind_of(action: Action) -> str | None:
    """Return the kind of an argument's values: one of `_KINDS`, DIR, FILE, or None."""
    for name in action.option_strings:
        if name in _KIND_OF_OPTION:
            return _KIND_OF_OPTION[name]
    if not action.option_strings and action.metavar in _KIND_OF_ARGUMENT:
        return _KIND_OF_ARGUMENT[str(action.metavar)]
    return action.metavar if action.metavar in {"DIR", "FILE"} else None


def _words(arguments: Namespace, line: Sequence[str]) -> list[str]:
    """Return the sorted names of a kind that can end a command line."""
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
    # Leave out names that a shell would split or interpret.
    return sorted(
        name
        for name in names
        if name == printable(name) and not _SHELL_CHARACTERS.intersection(name)
    )


def _names(kind: str, line: Sequence[str]) -> list[str]:
    """Return the topics or groups of the source that a command line names."""
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

"""``rocketlens context``: lists and edits named clusters, stores and archives."""

import json
import os
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import add_list_output, add_source, option
from rocketlens.cli.printing import print_list
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import safe_json
from rocketlens.terminal.contexts import (
    CONTEXT_VARIABLE,
    DEFAULT,
    OPTIONS,
    SWITCHES,
    Context,
    add_context,
    all_contexts,
    change_contexts,
    config_path,
    remove_context,
)
from rocketlens.terminal.output import ExitCode, note

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

LIST_EXAMPLES: Final = """
rocketlens context list  # the named clusters, stores and archives
rocketlens context list -o json  # for a program
"""


def list_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "A star marks the default. Contexts are in ~/.config/rocketlens/config.toml, or in\n"
        "the file that ROCKETLENS_CONFIG names.\n"
        "exit codes: 0 there are contexts, 1 there are none, 2 an error."
    )
    add_list_output(parser)


def run_list(arguments: Namespace) -> ExitCode:
    default, contexts = all_contexts()
    if arguments.output == "json":
        values = [
            {"name": name, "default": name == default, **_public_fields(context)}
            for name, context in contexts.items()
        ]
        print(safe_json(json.dumps({"file": str(config_path()), "contexts": values}, indent=2)))
    elif contexts:
        rows = (
            ("*" if name == default else "", name, *_words(_public_fields(context)))
            for name, context in contexts.items()
        )
        print_list(arguments.output, ("", "NAME", "NAMES", "NOTES"), rows)
    if not contexts:
        note(f"there are no contexts in {config_path()}")
    return ExitCode.OK if contexts else ExitCode.NO


def _public_fields(context: Context) -> dict[str, object]:
    return {
        "store": context.store,
        "archive": context.archive,
        "namesrv": context.namesrv,
        "namespace": context.namespace,
        "access_control": context.access_key is not None,
        "tls": bool(context.tls or context.ca or context.cert or context.insecure),
        "read_only": bool(context.read_only),
    }


def _words(shown: dict[str, object]) -> tuple[str, str]:
    source = next(
        (f"{kind} {shown[kind]}" for kind in ("store", "archive") if shown[kind]),
        f"cluster {shown['namesrv'] or ''}",
    )
    notes = [f"namespace {shown['namespace']}"] if shown["namespace"] else []
    switches = {"access_control": "signs requests", "tls": "TLS", "read_only": "read-only"}
    notes += [switch for name, switch in switches.items() if shown[name]]
    return source.strip(), ", ".join(notes)


_FILES: Final = frozenset({"secret_key_file", "ca", "cert", "cert_key"})
ADD_EXAMPLES: Final = """
rocketlens context add test -n 127.0.0.1:9876 --use  # a cluster, as the default
# a cluster with access control, which no command may change
rocketlens context add prod -n 10.0.0.1:9876 --access-key reader --secret-key-file key --read-only
rocketlens context add backup --store /backup/rocketmq/store  # a store directory
rocketlens context add lake --archive s3://lake/rocketmq  # an archive
"""


def add_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "The file is ~/.config/rocketlens/config.toml, or the one that ROCKETLENS_CONFIG names.\n"
        "It holds no secrets, only the names of files that do.\n"
        "exit codes: 0 added, 2 an error."
    )
    parser.add_argument("name", metavar="NAME", help="letters, digits, _ and -")
    add_source(parser)
    add = partial(option, parser)
    add("--archive DIR", "an archive: a directory, or s3://BUCKET/PREFIX")
    add("--read-only", "commands that change the cluster refuse it")
    add("--use", "make it the default context")


def run_add(arguments: Namespace) -> ExitCode:
    if arguments.context is not None:
        raise BadInput("--context names an existing context: give --store, --archive or --namesrv")
    if sum(map(bool, (arguments.store, arguments.archive, arguments.namesrv))) != 1:
        raise BadInput(
            "a context names one source: give one of --store DIR, --archive DIR and --namesrv ADDR"
        )
    values = _values(arguments)

    def change(document: "TOMLDocument") -> None:
        add_context(document, arguments.name, values)
        if arguments.use:
            document[DEFAULT] = arguments.name

    note(f"added to {change_contexts(change)}")
    return ExitCode.OK


def _values(arguments: Namespace) -> dict[str, str | bool]:
    values: dict[str, str | bool] = {}
    if arguments.store:
        values["store"] = str(Path(arguments.store).absolute())
    elif arguments.archive:
        from rocketlens.archive.location import ArchiveLocation

        root = ArchiveLocation.of(arguments.archive)
        values["archive"] = root.root if root.is_remote else str(Path(root.root).absolute())
    else:
        values["namesrv"] = arguments.namesrv
    for name in (*OPTIONS, *SWITCHES):
        key = name.replace("-", "_")
        given = getattr(arguments, key)
        if key == "context" or given is None:
            continue
        values[key] = str(Path(given).absolute()) if key in _FILES else given
    if arguments.read_only:
        values["read_only"] = True
    for name in ("store", "archive"):
        if getattr(arguments, name) and len(values) > 1:
            raise BadInput(f"--{name} stands alone: the other options are for clusters")
    return values


USE_EXAMPLES: Final = """
rocketlens context use prod  # commands use it unless an option names a source
rocketlens context use backup  # a store, if the context names one
"""


def use_options(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 it is now the default, 2 an error."
    parser.add_argument("name", metavar="NAME", help="a context (rocketlens context list)")


def run_use(arguments: Namespace) -> ExitCode:
    name: str = arguments.name
    path = change_contexts(lambda document: document.update({DEFAULT: name}), existing=name)
    note(f"written to {path}")
    if os.environ.get(CONTEXT_VARIABLE, arguments.name) != arguments.name:
        raise BadInput(f"{CONTEXT_VARIABLE} is set and overrides the file: unset it")
    return ExitCode.OK


REMOVE_EXAMPLES: Final = """
rocketlens context remove test  # neither the cluster nor the store changes
rocketlens context remove prod  # if it was the default, there is none afterwards
"""


def remove_options(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 removed, 2 an error."
    parser.add_argument("name", metavar="NAME", help="a context (rocketlens context list)")


def run_remove(arguments: Namespace) -> ExitCode:
    name: str = arguments.name
    path = change_contexts(lambda document: remove_context(document, name), existing=name)
    note(f"removed from {path}")
    return ExitCode.OK

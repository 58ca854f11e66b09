"""``rocketlens context add``: one more named context in the user's file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from rocketlens.cli.options import add_source
from rocketlens.errors import BadInput
from rocketlens.terminal.connection_options import OPTIONS, SWITCHES
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

_FILES: Final = frozenset({"secret_key_file", "ca", "cert", "cert_key"})
EXAMPLES: Final = (
    ("rocketlens context add test -n 127.0.0.1:9876 --use", "a cluster, as the default"),
    (
        (
            "rocketlens context add prod -n 10.0.0.1:9876 --access-key reader --secret-key-file "
            "key --read-only"
        ),
        "one that checks access, and that no command may change",
    ),
    ("rocketlens context add backup --store /backup/rocketmq/store", "a store directory"),
    ("rocketlens context add lake --archive s3://lake/rocketmq", "an archive"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "The file is ~/.config/rocketlens/config.toml, or the one that ROCKETLENS_CONFIG names.\n"
        "It holds no secrets: name the file that has one.\n"
        "exit codes: 0 added, 2 an error."
    )
    parser.add_argument("name", metavar="NAME", help="letters, digits, _ and -")
    add_source(parser)
    parser.add_argument(
        "--archive", metavar="DIR", help="an archive: a directory, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--read-only", action="store_true", help="commands that change the cluster refuse it"
    )
    parser.add_argument("--use", action="store_true", help="make it the default context")


def run(arguments: Namespace) -> ExitCode:
    """Add a context to the file.

    :raises BadInput: if there is one of that name, or it names not one source.
    """
    from rocketlens.terminal.contexts import (
        all_contexts,
        config_path,
        with_context,
        with_default,
        write_contexts,
    )

    if arguments.context is not None:
        raise BadInput(
            "--context names a context that is there already: give --store, --archive or --namesrv"
        )
    if sum(map(bool, (arguments.store, arguments.archive, arguments.namesrv))) != 1:
        raise BadInput(
            "what is it the name of? Give one of --store DIR, --archive DIR and --namesrv ADDR"
        )
    # Whether the file can be used, and who may write it.
    all_contexts()
    path = config_path()
    text = path.read_text("utf-8") if path.exists() else ""
    text = with_context(text, arguments.name, _values(arguments))
    if arguments.use:
        text = with_default(text, arguments.name)
    write_contexts(path, text)
    all_contexts()
    note(f"added to {path}")
    return ExitCode.OK


def _values(arguments: Namespace) -> dict[str, str | bool]:
    """Return the settings of the context; paths are absolute."""
    values: dict[str, str | bool] = {}
    if arguments.store:
        values["store"] = str(Path(arguments.store).absolute())
    elif arguments.archive:
        from rocketlens.archive.location import ArchiveLocation

        root = ArchiveLocation.of(arguments.archive)
        values["archive"] = root.root if root.is_remote else str(Path(root.root).absolute())
    else:
        values["namesrv"] = arguments.namesrv
    for option in (*OPTIONS, *SWITCHES):
        key = option.replace("-", "_")
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

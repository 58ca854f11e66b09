"""``rocketlens context list``: the named contexts of the user, without their secrets."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import add_list_output
from rocketlens.terminal.exit_code import ExitCode

if TYPE_CHECKING:
    from rocketlens.terminal.contexts import Context

EXAMPLES: Final = (
    ("rocketlens context list", "which clusters and stores have a name"),
    ("rocketlens context list -o json", "for a program"),
    ("rocketlens context list --output table", "as it is without an option"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "The default one has a star. Contexts are in ~/.config/rocketlens/config.toml, or in\n"
        "the file that ROCKETLENS_CONFIG names.\n"
        "exit codes: 0 there are some, 1 there are none, 2 an error."
    )
    add_list_output(parser)


def run(arguments: Namespace) -> ExitCode:
    """Print a row for each context."""
    from rocketlens.cli.table import print_csv, print_rows
    from rocketlens.terminal.contexts import all_contexts, config_path
    from rocketlens.terminal.output import note

    default, contexts = all_contexts()
    if arguments.output == "json":
        import json

        from rocketlens.model.text.escape import safe_json

        rows = [
            {"name": name, "default": name == default, **_shown(context)}
            for name, context in contexts.items()
        ]
        print(safe_json(json.dumps({"file": str(config_path()), "contexts": rows}, indent=2)))
    elif contexts:
        (print_csv if arguments.output == "csv" else print_rows)(
            ("", "NAME", "NAMES", "NOTES"),
            (
                ("*" if name == default else "", name, *_words(_shown(context)))
                for name, context in contexts.items()
            ),
        )
    if not contexts:
        note(f"there are no contexts in {config_path()}")
    return ExitCode.OK if contexts else ExitCode.NO


def _shown(context: "Context") -> dict[str, object]:
    """Return what is not a secret."""
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

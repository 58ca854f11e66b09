"""``rocketlens doctor``: checks of this machine, and of a store, a cluster or an archive."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocketlens.cli.doctor.doctor_machine import Check, machine_checks, print_check
from rocketlens.cli.options import add_source
from rocketlens.cli.source import one_source
from rocketlens.terminal.cluster_access import cluster_access
from rocketlens.terminal.output import ExitCode

EXAMPLES: Final = (
    ("rocketlens doctor", "is all there that commands need?"),
    ("rocketlens doctor --store /data/rocketmq/store", "and is this store sound?"),
    ("rocketlens doctor -n 127.0.0.1:9876", "and this cluster?"),
    ("rocketlens doctor --archive /lake/rocketmq", "and this archive?"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "exit codes: 0 healthy, 1 a check failed, 2 wrong usage or an error.\n"
        "Each warning and failure ends with what mends it. A log of up to 4 GiB is read."
    )
    add_source(parser)
    parser.add_argument(
        "--archive", metavar="DIR", help="check an archive, a directory or s3://BUCKET/PREFIX"
    )


def run(arguments: Namespace) -> ExitCode:
    """Print a line for each check; the exit code is NO if one failed."""
    has_failed = False
    for check in _checks(arguments):
        print_check(check)
        has_failed |= check.state == "fail"
    return ExitCode.NO if has_failed else ExitCode.OK


def _checks(arguments: Namespace) -> Iterator[Check]:
    context = one_source(
        arguments, "--archive stands alone: give no --store, --namesrv or --context"
    )
    yield from machine_checks()
    if context.store is not None:
        from rocketlens.cli.doctor.doctor_store import store_checks

        yield from store_checks(Path(context.store))
    elif context.archive is not None:
        from rocketlens.cli.doctor.doctor_sources import archive_checks

        yield from archive_checks(context.archive)
    elif context.namesrv is not None:
        from rocketlens.cli.doctor.doctor_sources import cluster_checks

        yield from cluster_checks(cluster_access(context))

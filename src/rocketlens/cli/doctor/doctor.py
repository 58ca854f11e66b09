"""``rocketlens doctor``: checks this machine, and a store, a cluster or an archive."""

import re
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rocketlens.cli.doctor.doctor_machine import Check, machine_checks, print_check
from rocketlens.cli.options import add_source, add_text_output, add_watch, option
from rocketlens.cli.source import one_source
from rocketlens.terminal.cluster_access import cluster_access
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.output import ExitCode, moment_text

_WATCH_SECONDS: Final = 60
_NUMBER: Final = re.compile(r"(?<![\w.:/-])\d[\d,.]*[%KMGT]?(?![\w.:/-])")
"""A number that is not part of a name, an address or a time."""

EXAMPLES: Final = """
rocketlens doctor  # this machine: kernels, Java, Spark, disk
rocketlens doctor --store /data/rocketmq/store  # and a store
rocketlens doctor -n 127.0.0.1:9876  # and a cluster
rocketlens doctor --archive /lake/rocketmq  # and an archive
rocketlens doctor -n 127.0.0.1:9876 --watch -o json  # every minute, changes as JSON lines
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 healthy, 1 a check failed, 2 wrong usage or an error.\n"
        "Each warning and failure ends with a remedy. A log of up to 4 GiB is read.\n"
        "With --watch, warnings and failures are printed when they appear and disappear, until\n"
        "Ctrl-C: exit code 130."
    )
    add_watch(
        parser,
        _WATCH_SECONDS,
        "check again every SECONDS seconds (default: {}) and print only changes",
    )
    add_text_output(parser, "text (default), or one JSON object; with --watch one for each change")
    add_source(parser)
    option(parser, "--archive DIR", "check an archive, a directory or s3://BUCKET/PREFIX")


def run(arguments: Namespace) -> ExitCode:
    problems = _print_checks(arguments)
    while arguments.watch is not None:
        time.sleep(arguments.watch)
        problems = _print_checks(arguments, problems)
    return ExitCode.OK if _is_healthy(problems) else ExitCode.NO


def _print_checks(
    arguments: Namespace, known: Mapping[Check, Check] | None = None
) -> dict[Check, Check]:
    """Print all checks, or only what changed since `known`; return the problems.

    Problems are compared without the numbers in their text, which change all the time.
    """
    problems: dict[Check, Check] = {}
    checks: list[Check] = []
    is_json = arguments.output == "json"
    for check in _checks(arguments):
        checks.append(check)
        if known is None and not is_json:
            print_check(check)
        if check.state in {"warn", "fail"}:
            problems[check._replace(detail=_NUMBER.sub("#", check.detail))] = check
    now_ms = time.time_ns() // 1_000_000
    if known is not None:
        checks = [problems[each] for each in problems if each not in known]
        gone = (known[each] for each in known if each not in problems)
        checks += [Check("ok", each.name, f"no longer: {each.detail}") for each in gone]
        if checks and not is_json:
            print(moment_text(now_ms))
            for check in checks:
                print_check(check)
    if checks and is_json:
        healthy, each = _is_healthy(problems), [check._asdict() for check in checks]
        print(json_line({"time_ms": now_ms, "healthy": healthy, "checks": each}))
    sys.stdout.flush()
    return problems


def _is_healthy(problems: Mapping[Check, Check]) -> bool:
    return all(each.state != "fail" for each in problems.values())


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

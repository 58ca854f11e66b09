"""``rocketlens index verify``: do log, consume queues and index agree?"""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from rocketlens.cli.options import (
    add_dry_run,
    add_list_output,
    add_master,
    add_store,
    store_directory,
)
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from rocketlens.pipeline.verify import VerifyReport

_MAX_LISTED_OF_A_KIND: Final = 5
EXAMPLES: Final = (
    ("rocketlens index verify --store /data/rocketmq/store", "do log, queues and index agree?"),
    ("rocketlens index verify -o json", "each finding, for programs"),
    ("rocketlens index verify --master 'spark://host:7077'", "on a Spark cluster"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = "exit codes: 0 they agree, 1 they differ, 2 wrong usage or an error."
    add_store(parser)
    add_list_output(parser, "text for people (default), CSV of the findings, or one JSON object")
    add_dry_run(parser)
    add_master(parser)


def run(arguments: Namespace) -> ExitCode:
    """Compare the files, and print what differs."""
    from rocketlens.cli.index.spark import ProgressLine, session
    from rocketlens.query.offline import open_store

    store = store_directory(arguments)
    # Refuse a directory that is not a store before Spark takes seconds to start.
    open_store(store).close()
    if arguments.dry_run:
        from rocketlens.cli.index.index_build import read_lines
        from rocketlens.store.layout import StoreLayout

        for line in read_lines(StoreLayout.of(store)):
            print(line)
        print("nothing was compared or started (--dry-run)")
        return ExitCode.OK
    with session(arguments.master) as spark:
        from rocketlens.pipeline.verify import verify

        report = verify(spark, store, progress=ProgressLine())
    if arguments.output == "json":
        from rocketlens.terminal.as_json import json_line

        print(json_line(report_fields(report)))
    elif arguments.output == "csv":
        from dataclasses import astuple, fields

        from rocketlens.bulk.report import Finding
        from rocketlens.cli.table import print_csv

        print_csv([each.name for each in fields(Finding)], map(astuple, report.findings))
    else:
        for line in report_lines(report):
            print(line)
    for text in report.notes:
        note(text)
    return ExitCode.OK if report.is_sound else ExitCode.NO


def report_fields(report: "VerifyReport") -> dict[str, Any]:
    """Return a report as JSON values."""
    from dataclasses import asdict

    return {
        "store": str(report.store),
        "agrees": report.is_sound,
        "records": report.records,
        "log_end_offset": report.log_end_offset,
        "queues": report.queues,
        "queue_entries": report.queue_entries,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "counts": {str(kind): count for kind, count in report.counts.items()},
        "findings": [asdict(finding) for finding in report.findings],
        "not_compared": report.not_compared,
        "notes": report.notes,
    }


def report_lines(report: "VerifyReport") -> Iterator[str]:
    """Return a report for people: what was compared, some findings of each kind, the verdict."""
    end = f"up to physical offset {report.log_end_offset:,}"
    yield f"log             {counted(report.records, 'record')}, {end}"
    entries = counted(report.queue_entries, "entry", "entries")
    yield f"consume queues  {entries} in {counted(report.queues, 'queue')}"
    entries = counted(report.index_entries, "entry", "entries")
    yield f"index           {entries} in {counted(report.index_files, 'file')}"
    for kind, count in report.counts.items():
        yield f"{kind}: {count:,}"
        listed = [finding for finding in report.findings if finding.kind == kind]
        for finding in listed[:_MAX_LISTED_OF_A_KIND]:
            # Its kind is the heading.
            yield f"  {printable(str(finding).removeprefix(f'{kind}: '))}"
        if count > _MAX_LISTED_OF_A_KIND:
            yield f"  ... (-o json lists {len(listed):,})"
    for text in report.not_compared:
        yield f"not compared: {printable(text)}"
    if report.is_sound and report.not_compared:
        yield "log, consume queues and index agree, as far as they were compared"
    elif report.is_sound:
        yield "log, consume queues and index agree"
    else:
        total = report.counts.total()
        yield f"they differ: {counted(total, 'finding')}"
        store = shlex.quote(printable(str(report.store)))
        yield (
            "to mend: stop the broker, then: rocketlens index build --queues --store "
            f"{store} (what it replaces is kept aside); damaged log cannot be rebuilt"
        )

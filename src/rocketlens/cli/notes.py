"""What an answer is worth, in a few lines on stderr: what was searched, damaged, and missed."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from rocketlens.cli.output import GREEN, RED, YELLOW, coloured, printable, say
from rocketlens.cli.times import time_text, zone_text
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState

_MOST_LINES: Final = 20


def print_notes(answer: Answer, count: int | None = None) -> None:
    """Say on stderr how far an answer of ``count`` messages (default: its own) can be relied on."""
    for line in lines_of(answer, len(answer.messages) if count is None else count):
        say(line)


def lines_of(answer: Answer, count: int) -> Iterator[str]:
    """Give the notes of an answer, one line each, safe to print."""
    searched = [c for c in answer.coverage if c.state is SourceState.SEARCHED]
    newest_ms = max((c.indexed_to_ms or 0 for c in answer.coverage), default=0)
    upto = f", up to {time_text(newest_ms)} {zone_text(newest_ms)}" if newest_ms else ""
    verdict = (
        coloured("COMPLETE", GREEN, sys.stderr)
        if answer.complete
        else coloured("INCOMPLETE", RED, sys.stderr)
    )
    what = f"{count} message{'' if count == 1 else 's'}" if count else "nothing found"
    yield f"{what}, {verdict}: searched {_summary(searched)}{upto}"
    if answer.truncated:
        yield "more messages match: these are the newest"
    yield from _listed("", (c for c in searched if c.error))
    damaged = [c for c in answer.coverage if c.state is SourceState.DAMAGED]
    yield from _listed(
        coloured("damaged", YELLOW, sys.stderr) + ", and not needed for this answer: ", damaged
    )
    yield from _listed(coloured("failed", RED, sys.stderr) + ": ", answer.failures)
    if not answer.complete:
        yield "what failed could not be searched: messages there are missing above (exit code 3)"


def _summary(searched: Iterable[Coverage]) -> str:
    index_files = 0
    others = []
    for coverage in searched:
        if coverage.kind is SourceKind.INDEX_FILE:
            index_files += 1
        else:
            others.append(printable(coverage.source))
    if index_files:
        others.insert(0, f"{index_files} index file{'' if index_files == 1 else 's'}")
    return ", ".join(dict.fromkeys(others)) or "nothing"


def _listed(before: str, sources: Iterable[Coverage]) -> Iterator[str]:
    lines = [f"{before}{c.source}: {printable(c.error or '')}" for c in sources]
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"{before}{len(lines) - _MOST_LINES} more (all of them: -o json)"

"""Prints notes on an answer to stderr: searched sources, failures, damage, hints."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.output import GREEN, RED, YELLOW, coloured, moment_text, say

_MAX_LINES: Final = 20
_CONSUME_QUEUE: Final = SourceKind.CONSUME_QUEUE
_NOT_SEARCHED: Final = frozenset({SourceKind.TOPICS, SourceKind.FILTER})
"""Kinds of coverage that are not sources."""


def print_notes(
    answer: Answer, count: int | None = None, what: str = "message", *, verbose: bool = False
) -> None:
    """Print the notes of an answer to stderr; ``count`` is the number of its messages by default.

    ``what`` is the singular of the counted results.
    """
    number = len(answer.messages) if count is None else count
    for line in note_lines(answer, number, what, verbose=verbose):
        say(line)


def note_lines(
    answer: Answer, count: int, what: str = "message", *, verbose: bool = False
) -> Iterator[str]:
    """Return the notes of an answer, one line each, safe to print.

    A complete answer has one line, plus lines on waiting messages, pasted texts, bodies, gaps and
    damage, and if nothing was found on likely mistakes. ``verbose`` adds the other notes, which
    the first line counts.
    """
    failures = answer.failures
    searched = [c for c in answer.coverage if c.state is SourceState.SEARCHED and c not in failures]
    newest_ms = max((c.indexed_to_ms or 0 for c in answer.coverage), default=0)
    # If the newest searched message is in the answer, its time is in the table already.
    is_new = newest_ms and newest_ms not in {m.store_timestamp_ms for m in answer.messages}
    up_to = f", up to {moment_text(newest_ms)}" if is_new else ""
    verdict = (
        coloured("COMPLETE", GREEN, sys.stderr)
        if answer.complete
        else coloured("INCOMPLETE", RED, sys.stderr)
    )
    newest = " (more match: these are the newest)" if answer.truncated else ""
    result = f"{counted(count, what) if count else 'nothing found'}{newest}"
    noted = [c for c in searched if c.note]
    shown = [c for c in noted if _is_told(c) or (not count and c.kind is not _CONSUME_QUEUE)]
    hints = [*_source_lines("", (c for c in noted if c not in shown))]
    hints += [f"assumed, not read in full: {printable(each)}" for each in answer.relies_on]
    if answer.relies_on:
        hints.append("rocketlens find --exhaustive reads all that it searches")
    is_brief = answer.complete and not verbose
    more = f" (-v: {counted(len(hints), 'note')})" if hints and is_brief else ""
    yield f"{result}, {verdict}: searched {_summary(searched)}{up_to}{more}"
    yield from _oldest_lines(searched)
    yield from _undecompressed(answer.messages)
    yield from _source_lines("", shown)
    if not is_brief:
        yield from hints
    damaged = [c for c in answer.coverage if c.state is SourceState.DAMAGED]
    # An incomplete answer might have needed it.
    unneeded = ", and not needed for this answer" if answer.complete else ""
    yield from _source_lines(coloured("damaged", YELLOW, sys.stderr) + f"{unneeded}: ", damaged)
    yield from _source_lines(coloured("failed", RED, sys.stderr) + ": ", failures)
    if not answer.complete:
        yield "failed sources were not searched: their messages are missing above (exit code 3)"


def _oldest_lines(searched: Iterable[Coverage]) -> Iterator[str]:
    """Yield the time of each source's oldest message, and a gap between archive and brokers."""
    dated = [each for each in searched if each.held_from_ms is not None]
    archives = [each for each in dated if each.kind is SourceKind.ARCHIVE]
    others = [each for each in dated if each not in archives]
    for each in others:
        yield f"{printable(each.source)}: from {moment_text(each.held_from_ms or 0)} on"
    archived_to = min((each.indexed_to_ms or 0 for each in archives), default=None)
    begin = max((each.held_from_ms or 0 for each in others), default=0)
    if archived_to is not None and archived_to < begin:
        gap, times = coloured("gap", YELLOW, sys.stderr), map(moment_text, (archived_to, begin))
        yield f"{gap}: of {' to '.join(times)} messages may be in none"


def _undecompressed(messages: Iterable[MessageExt]) -> Iterator[str]:
    for count, message in enumerate((each for each in messages if each.body_error), 1):
        if count > _MAX_LINES:
            yield "and more bodies are shown as stored (all of them: -o json)"
            return
        yield body_note(message)


def body_note(message: MessageExt) -> str:
    """Return why a body is shown as stored, on one line, safe to print."""
    position = printable(message.position)
    return f"{position}: the body is shown as stored: {printable(message.body_error or '')}"


def _summary(searched: Iterable[Coverage]) -> str:
    """Return the searched sources in a few words; the JSON output has all of them."""
    index_files, tails = 0, 0
    others: list[str] = []
    logs: list[str] = []
    for coverage in searched:
        if coverage.kind is SourceKind.INDEX_FILE:
            index_files += 1
        elif coverage.kind is SourceKind.TAIL:
            tails += 1
        elif coverage.kind is SourceKind.COMMIT_LOG:
            logs.append(printable(coverage.source))
        elif coverage.kind is _CONSUME_QUEUE and coverage.note:
            # A later line names it.
            continue
        elif coverage.kind not in _NOT_SEARCHED:
            others.append(printable(coverage.source))
    if not (index_files or tails):
        others += logs
    parts = list(dict.fromkeys(others))
    if tails:
        parts.insert(0, "the rest of the log" if index_files or parts else "the log itself")
    if index_files:
        parts.insert(0, counted(index_files, "index file"))
    return " and ".join(parts) or "nothing in full"


def _is_told(coverage: Coverage) -> bool:
    """Return True for a note that every answer prints."""
    from rocketlens.query.kept import KEPT
    from rocketlens.query.pasted import PASTED

    return coverage.source in {KEPT, PASTED}


def _line_of(coverage: Coverage) -> str:
    text = printable(coverage.note or coverage.error or "")
    if getattr(coverage.note, "name", None) == "left_out":
        return f"{text} (--all searches them)"
    return text if _is_told(coverage) else f"{printable(coverage.source)}: {text}"


def _source_lines(before: str, sources: Iterable[Coverage]) -> Iterator[str]:
    lines = [f"{before}{_line_of(each)}" for each in sources]
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"{before}{len(lines) - _MAX_LINES} more (all of them: -o json)"

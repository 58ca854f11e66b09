"""All that a search finds, as a file: CSV or JSON lines, as `rocketlens export` writes them.

The file is sent while it is made, a page of the search at a time, the newest message first. Where
its reader takes nothing, a page and one line of it are all that is kept. One
that lacks messages ends with a line that says so: in CSV a row of one cell, ``# INCOMPLETE: ...``,
in JSON lines an object with ``complete`` false and the ``coverage`` that failed.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, Literal

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from rocketlens import limits
from rocketlens.console.failures import failure_of
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import ROW_THREADS, FoundPage, Searches
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.net.pace import in_thread
from rocketlens.terminal.as_json import coverage_fields, message_fields
from rocketlens.terminal.body_view import BodyView
from rocketlens.terminal.message_values import PIPED_COLUMNS, csv_cell, csv_row, defused

ExportForm = Literal["csv", "jsonl"]
MEDIA_TYPES: Final[dict[ExportForm, str]] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
}
_BODIES: Final = BodyView()
_MISSING: Final = "what failed was not searched: messages there are missing above"
_CLIENT_LEFT: Final = 499
"""A status that nothing receives."""


async def export(
    request: Request, searches: Searches, question: Question, form: ExportForm
) -> Response:
    """Return all that a search finds, to be downloaded; errors as `Searches.pages`.

    The first page is found before the answer begins, so that it has the status of an error.
    """
    pages = searches.pages(question, form)
    # Nothing else watches the connection until the answer begins.
    client_gone = asyncio.ensure_future(_client_left(request))
    first = asyncio.ensure_future(anext(pages))
    try:
        await asyncio.wait([client_gone, first], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            return Response(status_code=_CLIENT_LEFT)
        first_page = first.result()
    finally:
        client_gone.cancel()
        first.cancel()
        await asyncio.gather(client_gone, first, return_exceptions=True)
    return StreamingResponse(
        _file(first_page, pages, form),
        media_type=MEDIA_TYPES[form],
        headers={
            "Content-Disposition": f'attachment; filename="messages.{form}"',
            "X-Accel-Buffering": "no",
        },
    )


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _file(
    page: FoundPage | None, pages: AsyncGenerator[FoundPage], form: ExportForm
) -> AsyncIterator[bytes]:
    """Yield the file, whose first page is there already."""
    failures: dict[tuple[str, SourceKind], Coverage] = {}
    if form == "csv":
        yield _row(PIPED_COLUMNS)
    async with aclosing(pages):
        while page is not None:
            for each in page.answer.failures:
                # Of each part of a source the first: every page can have its own.
                failures.setdefault((each.source, each.kind), each)
            for some in _parts(page.messages):
                lines = await in_thread(partial(_lines, some, form), ROW_THREADS)
                # A piece is kept as long as its reader takes none, and the next waits here.
                for start in range(0, len(lines), limits.MAX_EXPORT_PIECE_BYTES):
                    yield lines[start : start + limits.MAX_EXPORT_PIECE_BYTES]
            try:
                page = await anext(pages, None)
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                why = failure.answer.error.message
                failed = Coverage("", SourceKind.COMMIT_LOG, SourceState.FAILED, None, why)
                failures["", failed.kind] = failed
                break
    if failures:
        yield _last_line(list(failures.values()), form)


def _parts(messages: Sequence[MessageExt]) -> Iterator[Sequence[MessageExt]]:
    """Yield some messages at a time, of few bytes: a line can be much larger than its message."""
    start = size = 0
    for number, message in enumerate(messages):
        size += len(message.body) + limits.MESSAGE_OVERHEAD_BYTES
        if size >= limits.MAX_EXPORT_PIECE_BYTES:
            yield messages[start : number + 1]
            start, size = number + 1, 0
    if start < len(messages):
        yield messages[start:]


def _lines(messages: Sequence[MessageExt], form: ExportForm) -> bytes:
    if form == "jsonl":
        return b"".join(_json_line(message_fields(each)) for each in messages)
    return b"".join(
        _row([csv_cell(each, name, _BODIES) for name in PIPED_COLUMNS]) for each in messages
    )


def _last_line(failures: Sequence[Coverage], form: ExportForm) -> bytes:
    if form == "jsonl":
        coverage = [coverage_fields(each) for each in failures]
        return _json_line({"complete": False, "error": _MISSING, "coverage": coverage})
    failed = [": ".join(filter(None, (each.source, each.error))) for each in failures]
    return _row([defused(f"# INCOMPLETE: {_MISSING}: {printable('; '.join(failed))}")])


def _row(cells: Sequence[str]) -> bytes:
    return csv_row(cells).encode("utf-8", "backslashreplace")


def _json_line(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"

"""The pages and the API of searches: an answer, a stream, or a file with all results.

A file is CSV or JSON lines, as `rocketlens export` writes them, newest message first. It is sent
while the search runs, and holds one page and one line at most while its client does not read. If
messages are missing, the last line says so: in CSV a row of one cell, ``# INCOMPLETE: ...``, in
JSON lines an object with ``complete`` false and the failed ``coverage``.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse
from msgspec.structs import asdict

from rocketlens import limits
from rocketlens.console.act.permission import may_act_at_all, may_send
from rocketlens.console.pages import (
    FORMS,
    Asked,
    Here,
    HereNow,
    answer_or_error,
    api_router,
    failure_of,
    known_failure,
    page_router,
)
from rocketlens.console.preferences import Reader
from rocketlens.console.search import addresses
from rocketlens.console.search.columns import SORT, USUAL, ListView, message_columns
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.search.reasons import notes_of, reasons_for, topics_instead
from rocketlens.console.search.search import ROW_THREADS, FoundSoFar, ResultPage, Searches
from rocketlens.console.values import MessageRow, SearchAnswer
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.net.pace import in_thread
from rocketlens.terminal.as_json import message_fields
from rocketlens.terminal.message_values import PIPED_COLUMNS, BodyView, csv_row, safe_cell, shown

ExportForm = Literal["csv", "jsonl"]
MEDIA_TYPES: Final[dict[ExportForm, str]] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
}
_BODIES: Final = BodyView()
_MISSING: Final = "failed sources were not searched: their messages are missing above"
_CLIENT_LEFT: Final = 499
"""A status that no client receives."""


async def export(
    request: Request, searches: Searches, question: Question, form: ExportForm
) -> Response:
    """Return all results as a download; errors as `Searches.pages`.

    The first page is found before the answer starts, so its errors have their status.
    """
    pages = searches.pages(question, form)
    # Until the answer begins, nothing else notices that the client disconnects.
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
    page: ResultPage | None, pages: AsyncGenerator[ResultPage], form: ExportForm
) -> AsyncIterator[bytes]:
    failures: dict[tuple[str, SourceKind], Coverage] = {}
    if form == "csv":
        yield _row(PIPED_COLUMNS)
    async with aclosing(pages):
        while page is not None:
            for each in page.answer.failures:
                # Keep the first failure of each part of a source: each page can have one.
                failures.setdefault((each.source, each.kind), each)
            for some in _parts(page.messages):
                lines = await in_thread(partial(_lines, some, form), ROW_THREADS)
                # Each yield waits until the client has read the piece.
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
    """Yield the messages in groups of few bytes, as a line can be much larger than its message."""
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
        _row([safe_cell(shown(each, name, _BODIES)) for name in PIPED_COLUMNS]) for each in messages
    )


def _last_line(failures: Sequence[Coverage], form: ExportForm) -> bytes:
    if form == "jsonl":
        coverage = [asdict(each) for each in failures]
        return _json_line({"complete": False, "error": _MISSING, "coverage": coverage})
    failed = [": ".join(filter(None, (each.source, each.error))) for each in failures]
    return _row([safe_cell(f"# INCOMPLETE: {_MISSING}: {printable('; '.join(failed))}")])


def _row(cells: Sequence[str]) -> bytes:
    return csv_row(cells).encode("utf-8", "backslashreplace")


def _json_line(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


_FIRST_VIEW_S: Final = 0.25
"""Seconds that a page waits for its answer before its script streams it."""
_EXPORTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "a line for each message; the last line can name what is missing",
        "content": {each.partition(";")[0]: {} for each in MEDIA_TYPES.values()},
    }
}
api = api_router()
pages = page_router()


@api.get("/search")
async def search(here: Here, question: Asked) -> SearchAnswer:
    """Return a page of matching messages, newest first, and the coverage of the search."""
    _check_not_empty(question)
    searches = here.searches
    return await searches.with_counts(question, await searches.search(question))


@api.get("/search/stream", response_class=StreamingResponse)
async def stream(here: Here, question: Asked) -> StreamingResponse:
    """Send ``found`` events as messages come, then ``answer``, or ``error``."""
    _check_not_empty(question)
    # Errors need a status, so find them before the answer begins.
    here.searches.check(question)
    return _event_stream(_json_events(here.searches, question))


@api.get("/export", response_class=StreamingResponse, responses=_EXPORTED)
async def exported(
    here: Here,
    question: Asked,
    form: Annotated[ExportForm, Query(alias="as", description="the format")] = "jsonl",
) -> Response:
    """Send all messages that match, the newest first, as a file to download.

    ``max`` and ``cursor`` are not used. If messages are missing, the last line says so.
    """
    _check_not_empty(question)
    return await export(here.request, here.searches, question, form)


@pages.get("/")
@pages.get("/search")
async def _search_page(
    here: Here, question: Asked, form: Literal["any", "time", "key", "id"] = "any"
) -> Response:
    values = _question_values(here, question) | await _saved_values(here, question)
    if question.is_empty:
        return here.page("search.html", **values, form=form, answer=None)
    patience = _FIRST_VIEW_S if here.preferences.has_script else None
    searches = here.searches
    try:
        # A slow search is cancelled: the page's script repeats it as a stream.
        async with asyncio.timeout(patience):
            answer = await searches.search(question, may_be_streamed=patience is not None)
    except TimeoutError:
        return here.page("search.html", **values | {"is_open": True}, form=form, answer=None)
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        failure = known_failure(error)
        if isinstance(error, TopicNotFound):
            values["instead"] = await topics_instead(question, here.sources)
        return here.failure(failure, **values, form=form)
    values |= await _answer_values(here, question, answer)
    return here.page("search.html", **values, form=form)


@pages.get("/search/rows")
async def _rows(here: Here, question: Asked) -> Response:
    return _event_stream(_html_events(here, question))


@pages.get("/search/more")
async def _more(here: Here, question: Asked) -> Response:
    answer = await here.searches.search(question)
    rows = answer.messages
    return here.page(
        "more_rows.html", question=question, answer=answer, choosable=_choosable(here, rows)
    )


def _check_not_empty(question: Question) -> None:
    if question.is_empty:
        raise BadInput(NOTHING_ASKED)


def _question_values(here: HereNow, question: Question) -> dict[str, Any]:
    """Return the values of a search page, apart from its answer."""
    try:
        chosen = here.sources.chosen(question.sources)
    except BadInput:
        chosen = list(here.sources)
    view = ListView(here.request, message_columns(question.columns), "/search")
    form = here.request.query_params.get("form", "")
    # Links in streamed parts keep the form and the order, too.
    kept = [(SORT, view.sort), ("form", form if form in FORMS else "")]
    more = urlencode([each for each in kept if each[1]])
    has_rules = bool(here.searches.rules)
    # Changing the time zone keeps the times in the zone in which they were typed.
    kept_form = f"&form={form}" if form in FORMS else ""
    back = {"here": question.address("/search") + kept_form} if question.zone_name else {}
    return {
        "question": question,
        **back,
        "is_open": False,
        "view": view,
        "stream": question.address("/search/rows") + (f"&{more}" if more else ""),
        "link": here.origin + question.address("/search"),
        "command": addresses.find_command(question, chosen, has_rules=has_rules),
        "sql": addresses.sql_command(question, chosen, has_rules=has_rules),
        "curl": addresses.curl_command(here.origin + question.address("/api/search")),
    }


async def _saved_values(here: HereNow, question: Question) -> dict[str, Any]:
    """Return the values of a search page about saved searches."""
    searches = here.console.saved
    saved, error = await answer_or_error(searches.seen())
    own = (each for each in saved or () if searches.is_own(each) and each.is_for(question))
    return {
        "saved": saved or [],
        "alarm_of": searches.alarm_of,
        "saved_as": next(own, None),
        "saved_error": error,
    }


async def _answer_values(here: HereNow, question: Question, answer: SearchAnswer) -> dict[str, Any]:
    """Return the values of the part of a search page with the answer."""
    return {
        "answer": await here.searches.with_counts(question, answer),
        "reasons": await reasons_for(question, answer, here.sources),
        "notes": notes_of(question, answer.coverage),
        "choosable": _choosable(here, answer.messages),
        "may_choose": may_act_at_all(here.sources),
        "story": _story_address(question, answer.messages),
    }


def _story_address(question: Question, rows: Sequence[MessageRow]) -> str:
    """Return the address of the story of a key with several messages; else empty."""
    ids = {each.unique_key or each.offset_msg_id for each in rows}
    if not question.text or len(ids) < 2:
        return ""
    return question.address("/story", cursor=None, sources=(rows[0].source,))


def _choosable(here: HereNow, rows: Sequence[MessageRow]) -> frozenset[str]:
    """Return the paths of the messages that the user may send again."""
    allowed = {
        (source, topic)
        for source, topic in {(each.source, each.topic) for each in rows}
        if may_send(here.sources, here.sources.named(source), topic)
    }
    return frozenset(each.path for each in rows if (each.source, each.topic) in allowed)


def _event(name: str, content: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in content.split("\n"))
    return f"event: {name}\n{lines}\n".encode()


def _event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return server-sent events, which proxies must not buffer."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _json_events(searches: Searches, question: Question) -> AsyncIterator[bytes]:
    try:
        async for each in searches.stream(question):
            if isinstance(each, FoundSoFar):
                progress = {
                    "rows": [row.model_dump() for row in each.rows],
                    "coverage": [part.model_dump() for part in each.coverage],
                    "elapsed_ms": each.elapsed_ms,
                    "read": None if each.read is None else each.read._asdict(),
                }
                yield _event("found", json.dumps(progress))
            else:
                yield _event("answer", each.model_dump_json())
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        yield _event("error", known_failure(error).answer.model_dump_json())


async def _html_events(here: HereNow, question: Question) -> AsyncIterator[bytes]:
    columns = question.columns or USUAL
    try:
        async for each in here.searches.stream(question):
            if isinstance(each, FoundSoFar):
                if each.rows or each.coverage:
                    values = {"rows": each.rows, "coverage": each.coverage, "columns": columns}
                    yield _event("found", here.render("part_found.html", **values))
                yield _event("waiting", progress_text(here.reader, each))
            else:
                values = await _answer_values(here, question, each)
                view = ListView(here.request, message_columns(question.columns), "/search")
                html = here.render("part_answer.html", question=question, view=view, **values)
                yield _event("answer", html)
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        shown = known_failure(error).answer.error
        yield _event("failure", here.render("part_failure.html", error=shown))


def progress_text(reader: Reader, progress: FoundSoFar) -> str:
    """Return how long a search runs, how much it has read, and how much is left."""
    read = progress.read
    parts = [reader("answer.waiting", seconds=round(progress.elapsed_ms / 1000))]
    if read is not None:
        size, messages = reader.size(read.read_bytes), reader.number(read.messages)
        total = read.total_bytes
        if total:
            part = reader.percent(min(1, read.read_bytes / total))
            values = {"size": size, "total": reader.size(total), "part": part}
            parts.append(reader("answer.read_of", messages=messages, **values))
        else:
            parts.append(reader("answer.read", messages=messages, size=size))
        left_ms = read.left_ms(progress.elapsed_ms)
        if left_ms is not None:
            parts.append(reader("answer.left", time=reader.span(left_ms)))
    return reader("answer.between").join(parts)

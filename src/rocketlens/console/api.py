"""The API: the same answers as the pages, as JSON, with their coverage."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from rocketlens import __version__, limits
from rocketlens.console.failures import failure_of
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.message.message_view import BodyForm
from rocketlens.console.search.export import MEDIA_TYPES, ExportForm, export
from rocketlens.console.search.parameters import Addressed, Asked
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.search.search import FoundSoFar, Searches
from rocketlens.console.values import (
    ErrorAnswer,
    GroupsValue,
    MessageDetail,
    SearchAnswer,
    SourcesValue,
    SourceValue,
    StoryValue,
    TopicsValue,
)
from rocketlens.errors import BadInput

MESSAGE: Final = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorAnswer, "description": "a value that cannot be used"},
    404: {"model": ErrorAnswer, "description": "everything was searched, and it is not there"},
    429: {"model": ErrorAnswer, "description": "too much is asked at once: try again"},
    502: {"model": ErrorAnswer, "description": "not everything could be searched"},
}
_EXPORTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "a line for each message; the last one can say what is missing",
        "content": {each.partition(";")[0]: {} for each in MEDIA_TYPES.values()},
    }
}
Sourced = Annotated[
    list[str],
    Query(max_length=limits.MAX_CONSOLE_SOURCES, description="sources by name; or all"),
]
Name = Annotated[str | None, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]


def event(name: str, content: str) -> bytes:
    """Return a server-sent event."""
    lines = "".join(f"data: {line}\n" for line in content.split("\n"))
    return f"event: {name}\n{lines}\n".encode()


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return an answer of server-sent events, which nothing between may keep back."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def api_routes(searches: Searches, look_up: LookUps) -> APIRouter:
    """Return the routes of the API."""
    routes = APIRouter(prefix="/api", responses=ERRORS)

    @routes.get("/search")
    async def search(question: Asked) -> SearchAnswer:
        """Return a page of the messages that match, the newest first, and what was searched."""
        _check_not_empty(question)
        return await searches.search(question)

    @routes.get("/search/stream", response_class=StreamingResponse)
    async def stream(question: Asked) -> StreamingResponse:
        """Send ``found`` events as messages come, then ``answer``, or ``error``."""
        _check_not_empty(question)
        # An answer that has begun has its status already.
        searches.check(question)
        return event_stream(_events(searches, question))

    @routes.get("/export", response_class=StreamingResponse, responses=_EXPORTED)
    async def exported(
        request: Request,
        question: Asked,
        form: Annotated[ExportForm, Query(alias="as", description="the format")] = "jsonl",
    ) -> Response:
        """Send all messages that match, the newest first, as a file to download.

        ``max`` and ``cursor`` are not used. If messages are missing, the last line says so.
        """
        _check_not_empty(question)
        return await export(request, searches, question, form)

    @routes.get("/message" + MESSAGE)
    async def message(address: Addressed, form: BodyForm = "decoded") -> MessageDetail:
        """Return all about one message."""
        return await look_up.detail(address, form)

    @routes.get("/message" + MESSAGE + "/body", response_class=Response)
    async def body(address: Addressed) -> Response:
        """Return the bytes of a body, as a file to download."""
        return body_file(await look_up.message(address))

    @routes.get("/story" + MESSAGE)
    async def story(address: Addressed, group: Name = None) -> StoryValue:
        """Return what became of a message, and what groups did with it."""
        return await look_up.story(address, group)

    @routes.get("/topics")
    async def topics(source: Sourced = [], topic: Name = None) -> TopicsValue:  # noqa: B006
        """Return topics: their queues, messages and times."""
        return await look_up.topics(source, None if topic is None else [topic])

    @routes.get("/groups")
    async def groups(source: Sourced = [], group: Name = None) -> GroupsValue:  # noqa: B006
        """Return consumer groups: their members, and how far they came."""
        return await look_up.groups(source, group)

    @routes.get("/sources")
    async def sources(_: Request) -> SourcesValue:
        """Return the sources of this console."""
        values = [SourceValue.of(each) for each in searches.sources]
        return SourcesValue(sources=values, version=__version__)

    return routes


def body_file(message: Any) -> Response:
    """Return the bytes of a body: never as something that a browser shows."""
    name = f"{message.queue_id}-{message.queue_offset}.bin"
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _check_not_empty(question: Question) -> None:
    if question.is_empty:
        raise BadInput(NOTHING_ASKED)


async def _events(searches: Searches, question: Question) -> AsyncIterator[bytes]:
    try:
        async for each in searches.stream(question):
            if isinstance(each, FoundSoFar):
                progress = {
                    "rows": [row.model_dump() for row in each.rows],
                    "coverage": [part.model_dump() for part in each.coverage],
                    "elapsed_ms": each.elapsed_ms,
                    "read": None if each.read is None else each.read._asdict(),
                }
                yield event("found", json.dumps(progress))
            else:
                yield event("answer", each.model_dump_json())
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        yield event("error", failure.answer.model_dump_json())

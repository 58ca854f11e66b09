"""The pages and the API of one message, and of two side by side."""

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from fastapi.responses import Response

from rocketlens import limits
from rocketlens.console.act.permission import may_send
from rocketlens.console.message import compare
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.message.message_view import BodyForm
from rocketlens.console.pages import (
    MAX_FORM_FIELDS,
    Addressed,
    Asked,
    Here,
    HereNow,
    Name,
    api_router,
    known_failure,
    page_router,
)
from rocketlens.console.room import MESSAGE
from rocketlens.console.search import addresses
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import ROW_THREADS
from rocketlens.console.values import KeyStoryValue, MessageDetail, MessageRow, StoryValue
from rocketlens.errors import BadInput
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.query.request import FindRequest

_OTHERS: Final = 20
"""Messages with the same key that one can be compared with by a click."""

api = api_router()
pages = page_router()


@api.get("/message" + MESSAGE)
async def message(here: Here, address: Addressed, form: BodyForm = "decoded") -> MessageDetail:
    """Return all about one message."""
    return await here.console.look_up.detail(address, form)


@api.get("/message" + MESSAGE + "/body", response_class=Response)
@pages.get("/m" + MESSAGE + "/body")
async def body(here: Here, address: Addressed) -> Response:
    """Return the bytes of a body, as a file to download."""
    message = await here.console.look_up.message(address)
    # Never as something that a browser shows.
    name = f"{message.queue_id}-{message.queue_offset}.bin"
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@api.get("/story" + MESSAGE)
async def story(here: Here, address: Addressed, group: Name = None) -> StoryValue:
    """Return what became of a message, and what groups did with it."""
    return await here.console.look_up.story(address, group)


@api.get("/story")
async def key_story(here: Here, question: Asked) -> KeyStoryValue:
    """Return what became of all messages that a look-up of a key finds, in one source."""
    return await here.console.look_up.key_story(question)


@pages.get("/story")
async def _key_story_page(here: Here, question: Asked) -> Response:
    answer, error = None, None
    try:
        answer = await here.console.look_up.key_story(question)
    except Exception as wrong:  # noqa: BLE001 - one that is not known is raised again
        error = known_failure(wrong).answer.error
    return here.page(
        "story.html",
        answer=answer,
        story_error=error,
        back=question.address("/search"),
        # The page of each message has what can be done with it.
        may_act=False,
    )


@pages.get("/m" + MESSAGE)
async def _message_page(
    here: Here,
    address: Addressed,
    tab: Literal["story", "body", "properties", "ids"] | None = None,
    form: BodyForm | None = None,
) -> Response:
    tab = tab or ("story" if form is None else "body")
    form = form or "decoded"
    original = await here.console.look_up.original(address)
    detail = await here.console.look_up.detail(address, form, original)
    story, story_error = None, None
    if tab == "story":
        try:
            story = await here.console.look_up.story(address, original=original)
        except Exception as error:  # noqa: BLE001 - one that is not known is raised again
            story_error = known_failure(error).answer.error
    source = here.sources.named(address.source)
    return here.page(
        "message.html",
        detail=detail,
        tab=tab,
        body_form=form,
        story=story,
        story_error=story_error,
        is_live=source.kind == "cluster",
        may_act=may_send(here.sources, source, address.topic),
        commands=_commands(here, detail),
    )


@pages.get("/compare")
async def _compare_page(
    here: Here,
    chosen: Annotated[list[str], Query(default_factory=list, max_length=MAX_FORM_FIELDS)],
    position: Annotated[str, Query(max_length=limits.MAX_CONSOLE_TEXT)] = "",
) -> Response:
    """Show two messages side by side; after one, what it can be compared with."""
    addresses = [MessageAddress.of_path(each) for each in dict.fromkeys(chosen)]
    other = FindRequest.parse(position, kind="queue-offset").queue_position if position else None
    if len(addresses) == 1 and other is not None:
        addresses.append(MessageAddress(source=addresses[0].source, **other._asdict()))
    if not 1 <= len(addresses) <= 2:
        raise BadInput(Sentence("choose_two", count=len(addresses)))
    found = [await here.console.look_up.detail(each, "decoded") for each in addresses]
    found.sort(key=lambda each: each.message.store_timestamp_ms)
    if len(found) == 1:
        key, others = await _others(here, found[0].message)
        return here.page("compare.html", found=found, key=key, others=others)
    return here.page("compare.html", found=found, **await _compared(here, *found))


async def _others(here: HereNow, row: MessageRow) -> tuple[str, list[MessageRow]]:
    """Return a key of a message, and other messages with it."""
    key = next(iter(row.keys), row.msg_id)
    question = Question.read(q=key, sources=[row.source], max_num=_OTHERS)
    answer = await here.console.searches.search(question)
    return key, [each for each in answer.messages if each.path != row.path]


async def _compared(here: HereNow, left: MessageDetail, right: MessageDetail) -> dict[str, Any]:
    one, other = (compare.fields_of(each, here.reader) for each in (left, right))
    bodies = [compare.lines_of(each.body) for each in (left, right)]
    most = compare.MAX_COMPARED_LINES

    def lines() -> list[compare.LinePair]:
        return list(compare.compared(bodies[0][:most], bodies[1][:most]))

    return {
        "fields": [(name, one.get(name), other.get(name)) for name in {**one, **other}],
        "lines": await in_thread(lines, ROW_THREADS),
        "is_same_body": bodies[0] == bodies[1] and left.body_crc == right.body_crc,
        "is_cut": left.body.is_cut or right.body.is_cut or max(map(len, bodies)) > most,
        "max_lines": most,
    }


def _commands(here: HereNow, detail: MessageDetail) -> Mapping[str, str]:
    row = detail.message
    position = f"{row.topic}/{row.queue_id}/{row.queue_offset}"
    source = here.sources.named(row.source)
    path = f"/api/message{row.path.removeprefix('/m')}"
    return {
        "link": here.origin + row.path,
        "command": shlex.join(["rocketlens", "show", position, *source.command_options]),
        "sql": addresses.sql_of_message(
            row.unique_key, row.topic, row.queue_id, row.queue_offset, source
        ),
        "curl": addresses.curl_command(here.origin + path),
    }

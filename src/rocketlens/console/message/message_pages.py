"""The page and the API of one message."""

from collections.abc import Mapping
from typing import Literal

from fastapi.responses import Response

from rocketlens.console.act.permission import may_send
from rocketlens.console.message.message_view import BodyForm
from rocketlens.console.pages import (
    MESSAGE,
    Addressed,
    Asked,
    Here,
    HereNow,
    Name,
    api_router,
    known_failure,
    page_router,
)
from rocketlens.console.search import addresses
from rocketlens.console.values import KeyStoryValue, MessageDetail, StoryValue

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


def _commands(here: HereNow, detail: MessageDetail) -> Mapping[str, str]:
    row = detail.message
    position = f"{row.topic}/{row.queue_id}/{row.queue_offset}"
    source = here.sources.named(row.source)
    path = f"/api/message{row.path.removeprefix('/m')}"
    return {
        "link": here.origin + row.path,
        "command": addresses.show_command(position, source),
        "sql": addresses.sql_of_message(
            row.unique_key, row.topic, row.queue_id, row.queue_offset, source
        ),
        "curl": addresses.curl_command(here.origin + path),
    }

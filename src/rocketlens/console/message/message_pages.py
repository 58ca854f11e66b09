"""The pages and the API of one message, and the comparison of two."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import starmap, zip_longest
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Query
from fastapi.responses import Response

from rocketlens import limits
from rocketlens.console.act.permission import may_send
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.message.message_view import BodyForm
from rocketlens.console.pages import (
    MAX_FORM_FIELDS,
    Addressed,
    Asked,
    Here,
    HereNow,
    Name,
    answer_or_error,
    api_router,
    page_router,
)
from rocketlens.console.preferences import Reader
from rocketlens.console.room import MESSAGE
from rocketlens.console.search import addresses
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import ROW_THREADS
from rocketlens.console.values import (
    BodyValue,
    KeyStoryValue,
    MessageDetail,
    MessageRow,
    StoryValue,
)
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.query.request import FindRequest
from rocketlens.terminal.json_text import layout_json

_OTHERS: Final = 20
"""Messages with the same key that are offered for comparison."""

MAX_COMPARED_LINES: Final = 2_000
"""Lines of a body that are compared: up to a second of work."""
_SHOWN_EQUAL: Final = 3
"""Equal lines that are shown around different ones."""
api = api_router()
pages = page_router()


@api.get("/message" + MESSAGE)
async def message(here: Here, address: Addressed, form: BodyForm = "decoded") -> MessageDetail:
    """Return all about one message."""
    return await here.look_up.detail(address, form)


@api.get("/message" + MESSAGE + "/body", response_class=Response)
@pages.get("/m" + MESSAGE + "/body")
async def body(here: Here, address: Addressed) -> Response:
    """Return the bytes of a body, as a file to download."""
    message = await here.look_up.message(address)
    # A browser must not interpret it.
    name = f"{message.queue_id}-{message.queue_offset}.bin"
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@api.get("/story" + MESSAGE)
async def story(here: Here, address: Addressed, group: Name = None) -> StoryValue:
    """Return what became of a message, and what groups did with it."""
    return await here.look_up.story(address, group)


@api.get("/story")
async def key_story(here: Here, question: Asked) -> KeyStoryValue:
    """Return what became of all messages that a look-up of a key finds, in one source."""
    return await here.look_up.key_story(question)


@pages.get("/story")
async def _key_story_page(here: Here, question: Asked) -> Response:
    answer, error = await answer_or_error(here.look_up.key_story(question))
    return here.page(
        "story.html",
        answer=answer,
        story_error=error,
        back=question.address("/search"),
        # Acts are on the page of each message.
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
    original = await here.look_up.original(address)
    detail = await here.look_up.detail(address, form, original)
    story, story_error = None, None
    if tab == "story":
        pending = here.look_up.story(address, original=original)
        story, story_error = await answer_or_error(pending)
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
    addresses = [MessageAddress.of_path(each) for each in dict.fromkeys(chosen)]
    other = FindRequest.parse(position, kind="queue-offset").queue_position if position else None
    if len(addresses) == 1 and other is not None:
        addresses.append(MessageAddress(source=addresses[0].source, **other._asdict()))
    if not 1 <= len(addresses) <= 2:
        raise BadInput(Sentence("choose_two", count=len(addresses)))
    found = [await here.look_up.detail(each, "decoded") for each in addresses]
    found.sort(key=lambda each: each.message.store_timestamp_ms)
    if len(found) == 1:
        key, others = await _others(here, found[0].message)
        return here.page("compare.html", found=found, key=key, others=others)
    return here.page("compare.html", found=found, **await _comparison(here, *found))


async def _others(here: HereNow, row: MessageRow) -> tuple[str, list[MessageRow]]:
    """Return a key of a message, and the other messages with it."""
    key = next(iter(row.keys), row.msg_id)
    question = Question.read(q=key, sources=[row.source], max_num=_OTHERS)
    answer = await here.searches.search(question)
    return key, [each for each in answer.messages if each.path != row.path]


async def _comparison(here: HereNow, left: MessageDetail, right: MessageDetail) -> dict[str, Any]:
    one, other = (fields_of(each, here.reader) for each in (left, right))
    bodies = [lines_of(each.body) for each in (left, right)]
    most = MAX_COMPARED_LINES

    def lines() -> list[LinePair]:
        return list(compared(bodies[0][:most], bodies[1][:most]))

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
        "sql": addresses.sql_of_message(row, source),
        "curl": addresses.curl_command(here.origin + path),
    }


class LinePair(NamedTuple):
    """A line of each body in three parts, of which the middle differs. None is a missing line."""

    left: tuple[str, str, str] | None
    right: tuple[str, str, str] | None
    skipped: int = 0
    """The number of equal lines that are left out here, instead of a pair."""


def fields_of(detail: MessageDetail, t: Reader) -> dict[str, str]:
    """Return the fields of a message by the names that its page uses, and its properties."""
    row = detail.message
    return {
        t("fact.source"): row.source,
        t("column.topic"): row.topic,
        t("column.position"): f"{row.queue_id}/{row.queue_offset}",
        t("fact.broker"): row.broker,
        t("fact.stored"): t.time(row.store_timestamp_ms),
        t("fact.born"): f"{t.time(row.born_timestamp_ms)} {detail.born_host}",
        t("act_fact.offset_msg_id"): row.offset_msg_id,
        t("act_fact.size"): f"{row.body_bytes:,} {row.body_format}",
        t("id_part.sys_flag"): str(detail.sys_flag),
        t("id_part.flag"): str(detail.flag),
        t("id_part.body_crc"): str(detail.body_crc),
        **detail.properties,
        **detail.system_properties,
    }


def lines_of(body: BodyValue) -> list[str]:
    """Return the lines of a body as its page shows them."""
    parts = layout_json(body.content) if body.is_json else [("", body.content)]
    return "".join(printable(text, "\n\t") for _, text in parts).splitlines()


def compared(left: Sequence[str], right: Sequence[str]) -> Iterator[LinePair]:
    """Yield pairs of lines. Equal lines far from different ones are left out."""
    matcher, end = SequenceMatcher(None, left, right, autojunk=False), 0
    for group in matcher.get_grouped_opcodes(_SHOWN_EQUAL):
        if group[0][1] > end:
            yield LinePair(None, None, group[0][1] - end)
        for _, a, a_end, b, b_end in group:
            yield from starmap(_pair, zip_longest(left[a:a_end], right[b:b_end]))
        end = group[-1][2]
    if end < len(left):
        yield LinePair(None, None, len(left) - end)


def _pair(left: str | None, right: str | None) -> LinePair:
    if left is None or right is None:
        one, other = (None if each is None else ("", each, "") for each in (left, right))
        return LinePair(one, other)
    begin = _common(left, right)
    end = _common(left[begin:][::-1], right[begin:][::-1])

    def parts(line: str) -> tuple[str, str, str]:
        return line[:begin], line[begin : len(line) - end], line[len(line) - end :]

    return LinePair(parts(left), parts(right))


def _common(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(left), len(right)))

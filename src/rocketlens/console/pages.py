"""The pages: server-rendered, whole without a script; with one, results stream into them."""

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote, urlencode, urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rocketlens import __version__, limits
from rocketlens.console.act.permission import may_act_at_all, may_send
from rocketlens.console.api import MESSAGE, Name, Sourced, body_file, event, event_stream
from rocketlens.console.failures import Failure, failure_of
from rocketlens.console.forms import form_of, form_token
from rocketlens.console.login.viewer import LOCAL, NOBODY, current_viewer
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.message.message_view import BODY_FORMS, BodyForm, deliveries_after_the_first
from rocketlens.console.preferences import (
    LANGUAGES,
    THEMES,
    ZONES,
    Preferences,
    Texts,
    choose,
    local_path,
    offset_text,
    time_text,
)
from rocketlens.console.search import addresses
from rocketlens.console.search.columns import NAMED, USUAL, own_values
from rocketlens.console.search.facets import narrowed, within
from rocketlens.console.search.parameters import Addressed, Asked, Preferred
from rocketlens.console.search.question import Question
from rocketlens.console.search.reasons import (
    field_mark,
    mark_of,
    notes_of,
    reasons_for,
    topics_instead,
)
from rocketlens.console.search.saved_searches import SavedSearches
from rocketlens.console.search.search import FoundSoFar, Searches
from rocketlens.console.security import host_of
from rocketlens.console.status.list_view import (
    GROUP_COLUMNS,
    SORT,
    TOPIC_COLUMNS,
    ListView,
    listed_rows,
    message_columns,
)
from rocketlens.console.values import MessageDetail, MessageRow, SearchAnswer, TopicValue
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.text.counted import span_text
from rocketlens.model.text.escape import printable
from rocketlens.query.topic_choice import is_pattern
from rocketlens.terminal.json_text import laid_out

_TEMPLATES: Final = Path(__file__).parent / "templates"
_FIRST_VIEW_S: Final = 0.25
"""Seconds that the first view waits for an answer, where a script can stream it otherwise."""
_WORD: Final = re.compile(r"[a-z]+(?=[ ,:;]+[!-~]|$)")
"""An English word at the begin of an English sentence."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Tab = Literal["body", "properties", "ids", "story"]
TABS: Final[tuple[Tab, ...]] = ("body", "properties", "ids", "story")
SEE_OTHER: Final = 303
FORMS: Final = ("any", "time", "key", "id")
_SEARCHES: Final = frozenset({"/", "/search"})


def capitalized(text: str) -> str:
    """Return a sentence with a capital letter, unless it begins with a part that is not a word of
    ours: a name in quotation marks, a position, an address.
    """
    return text[:1].upper() + text[1:] if _WORD.match(text) else text


def question_text(question: Question) -> str:
    """Return what a question asks for, as the box takes it."""
    usual = limits.DEFAULT_CONSOLE_ROWS
    parameters = question.parameters(cursor=None, max_num=usual, columns=())
    texts = (value if name == "q" else f"{name}:{value}" for name, value in parameters)
    return printable(" ".join(texts))[: limits.MAX_SHOWN_CHARACTERS]


@functools.cache
def environment() -> Environment:
    """Return the templates, which are compiled once for all applications of this process.

    Every value is escaped, and one that is missing is an error.
    """
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["printable"] = printable
    made.filters["capitalized"] = capitalized
    made.filters["path_part"] = lambda text: quote(text, safe="")
    made.filters["number"] = lambda number: f"{number:,}"
    made.globals.update(
        version=__version__,
        languages=LANGUAGES,
        themes=THEMES,
        zones=ZONES,
        tabs=TABS,
        body_forms=BODY_FORMS,
        forms=FORMS,
        laid_out=laid_out,
        deliveries_after_the_first=deliveries_after_the_first,
        listed_rows=listed_rows,
        field_mark=field_mark,
        usual_columns=USUAL,
        named_columns=NAMED,
        own_values=own_values,
        retry_prefix=RETRY_PREFIX,
        dead_letter_prefix=DEAD_LETTER_PREFIX,
        form_token=form_token,
        urlencode=urlencode,
        narrowed=narrowed,
        within=within,
        question_text=question_text,
        overview_s=limits.CONSOLE_OVERVIEW_S,
        shown_saved=limits.MAX_SHOWN_SAVED_SEARCHES,
    )
    return made


@dataclass(frozen=True, slots=True)
class Reader:
    """The values of templates for one reader: words, and times in a zone."""

    preferences: Preferences
    t: Texts

    @classmethod
    def of(cls, preferences: Preferences) -> Self:
        """Return the reader that chose these."""
        return cls(preferences, Texts(preferences.language, preferences.zone))

    def progress(self, progress: FoundSoFar) -> str:
        """Return how long a search goes on, how much it has read, and what is left at most."""
        parts = [self.t("answer.waiting", seconds=round(progress.elapsed_ms / 1000))]
        read = progress.read
        if read is not None:
            size, messages = self.size(read.read_bytes), self.number(read.messages)
            total = read.total_bytes
            if total:
                part = self.percent(min(1, read.read_bytes / total))
                values = {"size": size, "total": self.size(total), "part": part}
                parts.append(self.t("answer.read_of", messages=messages, **values))
            else:
                parts.append(self.t("answer.read", messages=messages, size=size))
            left_ms = read.left_ms(progress.elapsed_ms)
            if left_ms is not None:
                parts.append(self.t("answer.left", time=self.span(left_ms)))
        return self.t("answer.between").join(parts)

    def time(self, epoch_ms: int | None) -> str:
        """Return a time in the reader's zone; a dash without one."""
        return "—" if epoch_ms is None else time_text(epoch_ms, self.preferences.zone)

    def moment(self, text: str) -> str:
        """Return a time of a job's file, which is ISO 8601, in the reader's zone; other text as it
        is.
        """
        try:
            at = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, TypeError, OverflowError):
            return printable(text)
        return f"{self.time(at)} {self.offset(at)}"

    def due(self, epoch_ms: int) -> str:
        """Return when a message is due, or was, and how far that is from now."""
        left_ms = epoch_ms - time.time_ns() // 1_000_000
        name = "fact.due_in" if left_ms > 0 else "fact.due_ago"
        return self.t(name, time=self.time(epoch_ms), span=span_text(abs(left_ms)))

    def waiting(self, topic: TopicValue) -> str:
        """Return how many messages wait for a topic; with a plus if there may be more."""
        more = "" if topic.waiting is None or topic.waiting_is_exact else "+"
        return self.number(topic.waiting) + more

    def clock(self, epoch_ms: int) -> str:
        """Return hour and minute of a time in the reader's zone."""
        return time_text(epoch_ms, self.preferences.zone)[11:16]

    def span(self, duration_ms: int) -> str:
        """Return a duration in the largest unit that it has two of: ``119 s``, ``2 min``."""
        for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
            if duration_ms >= 2 * unit_ms:
                return f"{duration_ms / unit_ms:.0f} {unit}"
        return f"{duration_ms / 1000:.0f} s"

    def length(self, duration_ms: int) -> str:
        """Return a round duration in the largest unit that it is a whole number of."""
        for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
            if duration_ms % unit_ms == 0:
                return f"{duration_ms // unit_ms} {unit}"
        return f"{duration_ms} ms"

    def offset(self, epoch_ms: int) -> str:
        """Return the offset of the reader's zone."""
        return offset_text(epoch_ms, self.preferences.zone)

    def size(self, count: int | None) -> str:
        """Return a number of bytes, shortened."""
        if count is None:
            return "—"
        size, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
        unit = next(units)
        while size >= 1024 and unit != "TiB":
            size, unit = size / 1024, next(units)
        return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"

    def number(self, count: int | None) -> str:
        """Return a count; a question mark for one that could not be learnt."""
        return "?" if count is None else f"{count:,}"

    def rate(self, number: float | None) -> str:
        """Return a number a second, likewise."""
        return "?" if number is None else f"{number:,.1f}"

    def percent(self, ratio: float | None) -> str:
        """Return a part of a whole, likewise."""
        return "?" if ratio is None else f"{ratio:.0%}"

    def release(self, version: str | None) -> str:
        """Return ``5.5.0`` of RocketMQ's ``V5_5_0``, likewise."""
        return "?" if version is None else version.removeprefix("V").replace("_", ".")


class Pages:
    """Renders pages."""

    def __init__(self, searches: Searches, look_up: LookUps, saved: SavedSearches) -> None:
        self.searches: Final = searches
        self.look_up: Final = look_up
        self._saved: Final = saved
        self._templates: Final = environment()

    def render(self, name: str, preferences: Preferences, **values: Any) -> str:
        """Return a template with values."""
        reader = Reader.of(preferences)
        template = self._templates.get_template(name)
        viewer = current_viewer()
        return template.render(
            viewer=viewer,
            has_login=viewer not in (LOCAL, NOBODY),
            t=reader.t,
            reader=reader,
            preferences=preferences,
            sources=list(self.searches.sources),
            **{"choosable": frozenset(), "view": None, **values},
        )

    def page(
        self,
        name: str,
        request: Request,
        preferences: Preferences,
        status: int = 200,
        **values: Any,
    ) -> HTMLResponse:
        """Return a page."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        common: dict[str, Any] = {"question": Question(), "form": "any", "here": here, "mark": None}
        common["instead"] = []
        html = self.render(name, preferences, **{**common, **values})
        return HTMLResponse(html, status)

    def page_with(
        self,
        error: Exception | None,
        name: str,
        request: Request,
        preferences: Preferences,
        **values: Any,
    ) -> HTMLResponse:
        """Return a page, with why something was not done if there is an error."""
        failure = None if error is None else failure_of(error)
        status, shown = (200, None) if failure is None else (failure.status, failure.answer.error)
        return self.page(name, request, preferences, status, error=shown, **values)

    def failure(
        self, request: Request, preferences: Preferences, failure: Failure, **values: Any
    ) -> HTMLResponse:
        """Return the page of an error; that of a search has what was typed, and what of it is
        wrong.
        """
        error, typed = failure.answer.error, request.query_params
        if request.url.path in _SEARCHES and "question" not in values:
            form = typed.get("form", "")
            values["question"] = Question.as_typed(
                typed, typed.getlist("source"), typed.getlist("columns")
            )
            values["form"] = form if form in FORMS else "any"
        mark = mark_of(values["question"], error.message) if "question" in values else None
        return self.page(
            "failure.html",
            request,
            preferences,
            failure.status,
            error=error,
            **{**values, "mark": mark},
        )

    def old_form(self, request: Request) -> HTMLResponse:
        """Return the page for a form that is not valid any more, with a link to where it was."""
        referer, path = request.headers.get("referer", ""), "/"
        if host_of(referer) == request.url.netloc:
            came_from = urlsplit(referer)
            path = came_from.path + (f"?{came_from.query}" if came_from.query else "")
        return self.page(
            "old_form.html", request, Preferences.of(request), 403, here=local_path(path)
        )

    async def search(
        self, request: Request, preferences: Preferences, question: Question, form: str
    ) -> HTMLResponse:
        """Return the page of a search, with its answer, or to be streamed into."""
        values = self.search_values(request, question) | await self._saved_values(question)
        if question.is_empty:
            return self.page("search.html", request, preferences, **values, form=form, answer=None)
        patience = _FIRST_VIEW_S if preferences.has_script else None
        searching = asyncio.ensure_future(
            self.searches.search(question, may_be_streamed=patience is not None)
        )
        try:
            async with asyncio.timeout(patience):
                answer = await searching
        except TimeoutError:
            values["is_open"] = True
            return self.page("search.html", request, preferences, **values, form=form, answer=None)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            is_topic = isinstance(error, TopicNotFound)
            values["instead"] = await topics_instead(question, self.look_up) if is_topic else []
            return self.failure(request, preferences, failure, **values, form=form)
        values |= await self._answer_values(question, answer)
        return self.page("search.html", request, preferences, **values, form=form)

    def search_values(self, request: Request, question: Question) -> dict[str, Any]:
        """Return what the page of a search shows beside its answer."""
        try:
            chosen = self.searches.sources.chosen(question.sources)
        except ValueError:
            chosen = list(self.searches.sources)
        base = f"{request.url.scheme}://{request.url.netloc}"
        view = ListView(request, message_columns(question.columns), "/search")
        sort = f"&{SORT}={view.sort}" if view.sort else ""
        has_rules = bool(self.searches.rules)
        return {
            "question": question,
            **_kept_times(request, question),
            "is_open": False,
            "view": view,
            "stream": question.address("/search/rows") + sort,
            "link": base + question.address("/search"),
            "command": addresses.find_command(question, chosen, has_rules=has_rules),
            "sql": addresses.sql_command(question, chosen, has_rules=has_rules),
            "curl": addresses.curl_command(base + question.address("/api/search")),
        }

    async def _saved_values(self, question: Question) -> dict[str, Any]:
        """Return what the page of a search shows of those that were saved."""
        try:
            saved = await self._saved.seen()
        except (RocketLensError, OSError) as error:
            failure = failure_of(error)
            shown = None if failure is None else failure.answer.error
            return {"saved": [], "saved_as": None, "saved_error": shown}
        is_own = self._saved.is_own
        own = next((each for each in saved if is_own(each) and each.is_for(question)), None)
        return {"saved": saved, "saved_as": own, "saved_error": None}

    async def _answer_values(self, question: Question, answer: SearchAnswer) -> dict[str, Any]:
        """Return what the part of a page shows that has an answer."""
        return {
            "answer": answer,
            "reasons": await reasons_for(question, answer, self.look_up),
            "notes": notes_of(question, answer.coverage),
            "choosable": self.choosable(answer.messages),
            "may_choose": may_act_at_all(self.searches.sources),
        }

    def choosable(self, rows: Sequence[MessageRow]) -> frozenset[str]:
        """Return the paths of the messages that the viewer may send again."""
        sources = self.searches.sources
        several = {(each.source, each.topic) for each in rows}
        allowed = {
            (source, topic)
            for source, topic in several
            if may_send(sources, sources.named(source), topic)
        }
        return frozenset(each.path for each in rows if (each.source, each.topic) in allowed)

    async def streamed(
        self, request: Request, question: Question, preferences: Preferences
    ) -> AsyncIterator[bytes]:
        """Yield the rows of a search as events, as they come, and the answer in the end."""
        try:
            async for each in self.searches.stream(question):
                if isinstance(each, FoundSoFar):
                    if each.rows or each.coverage:
                        html = self.render(
                            "part_found.html",
                            preferences,
                            rows=each.rows,
                            coverage=each.coverage,
                            columns=question.columns or USUAL,
                        )
                        yield event("found", html)
                    yield event("waiting", Reader.of(preferences).progress(each))
                else:
                    values = await self._answer_values(question, each)
                    view = ListView(request, message_columns(question.columns), "/search")
                    html = self.render(
                        "part_answer.html", preferences, question=question, view=view, **values
                    )
                    yield event("answer", html)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            html = self.render("part_failure.html", preferences, error=failure.answer.error)
            yield event("failure", html)

    async def message(
        self,
        request: Request,
        preferences: Preferences,
        address: MessageAddress,
        tab: Tab,
        form: BodyForm,
    ) -> HTMLResponse:
        """Return the page of one message."""
        sources = self.searches.sources
        detail = await self.look_up.detail(address, form)
        story, story_error = None, None
        if tab == "story":
            try:
                story = await self.look_up.story(address)
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                story_error = failure.answer.error
        base = f"{request.url.scheme}://{request.url.netloc}"
        return self.page(
            "message.html",
            request,
            preferences,
            detail=detail,
            tab=tab,
            body_form=form,
            story=story,
            story_error=story_error,
            is_live=sources.named(address.source).kind == "cluster",
            may_act=may_send(sources, sources.named(address.source), address.topic),
            link=base + detail.message.path,
            commands=self._message_commands(base, detail),
        )

    def _message_commands(self, base: str, detail: MessageDetail) -> Mapping[str, str]:
        row = detail.message
        position = f"{row.topic}/{row.queue_id}/{row.queue_offset}"
        source = self.searches.sources.named(row.source)
        return {
            "command": addresses.show_command(position, source),
            "sql": addresses.sql_of_message(
                row.unique_key, row.topic, row.queue_id, row.queue_offset, source
            ),
            "curl": addresses.curl_command(f"{base}/api/message{row.path.removeprefix('/m')}"),
        }


def _kept_times(request: Request, question: Question) -> dict[str, str]:
    """Return the address to come back to from a choice of another zone: times that were typed
    stay in the zone that they were typed in.
    """
    form = request.query_params.get("form", "")
    if not question.zone_name:
        return {}
    return {"here": question.address("/search") + (f"&form={form}" if form in FORMS else "")}


def search_routes(pages: Pages) -> APIRouter:
    """Return the routes of searches."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @routes.get("/")
    @routes.get("/search")
    async def search(
        request: Request,
        preferences: Preferred,
        question: Asked,
        form: Literal["any", "time", "key", "id"] = "any",
    ) -> Response:
        return await pages.search(request, preferences, question, form)

    @routes.get("/search/rows")
    async def rows(request: Request, preferences: Preferred, question: Asked) -> Response:
        return event_stream(pages.streamed(request, question, preferences))

    @routes.get("/search/more")
    async def more(request: Request, preferences: Preferred, question: Asked) -> Response:
        answer = await pages.searches.search(question)
        return pages.page(
            "part_page.html",
            request,
            preferences,
            question=question,
            answer=answer,
            choosable=pages.choosable(answer.messages),
        )

    return routes


def page_routes(pages: Pages) -> APIRouter:
    """Return the routes of all pages."""
    routes = search_routes(pages)

    @routes.get("/m" + MESSAGE)
    async def message(
        request: Request,
        preferences: Preferred,
        address: Addressed,
        tab: Tab = "body",
        form: BodyForm = "decoded",
    ) -> Response:
        return await pages.message(request, preferences, address, tab, form)

    @routes.get("/m" + MESSAGE + "/body")
    async def body(address: Addressed) -> Response:
        return body_file(await pages.look_up.message(address))

    @routes.get("/topics")
    async def topics(
        *,
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
        topic: Name = None,
        everything: Annotated[bool, Query(alias="all")] = False,
    ) -> Response:
        if topic and not is_pattern(topic):
            query = urlencode([("source", each) for each in source])
            path = f"/topics/{quote(topic, safe='')}"
            return RedirectResponse(f"{path}?{query}" if query else path, SEE_OTHER)
        answer = await pages.look_up.topics(source, [topic] if topic else None)
        return pages.page(
            "topics.html",
            request,
            preferences,
            found=answer,
            everything=everything or bool(topic),
            view=ListView(request, TOPIC_COLUMNS),
            chosen=source,
        )

    @routes.get("/groups")
    async def groups(
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
        group: Name = None,
    ) -> Response:
        answer = await pages.look_up.groups(source, group)
        return pages.page(
            "groups.html",
            request,
            preferences,
            found=answer,
            group=group,
            view=ListView(request, GROUP_COLUMNS),
            chosen=source,
        )

    @routes.post("/preferences")
    async def preferences_form(request: Request) -> Response:
        fields = await form_of(request)
        answer = RedirectResponse(local_path(fields.get("back", "/")), SEE_OTHER)
        choose(answer, fields, is_https=request.url.scheme == "https")
        return answer

    return routes

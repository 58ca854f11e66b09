"""What routes share: parameters, for pages and API alike, and pages for the reader of a request.

Pages are rendered by the server, whole without a script; with one, results stream into them.
"""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathPart
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rocketlens import __version__, limits
from rocketlens.console.failures import Failure, failure_of
from rocketlens.console.login.viewer import LOCAL, NOBODY, current_viewer
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.message.message_view import BODY_FORMS, deliveries_after_the_first
from rocketlens.console.preferences import LANGUAGES, THEMES, ZONES, Preferences, Reader
from rocketlens.console.search.columns import NAMED, USUAL, listed_rows, value_columns
from rocketlens.console.search.facets import question_for_bar, question_for_facet
from rocketlens.console.search.question import Question, QuestionValues
from rocketlens.console.search.reasons import field_mark, mark_of
from rocketlens.console.sources.sources import Sources
from rocketlens.console.values import ErrorAnswer
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import laid_out

if TYPE_CHECKING:
    from rocketlens.console.app import Console

MESSAGE: Final = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
SEE_OTHER: Final = 303
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorAnswer, "description": "a value that cannot be used"},
    404: {"model": ErrorAnswer, "description": "everything was searched, and it is not there"},
    429: {"model": ErrorAnswer, "description": "too much is asked at once: try again"},
    502: {"model": ErrorAnswer, "description": "not everything could be searched"},
}
Sourced = Annotated[
    list[str],
    Query(
        default_factory=list,
        max_length=limits.MAX_CONSOLE_SOURCES,
        description="sources by name; or all",
    ),
]
Name = Annotated[str | None, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]
_Part = Annotated[str, PathPart(max_length=limits.MAX_TOPIC_CHARACTERS)]


def api_router(errors: dict[int | str, dict[str, Any]] = ERRORS) -> APIRouter:
    """Return a router of the API."""
    return APIRouter(prefix="/api", responses=errors)


def page_router() -> APIRouter:
    """Return a router of pages, which the description of the API leaves out."""
    return APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _question_of(request: Request, values: Annotated[QuestionValues, Query()]) -> Question:
    """Return the question of a request, with its times in the zone of its reader.

    :raises BadInput: if a value cannot be used.
    """
    return values.question(Preferences.of(request).zone_name)


def _address_of(
    source: _Part,
    topic: _Part,
    broker: _Part,
    queue_id: Annotated[int, PathPart(ge=0, le=limits.MAX_INT)],
    queue_offset: Annotated[int, PathPart(ge=0, le=limits.MAX_LONG)],
) -> MessageAddress:
    """Return the address of a message that a path has."""
    return MessageAddress(
        source=source, topic=topic, broker=broker, queue_id=queue_id, queue_offset=queue_offset
    )


Asked = Annotated[Question, Depends(_question_of)]
Addressed = Annotated[MessageAddress, Depends(_address_of)]


_TEMPLATES: Final = Path(__file__).parent / "templates"
_WORD: Final = re.compile(r"[a-z]+(?=[ ,:;]+[!-~]|$)")
"""An English word at the begin of an English sentence."""
TABS: Final = ("body", "properties", "ids", "story")
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
        value_columns=value_columns,
        retry_prefix=RETRY_PREFIX,
        dead_letter_prefix=DEAD_LETTER_PREFIX,
        urlencode=urlencode,
        question_for_facet=question_for_facet,
        question_for_bar=question_for_bar,
        question_text=question_text,
        limits=limits,
    )
    return made


class HereNow:
    """A request, the console that answers it, and pages for its reader."""

    def __init__(self, request: Request) -> None:
        self.request: Final = request
        self.console: Final[Console] = request.app.state.console
        self.preferences: Final = Preferences.of(request)
        self.reader: Final = Reader(self.preferences)

    @property
    def sources(self) -> Sources:
        """The sources of the console."""
        return self.console.sources

    @property
    def origin(self) -> str:
        """How the browser that sent the request reaches this console, if it is to be believed."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}"

    def render(self, name: str, **values: Any) -> str:
        """Return a template with values."""
        viewer = current_viewer()
        common: dict[str, Any] = {
            "viewer": viewer,
            "has_login": viewer not in (LOCAL, NOBODY),
            "t": self.reader,
            "reader": self.reader,
            "preferences": self.preferences,
            "sources": list(self.sources),
            "choosable": frozenset(),
            "view": None,
        }
        return environment().get_template(name).render({**common, **values})

    def page(self, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        url = self.request.url
        common: dict[str, Any] = {
            "question": Question(),
            "form": "any",
            "here": url.path + (f"?{url.query}" if url.query else ""),
            "mark": None,
            "instead": [],
        }
        return HTMLResponse(self.render(name, **{**common, **values}), status)

    def page_with_error(self, error: Exception | None, name: str, **values: Any) -> HTMLResponse:
        """Return a page, with why something was not done if there is an error."""
        failure = None if error is None else failure_of(error)
        status, shown = (200, None) if failure is None else (failure.status, failure.answer.error)
        return self.page(name, status, error=shown, **values)

    def failure(self, failure: Failure, **values: Any) -> HTMLResponse:
        """Return the page of an error; that of a search has what was typed, and what of it is
        wrong.
        """
        error, typed = failure.answer.error, self.request.query_params
        if self.request.url.path in _SEARCHES and "question" not in values:
            form = typed.get("form", "")
            values["question"] = Question.as_typed(
                typed, typed.getlist("source"), typed.getlist("columns")
            )
            values["form"] = form if form in FORMS else "any"
        mark = mark_of(values["question"], error.message) if "question" in values else None
        return self.page("failure.html", failure.status, error=error, **{**values, "mark": mark})


def _here(request: Request) -> HereNow:
    return HereNow(request)


Here = Annotated[HereNow, Depends(_here)]

"""Shared by all routes: parameters, forms, rendered pages, and the answers to errors.

Pages are rendered on the server and complete without a script. An error becomes a status, a code
for programs (`_STATUS`), and coverage.
"""

import functools
import re
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from rocketlens import __version__, limits
from rocketlens.console.act.permission import ActRefused
from rocketlens.console.act.plans import PlanChanged
from rocketlens.console.login.audit import AuditFailed
from rocketlens.console.login.viewer import LOCAL, NOBODY, current_viewer
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.message.message_view import BODY_FORMS, deliveries_after_the_first
from rocketlens.console.preferences import LANGUAGES, THEMES, ZONES, Preferences, Reader
from rocketlens.console.room import ConsoleBusy, hold, is_counted
from rocketlens.console.search.columns import NAMED, USUAL, listed_rows, value_columns
from rocketlens.console.search.question import Question, QuestionValues
from rocketlens.console.search.reasons import field_mark, mark_of
from rocketlens.console.search.search import question_for_bar, question_for_facet
from rocketlens.console.security import media_type
from rocketlens.console.values import ErrorAnswer, ErrorValue, error_answer
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.terminal.json_text import layout_json

if TYPE_CHECKING:
    from rocketlens.console.act.actions import Actions
    from rocketlens.console.app import Console
    from rocketlens.console.message.look_up import LookUps
    from rocketlens.console.search.search import Searches
    from rocketlens.console.sources.sources import Sources

T = TypeVar("T")
MAX_FORM_FIELDS: Final = 1000
"""Fields of a form: one for each message of a page, and some more."""
SEE_OTHER: Final = 303
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorAnswer, "description": "a value is not valid"},
    404: {"model": ErrorAnswer, "description": "everything was searched, and it does not exist"},
    429: {"model": ErrorAnswer, "description": "too many requests: try again"},
    502: {"model": ErrorAnswer, "description": "not everything could be searched"},
}
Sourced = Annotated[
    list[str],
    Query(
        default_factory=list,
        max_length=limits.MAX_CONSOLE_SOURCES,
        description="source names; default: all",
    ),
]
Name = Annotated[str | None, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]


def api_router(errors: dict[int | str, dict[str, Any]] = ERRORS) -> APIRouter:
    return APIRouter(prefix="/api", responses=errors)


def page_router() -> APIRouter:
    """Return a router for pages, which OpenAPI leaves out."""
    return APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _question_of(request: Request, values: Annotated[QuestionValues, Query()]) -> Question:
    """Return the question of a request. Its times are in the user's time zone.

    :raises BadInput: if a value cannot be used.
    """
    return values.question(Preferences.of(request).zone_name)


Asked = Annotated[Question, Depends(_question_of)]
Addressed = Annotated[MessageAddress, Depends()]


_TEMPLATES: Final = Path(__file__).parent / "templates"
_WORD: Final = re.compile(r"[a-z]+(?=[ ,:;]+[!-~]|$)")
"""A lower-case English word at the start of a sentence."""
TABS: Final = ("story", "body", "properties", "ids")
FORMS: Final = ("any", "time", "key", "id")
_SEARCHES: Final = frozenset({"/", "/search"})


def capitalized(text: str) -> str:
    """Capitalize a sentence, unless it starts with a quoted name, a position or an address."""
    return text[:1].upper() + text[1:] if _WORD.match(text) else text


def question_text(question: Question) -> str:
    """Return a question as text for the search box."""
    usual = limits.DEFAULT_CONSOLE_ROWS
    parameters = question.parameters(cursor=None, max_num=usual, columns=())
    texts = (value if name == "q" else f"{name}:{value}" for name, value in parameters)
    return printable(" ".join(texts))[: limits.MAX_SHOWN_CHARACTERS]


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment, which all applications of this process share.

    Values are escaped. An undefined name is an error.
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
        layout_json=layout_json,
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


class Failure(NamedTuple):
    """An error as an HTTP answer."""

    status: int
    answer: ErrorAnswer


_STATUS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (BadInput, 400, "bad_input"),
    # Everything was searched.
    (MessageNotFound, 404, "not_found"),
    (TopicNotFound, 404, "no_topic"),
    (ActRefused, 403, "not_allowed"),
    (PlanChanged, 409, "changed"),
    (ConsoleBusy, 429, "busy"),
    (AuditFailed, 503, "failed"),
    (AnswerIncomplete, 502, "incomplete"),
    (RocketLensError, 502, "failed"),
    (OSError, 502, "failed"),
)


def failure_of(error: Exception) -> Failure | None:
    """Return the HTTP answer for an error; None if the error is a bug."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            coverage = error.answer.coverage if isinstance(error, AnswerIncomplete) else ()
            return Failure(status, error_answer(code, _error_text(error), coverage))
    return None


def known_failure(error: Exception) -> Failure:
    """Return the HTTP answer for an error. Re-raise a bug."""
    failure = failure_of(error)
    if failure is None:
        raise error
    return failure


async def answer_or_error(answer: Awaitable[T]) -> tuple[T | None, ErrorValue | None]:
    """Return an answer, or the error that a page shows instead. Re-raise a bug."""
    try:
        return await answer, None
    except Exception as error:  # noqa: BLE001 - bugs are raised again
        return None, known_failure(error).answer.error


def _error_text(error: Exception) -> str:
    """Return the text of an error, safe to show. A `Sentence` stays one, to be translated."""
    text = error.args[0] if len(error.args) == 1 else None
    if isinstance(text, Sentence) and printable(text) == text:
        return text
    return printable(str(error))


URLENCODED: Final = "application/x-www-form-urlencoded"


class HereNow:
    """A request, its console, and the pages that answer it."""

    def __init__(self, request: Request) -> None:
        self.request: Final = request
        self.console: Final[Console] = request.app.state.console
        self.sources: Final[Sources] = self.console.sources
        self.searches: Final[Searches] = self.console.searches
        self.look_up: Final[LookUps] = self.console.look_up
        self.actions: Final[Actions] = self.console.actions
        self.preferences: Final = Preferences.of(request)
        self.reader: Final = Reader(self.preferences)

    @property
    def origin(self) -> str:
        """The console's address in the browser, such as ``http://127.0.0.1:8088``."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}"

    def render(self, name: str, **values: Any) -> str:
        """Render a template."""
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
        """Render a template as a page."""
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
        """Render a page. If an action failed, the page shows why."""
        failure = None if error is None else failure_of(error)
        status, shown = (200, None) if failure is None else (failure.status, failure.answer.error)
        return self.page(name, status, error=shown, **values)

    def failure(self, failure: Failure, **values: Any) -> HTMLResponse:
        """Render an error page. After a search, it keeps the form and marks the wrong field."""
        error, typed = failure.answer.error, self.request.query_params
        if self.request.url.path in _SEARCHES and "question" not in values:
            form = typed.get("form", "")
            values["question"] = Question.as_typed(
                typed, typed.getlist("source"), typed.getlist("columns")
            )
            values["form"] = form if form in FORMS else "any"
        mark = mark_of(values["question"], error.message) if "question" in values else None
        return self.page("failure.html", failure.status, error=error, **{**values, "mark": mark})


Here = Annotated[HereNow, Depends(HereNow)]


_OPEN_FORM_BYTES: Final = 64 << 10
"""Bytes of a form on `FREE` routes (login, preferences), which are not counted as held."""


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form. The last of several fields with one name counts.

    :raises BadInput: if the body is not a form in UTF-8.
    :raises HTTPException: if it is too large.
    :raises ConsoleBusy: if requests hold too many bytes.
    """
    return dict(await form_pairs_of(request))


async def form_pairs_of(request: Request) -> list[tuple[str, str]]:
    """Return names and values of a form in order. Errors as `form_of`."""
    if media_type(request.headers.get("content-type", "")) != URLENCODED:
        raise BadInput(f"expected a form: {URLENCODED}")
    if not hasattr(request.state, "form"):
        request.state.form = pairs_in(await _body_of(request))
    pairs: list[tuple[str, str]] = request.state.form
    return pairs


def pairs_in(content: bytes) -> list[tuple[str, str]]:
    """Parse an URL-encoded form. A name can occur several times.

    :raises BadInput: if it is not a form, or has too many fields.
    """
    try:
        return parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except ValueError as error:
        raise BadInput(Sentence("not_our_form")) from error


async def _body_of(request: Request) -> bytes:
    """Return the body of a request. Each piece is counted before the next one is read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        hold(len(body))
        if not is_counted() and len(body) > _OPEN_FORM_BYTES:
            raise HTTPException(413, f"this form has over {_OPEN_FORM_BYTES} bytes")
    return bytes(body)

"""What routes share: parameters and forms, errors as answers, and pages for a request's reader.

Pages are rendered by the server, whole without a script; with one, results stream into them. An
error is a status, a word for programs, and what was searched:

===========================  ======  ==================================================
error                        status  code
===========================  ======  ==================================================
BadInput                     400     ``bad_input``
MessageNotFound              404     ``not_found``: everything was searched
TopicNotFound                404     ``no_topic``
ActRefused                   403     ``not_allowed``
PlanChanged                  409     ``changed``: nothing was done
ConsoleBusy                  429     ``busy``
AnswerIncomplete             502     ``incomplete``: something could not be searched
any other of RocketLens      502     ``failed``
===========================  ======  ==================================================
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
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
from rocketlens.console.sources.sources import Sources
from rocketlens.console.values import ErrorAnswer, error_answer
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
    from rocketlens.console.app import Console

MAX_FORM_FIELDS: Final = 1000
"""Fields of a form sent to the console: as many as a page has messages, and some."""
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


Asked = Annotated[Question, Depends(_question_of)]
Addressed = Annotated[MessageAddress, Depends()]


_TEMPLATES: Final = Path(__file__).parent / "templates"
_WORD: Final = re.compile(r"[a-z]+(?=[ ,:;]+[!-~]|$)")
"""An English word at the begin of an English sentence."""
TABS: Final = ("story", "body", "properties", "ids")
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
    """An error as an answer."""

    status: int
    answer: ErrorAnswer


_STATUS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (BadInput, 400, "bad_input"),
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
    """Return an error as an answer; None for one that is a mistake of the program."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            coverage = error.answer.coverage if isinstance(error, AnswerIncomplete) else ()
            return Failure(status, error_answer(code, _error_text(error), coverage))
    return None


def known_failure(error: Exception) -> Failure:
    """Return an error as an answer; raise one that is a mistake of the program."""
    failure = failure_of(error)
    if failure is None:
        raise error
    return failure


def _error_text(error: Exception) -> str:
    """Return the text of an error, safe to show; a sentence stays one, for other languages."""
    text = error.args[0] if len(error.args) == 1 else None
    if isinstance(text, Sentence) and printable(text) == text:
        return text
    return printable(str(error))


URLENCODED: Final = "application/x-www-form-urlencoded"


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


Here = Annotated[HereNow, Depends(HereNow)]


_OPEN_FORM_BYTES: Final = 64 << 10
"""Of a form whose bytes are not counted: of a login and of preferences."""


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; of one that is there twice the last.

    :raises BadInput: if it is not a form, or its text is not UTF-8.
    :raises HTTPException: if it is too large.
    :raises ConsoleBusy: if requests hold too much.
    """
    return dict(await form_pairs_of(request))


async def form_pairs_of(request: Request) -> list[tuple[str, str]]:
    """Return the names and values of a form, in its order; errors as `form_of`."""
    if media_type(request.headers.get("content-type", "")) != URLENCODED:
        raise BadInput(f"expected a form: {URLENCODED}")
    if not hasattr(request.state, "form"):
        request.state.form = pairs_in(await _body_of(request))
    pairs: list[tuple[str, str]] = request.state.form
    return pairs


def pairs_in(content: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a form; a name can be there several times.

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
    """Return the body of a request, each piece of which is counted before the next is read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        hold(len(body))
        if not is_counted() and len(body) > _OPEN_FORM_BYTES:
            raise HTTPException(413, f"this form has over {_OPEN_FORM_BYTES} bytes")
    return bytes(body)

"""The ASGI application: pages and REST API over the sources of a console."""

from collections import Counter
from collections.abc import Iterable, Mapping
from http.client import NOT_FOUND
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from rocketlens import __version__
from rocketlens.console.act import act_pages
from rocketlens.console.act.actions import Actions
from rocketlens.console.act.jobs import Jobs
from rocketlens.console.login import login_pages
from rocketlens.console.login.access import Access
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.logins import Logins
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import LOCAL, Viewer
from rocketlens.console.message import message_pages
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.pages import SEE_OTHER, Failure, Here, HereNow, failure_of, form_of
from rocketlens.console.preferences import choose, local_path
from rocketlens.console.room import InPieces, RequestRoom, room_for
from rocketlens.console.search import saved_searches, search_pages
from rocketlens.console.search.alarms import Alarms
from rocketlens.console.search.saved_searches import SavedSearches
from rocketlens.console.search.search import ROW_THREADS, Searches
from rocketlens.console.security import Guard
from rocketlens.console.sources.sources import Sources
from rocketlens.console.status import pipeline, state, topics
from rocketlens.console.status.pipeline import PipelineSamples
from rocketlens.console.values import error_answer, mistakes_in
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.net.status_port import exposition

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.types import Message, Receive, Scope, Send

    from rocketlens.console.login.oidc_logins import OidcLogins

_STATIC: Final = Path(__file__).parent / "static"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SHOWN_PATH: Final = 80
"""Characters of an unknown path that its error message quotes."""
_MODULES: Final = (search_pages, message_pages, state, topics, pipeline, saved_searches, act_pages)


class Console:
    """The ASGI application. Routes reach it as ``request.app.state.console``."""

    def __init__(
        self,
        sources: Sources,
        *,
        rules: BodyRules,
        names: Iterable[str] = (),
        audit: AuditLog | None = None,
        users: LocalUsers | None = None,
        viewer: Viewer | None = None,
    ) -> None:
        """:param names: Host names that requests may use, besides addresses and localhost.
        :param users: The users who may log in. None: every request may see everything.
        :param viewer: Answer every request with the rights of this user, without a login.
        """
        log = audit or AuditLog()
        oidc = None if users is None else users.oidc
        self.sources: Final = sources
        self.searches: Final = Searches(
            sources, rules, audit=log, masks=None if users is None else users.masks
        )
        self.look_up: Final = LookUps(self.searches)
        self.saved: Final = SavedSearches(self.searches)
        self._alarms: Final = Alarms(self.saved, sources)
        self.samples: Final = PipelineSamples(
            [each.cluster for each in sources.opened if each.cluster is not None]
        )
        self._jobs: Final = Jobs(self.look_up)
        self.actions: Final = Actions(self.look_up, self._jobs)
        self.logins: Final = Logins(users, log) if users is not None and viewer is None else None
        self.oidc: OidcLogins | None = None
        self.api: Final = _Api(
            title="RocketLens",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            openapi_url="/api/openapi.json",
            dependencies=[Depends(room_for(RequestRoom()))],
        )
        self.api.state.console = self
        for each in _MODULES:
            self.api.include_router(each.api)
            self.api.include_router(each.pages)
        if self.logins is not None:
            self.api.include_router(login_pages.pages)
            if oidc is not None:
                # Its packages are optional.
                from rocketlens.console.login import oidc_logins

                self.oidc = oidc_logins.OidcLogins(oidc, self.logins.sessions, log)
                self.api.include_router(oidc_logins.pages)
        self.api.mount("/static", StaticFiles(directory=_STATIC), "static")
        self.api.add_api_route("/livez", _healthy, include_in_schema=False)
        self.api.add_api_route("/readyz", _healthy, include_in_schema=False)
        self.api.add_api_route("/metrics", self._metrics, include_in_schema=False)
        self.api.add_api_route(
            "/preferences", _choose_preferences, methods=["POST"], include_in_schema=False
        )
        _add_failures(self.api)
        self._app: Final = Access(InPieces(self.api, _answer_to), self.logins, viewer or LOCAL)
        self._counts: Final[Counter[tuple[str, int]]] = Counter()
        """Responses by route and status."""
        public = None if oidc is None else oidc.public_host
        self._guarded: Final = Guard(self._count_answers, [*names, *filter(None, [public])])

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        scope["app"] = self.api
        await self._guarded(scope, receive, send)

    async def _count_answers(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def counting(message: "Message") -> None:
            if message["type"] == "http.response.start":
                # The pattern: clients choose any number of addresses.
                route = getattr(scope.get("route"), "path", "other")
                self._counts[route, message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counting)

    def start(self) -> None:
        """Start the samples of brokers and the alarms, which run until `close`."""
        self.samples.start()
        self._alarms.start()

    async def close(self) -> None:
        """Stop samples, alarms and running jobs. Call it before the sources are closed."""
        await self._alarms.close()
        await self.samples.close()
        await self._jobs.close()

    async def _metrics(self) -> Response:
        values = list(console_metrics(self._counts, self.searches))
        text = await in_thread(lambda: exposition([values]), ROW_THREADS)
        return Response(text, media_type=_METRICS_TYPE)


async def _choose_preferences(here: Here) -> Response:
    fields = await form_of(here.request)
    answer = RedirectResponse(local_path(fields.get("back", "/")), SEE_OTHER)
    choose(answer, fields, is_https=here.request.url.scheme == "https")
    return answer


async def _healthy() -> Response:
    return PlainTextResponse("ok\n")


def console_metrics(
    counts: Mapping[tuple[str, int], int], searches: Searches
) -> Iterable["Metric"]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    answered = CounterMetricFamily(
        "rocketlens_console_requests", "Answered requests.", labels=["route", "status"]
    )
    for (route, status), count in counts.items():
        answered.add_metric([route, str(status)], count)
    yield answered
    searched = CounterMetricFamily(
        "rocketlens_console_searches", "Searches that ended, by how.", labels=["result"]
    )
    for result, count in searches.counts.items():
        searched.add_metric([result], count)
    yield searched
    yield CounterMetricFamily(
        "rocketlens_console_search_seconds", "Seconds that searches took.", value=searches.seconds
    )
    yield GaugeMetricFamily(
        "rocketlens_console_searches_running", "Searches that run now.", value=searches.running
    )
    yield GaugeMetricFamily(
        "rocketlens_console_sources", "Sources of the console.", value=len(searches.sources)
    )


class _Api(FastAPI):
    """Omits FastAPI's 422 responses from the OpenAPI description: invalid requests get 400."""

    def openapi(self) -> dict[str, Any]:
        described = super().openapi()
        for operations in described["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            described["components"]["schemas"].pop(name, None)
        return described


def _answer_to(request: Request, error: Exception) -> Response:
    """Return the answer to an error, for the API or as a page. Unknown errors are bugs."""
    # The server logs the traceback of a bug. The answer must not quote it.
    bug = Failure(500, error_answer("bug", f"this is a bug: {type(error).__name__}"))
    return _answer(request, failure_of(error) or bug)


def _answer(request: Request, failure: Failure) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse(failure.answer.model_dump(), failure.status)
    return HereNow(request).failure(failure)


def _add_failures(api: FastAPI) -> None:
    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        text = mistakes_in([{**each, "loc": each["loc"][1:]} for each in error.errors()])
        return _answer(request, Failure(400, error_answer("bad_input", text)))

    @api.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        code = "no_page" if error.status_code == NOT_FOUND else "refused"
        text = str(error.detail)
        if code == "no_page":
            text = Sentence("no_page", path=repr(printable(request.url.path)[:_SHOWN_PATH]))
        return _answer(request, Failure(error.status_code, error_answer(code, text)))

    # Starlette also raises the errors that only the handler of Exception takes, for the log.
    @api.exception_handler(RocketLensError)
    @api.exception_handler(OSError)
    @api.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _answer_to(request, error)

"""The application: pages and API over the sources of a console."""

from collections import Counter
from collections.abc import Iterable
from http.client import NOT_FOUND
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from rocketlens import __version__
from rocketlens.console.act.act_api import act_api_routes
from rocketlens.console.act.act_pages import ActPages, act_routes
from rocketlens.console.act.actions import Actions
from rocketlens.console.act.jobs import Jobs
from rocketlens.console.api import api_routes
from rocketlens.console.failures import Failure, failure_of
from rocketlens.console.login.access import Access
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.login_pages import LoginPages, login_routes
from rocketlens.console.login.logins import Logins
from rocketlens.console.login.oidc_settings import OidcSettings
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.pages import Pages, page_routes
from rocketlens.console.preferences import Preferences
from rocketlens.console.room import InPieces, RequestRoom, room_for
from rocketlens.console.search.saved_pages import SavedPages, saved_api_routes, saved_page_routes
from rocketlens.console.search.saved_searches import SavedSearches
from rocketlens.console.search.search import ROW_THREADS, Searches
from rocketlens.console.security import BodyBounds, Guard
from rocketlens.console.sources.sources import ClusterOfConsole, Sources
from rocketlens.console.status.brokers import BrokerLookUps
from rocketlens.console.status.clients import ClientLookUps
from rocketlens.console.status.overview import OverviewLookUps, overview_routes
from rocketlens.console.status.pipeline_samples import PipelineSamples
from rocketlens.console.status.status_pages import status_api_routes, status_page_routes
from rocketlens.console.status.topic_page import TopicLookUps, topic_api_routes, topic_page_routes
from rocketlens.console.values import error_answer
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.net.status_port import exposition

if TYPE_CHECKING:
    from prometheus_client import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STATIC: Final = Path(__file__).parent / "static"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_EXPLAINED: Final = 3
"""Mistakes of a request that an answer names."""
_SHOWN_PATH: Final = 80
"""Characters of the path of a page that is not there."""


class Console:
    """The application, as a server calls it."""

    def __init__(
        self,
        sources: Sources,
        *,
        rules: BodyRules,
        names: Iterable[str] = (),
        audit: AuditLog | None = None,
        users: LocalUsers | None = None,
    ) -> None:
        """Serve open sources, for a host of these names, and for these users; without any of
        them, everything for everyone who reaches it.

        Routes find the audit log as ``request.app.state.audit``.
        """
        self.api: Final = _Api(
            title="RocketLens",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            openapi_url="/api/openapi.json",
            dependencies=[Depends(room_for(RequestRoom()))],
        )
        log = audit or AuditLog()
        self.api.state.audit = log
        logins = None if users is None else Logins(users, log)
        masks = None if users is None else users.masks
        searches = Searches(sources, rules, audit=log, masks=masks)
        look_up = LookUps(searches)
        saved = SavedSearches(searches)
        pages = Pages(searches, look_up, saved)
        in_pieces = InPieces(self.api, lambda *failed: _answer_to(pages, *failed))
        access = Access(in_pieces, logins, log, pages.old_form)
        self._requests: Final = CountedRequests(access)
        public = None if users is None or users.oidc is None else users.oidc.public_host
        self._guarded: Final[ASGIApp] = Guard(
            BodyBounds(self._requests), [*names, *filter(None, [public])]
        )
        self.api.include_router(api_routes(searches, look_up))
        self.api.include_router(page_routes(pages))
        self.api.include_router(saved_api_routes(saved))
        self.api.include_router(saved_page_routes(SavedPages(pages, saved)))
        brokers = BrokerLookUps(sources)
        clusters = [each for each in sources.opened if isinstance(each, ClusterOfConsole)]
        self.samples: Final = PipelineSamples(clusters)
        clients = ClientLookUps(sources)
        self.api.include_router(status_api_routes(brokers, clients, sources, self.samples))
        self.api.include_router(status_page_routes(pages, brokers, clients, self.samples))
        topics = TopicLookUps(sources)
        self.api.include_router(topic_api_routes(topics))
        self.api.include_router(topic_page_routes(pages, topics))
        self.api.include_router(overview_routes(pages, OverviewLookUps(look_up, brokers)))
        if logins is not None:
            self._add_login(pages, logins, None if users is None else users.oidc)
        self._jobs: Final = Jobs(look_up)
        actions = Actions(searches, look_up, self._jobs)
        self.api.include_router(act_api_routes(actions))
        self.api.include_router(act_routes(ActPages(pages, actions)))
        self.api.mount("/static", StaticFiles(directory=_STATIC), "static")
        self._add_health(searches)
        _add_failures(self.api, pages)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        await self._guarded(scope, receive, send)

    def start(self) -> None:
        """Start what runs beside requests, until `close`: samples of brokers."""
        self.samples.start()

    async def close(self) -> None:
        """End samples, and the jobs that run, before sources are closed."""
        await self.samples.close()
        await self._jobs.close()

    def _add_login(self, pages: Pages, logins: Logins, settings: OidcSettings | None) -> None:
        if settings is None:
            self.api.include_router(login_routes(LoginPages(pages, logins)))
            return
        # Late: only such a login needs what asks a provider.
        from rocketlens.console.login.oidc_logins import OidcLogins
        from rocketlens.console.login.oidc_pages import oidc_routes

        oidc = OidcLogins(settings, logins.sessions, self.api.state.audit)
        login = LoginPages(pages, logins, oidc)
        self.api.include_router(login_routes(login))
        self.api.include_router(oidc_routes(login, oidc))

    def _add_health(self, searches: Searches) -> None:
        @self.api.get("/livez", include_in_schema=False)
        @self.api.get("/readyz", include_in_schema=False)
        async def healthy() -> Response:
            return PlainTextResponse("ok\n")

        @self.api.get("/metrics", include_in_schema=False)
        async def metrics() -> Response:
            values = list(console_metrics(self._requests, searches))
            text = await in_thread(lambda: exposition([values]), ROW_THREADS)
            return Response(text, media_type=_METRICS_TYPE)


class CountedRequests:
    """Counts the answers of an application, by route and status."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app: Final = app
        self.counts: Final[Counter[tuple[str, int]]] = Counter()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request, and count it."""

        async def counting(message: "Message") -> None:
            if message["type"] == "http.response.start":
                # By the route's pattern: an address is chosen by others.
                route = getattr(scope.get("route"), "path", "other")
                self.counts[route, message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)


def console_metrics(requests: CountedRequests, searches: Searches) -> Iterable["Metric"]:
    """Yield all values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    answered = CounterMetricFamily(
        "rocketlens_console_requests", "Answered requests.", labels=["route", "status"]
    )
    for (route, status), count in requests.counts.items():
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
    """Describes itself without FastAPI's own answer to invalid requests: 400 is it here."""

    def openapi(self) -> dict[str, Any]:
        """Return the description, which is made once."""
        described = super().openapi()
        for operations in described["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            described["components"]["schemas"].pop(name, None)
        return described


def _answer_to(pages: Pages, request: Request, error: Exception) -> Response:
    """Return an error as an answer, of the API or as a page; one of the program as a bug."""
    # The server logs the traceback of what is not a failure of ours; an answer may not quote it.
    bug = Failure(500, error_answer("bug", f"this is a bug: {type(error).__name__}"))
    return _answer(pages, request, failure_of(error) or bug)


def _answer(pages: Pages, request: Request, failure: Failure) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse(failure.answer.model_dump(), failure.status)
    return pages.failure(request, Preferences.of(request), failure)


def _add_failures(api: FastAPI, pages: Pages) -> None:
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
        texts = [
            f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}"
            for each in error.errors()[:_EXPLAINED]
        ]
        return _answer(pages, request, Failure(400, error_answer("bad_input", "; ".join(texts))))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        code = "no_page" if error.status_code == NOT_FOUND else "refused"
        text = str(error.detail)
        if code == "no_page":
            text = Sentence("no_page", path=repr(printable(request.url.path)[:_SHOWN_PATH]))
        failure = Failure(error.status_code, error_answer(code, text))
        return _answer(pages, request, failure)

    async def failed(request: Request, error: Exception) -> Response:
        return _answer_to(pages, request, error)

    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(HTTPException, refused)
    # The handler of all others also raises them again, for the log.
    for kind in (RocketLensError, OSError, Exception):
        api.add_exception_handler(kind, failed)

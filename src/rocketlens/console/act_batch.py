"""The pages of jobs with several messages: what a search found, and dead letters of a group."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.act_pages import SEE_OTHER, ActPages, rate_of
from rocketlens.console.acting import Batch
from rocketlens.console.forms import form_of
from rocketlens.console.pages import Asked, Preferred
from rocketlens.console.preferences import Preferences
from rocketlens.console.resend_plan import ResendPlan
from rocketlens.errors import RocketLensError

_Name = Annotated[str, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]
_Most = Annotated[int, Query(ge=1, le=limits.MAX_RESEND_MESSAGES)]
MakePlan = Callable[[], Awaitable[ResendPlan]]


class BatchPages:
    """Renders the pages, and makes jobs of their forms."""

    def __init__(self, act: ActPages) -> None:
        self.act: Final = act

    async def show(
        self,
        request: Request,
        preferences: Preferences,
        make: MakePlan,
        shown: Mapping[str, object],
        error: Exception | None = None,
    ) -> HTMLResponse:
        """Return the page that shows a plan, with a form to do it; or why there is none."""
        plan = None
        try:
            plan = await self.act.acting.shown(await make())
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.act.page("act_batch.html", request, preferences, error, plan=plan, **shown)

    async def start(
        self,
        request: Request,
        preferences: Preferences,
        make: MakePlan,
        shown: Mapping[str, object],
    ) -> Response:
        """Make a job of a form and go to its page; or show the plan again, and why not."""
        form = await form_of(request)
        try:
            name = await self.act.acting.start(
                request,
                await make(),
                name=form.get("name", ""),
                reason=form.get("reason", ""),
                digest=form.get("digest", ""),
                rate=rate_of(form),
            )
        except (RocketLensError, OSError) as error:
            again = {**shown, "reason": form.get("reason", "")}
            return await self.show(request, preferences, make, again, error)
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)


def batch_routes(batch: BatchPages) -> APIRouter:
    """Return the routes of these pages."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    acting = batch.act.acting

    @routes.api_route("/resend", methods=["GET", "POST"])
    async def resend(
        *,
        request: Request,
        preferences: Preferred,
        question: Asked,
        group: _Name = "",
        cluster: _Name = "",
        most: _Most = limits.DEFAULT_RESEND_MESSAGES,
    ) -> Response:
        asked = Batch(group.strip(), cluster, most)

        async def make() -> ResendPlan:
            return await acting.search_plan(request, question, asked)

        shown = {
            "kind": "search",
            "back": question.address("/search"),
            "asked": asked,
            "hidden": [
                (name, value)
                for name, value in request.query_params.multi_items()
                if name not in {"group", "cluster", "most"}
            ],
            "is_store": _is_store(batch, question.sources),
            "reason": "",
        }
        do = batch.start if request.method == "POST" else batch.show
        return await do(request, preferences, make, shown)

    @routes.api_route("/redrive", methods=["GET", "POST"])
    async def redrive(
        *,
        request: Request,
        preferences: Preferred,
        group: _Name,
        source: _Name,
        most: _Most = limits.DEFAULT_RESEND_MESSAGES,
        original: bool = False,
        again: bool = False,
    ) -> Response:
        asked = Batch(group, source, most)

        async def make() -> ResendPlan:
            return await acting.redrive_plan(request, group, asked, original=original, again=again)

        shown = {
            "kind": "redrive",
            "back": "/groups",
            "asked": asked,
            "hidden": [("group", group), ("source", source)],
            "original": original,
            "again": again,
            "is_store": False,
            "reason": "",
        }
        do = batch.start if request.method == "POST" else batch.show
        return await do(request, preferences, make, shown)

    return routes


def _is_store(batch: BatchPages, names: tuple[str, ...]) -> bool:
    return any(each.kind == "store" and each.name in names for each in batch.act.acting.sources)

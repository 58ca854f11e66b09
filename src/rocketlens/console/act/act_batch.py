"""The pages of jobs with several messages: what a search found, messages that were chosen in its
list, and dead letters of a group.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.act.act_pages import SEE_OTHER, ActPages, rate_of
from rocketlens.console.act.act_values import JOB_ROWS
from rocketlens.console.act.acting import Batch
from rocketlens.console.act.forms import form_of, form_pairs_of
from rocketlens.console.act.resend_plan import ResendPlan
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.pages import Asked, Preferred
from rocketlens.console.preferences import Preferences, local_path
from rocketlens.errors import BadInput, RocketLensError

_Name = Annotated[str, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]
_Most = Annotated[int, Query(ge=1, le=limits.MAX_RESEND_MESSAGES)]
_DIGITS: Final = 8
"""Fewer of a number in a form: no plan has so many messages."""
MakePlan = Callable[[], Awaitable[ResendPlan]]
CHOSEN: Final = "chosen"
"""The field of a form that is there for each message that was chosen: the path of its page."""


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
        plan, rows = None, {}
        fields = request.query_params if request.method == "GET" else await form_of(request)
        page = _page_of(fields.get("page", "0"))
        try:
            made = await make()
            plan = await self.act.acting.shown(made, page=page)
            rows = await self.act.acting.rows(made, page)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.act.page(
            "act_batch.html",
            request,
            preferences,
            error,
            plan=plan,
            rows=rows,
            number=page,
            page_rows=JOB_ROWS,
            **shown,
        )

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

    async def chosen(self, request: Request) -> tuple[MakePlan, dict[str, object]]:
        """Return the plan of a form with chosen messages, and what its page shows."""
        pairs = await form_pairs_of(request) if request.method == "POST" else []
        fields = dict(pairs)
        paths = [value for name, value in pairs if name == CHOSEN]
        asked = Batch(fields.get("group", "").strip(), fields.get("cluster", ""))

        async def make() -> ResendPlan:
            if len(asked.group) > limits.MAX_TOPIC_CHARACTERS:
                raise BadInput(f"a group has at most {limits.MAX_TOPIC_CHARACTERS} characters")
            addresses = [MessageAddress.of_path(each) for each in paths]
            return await self.act.acting.chosen_plan(request, addresses, asked)

        back = local_path(fields.get("back", "/"))
        origins = tuple({path.split("/")[2] for path in paths if path.count("/") > 1})
        hidden = [("back", back), *((CHOSEN, each) for each in paths)]
        return make, {
            "kind": CHOSEN,
            "back": back,
            "asked": asked,
            "preview": "/resend/chosen",
            "start": "/resend/chosen/start",
            "hidden": hidden,
            "again_fields": [("group", asked.group), ("cluster", asked.cluster)],
            "is_store": _is_store(self, origins),
            "reason": "",
        }

    async def chosen_letters(self, request: Request) -> tuple[MakePlan, dict[str, object]]:
        """Return the plan of a form with chosen dead letters, and what its page shows."""
        pairs = await form_pairs_of(request) if request.method == "POST" else []
        fields = dict(pairs)
        only = [value for name, value in pairs if name == CHOSEN]
        group, source = fields.get("group", ""), fields.get("source", "")
        asked = Batch(group, source, _most_of(fields.get("most", "")))
        original, again = (fields.get(name) == "true" for name in ("original", "again"))

        async def make() -> ResendPlan:
            if not only:
                raise BadInput("no dead letter is chosen: choose some in the list of a group")
            if len(only) > limits.MAX_CHOSEN_MESSAGES:
                raise BadInput(
                    f"{len(only)} messages are chosen: at most {limits.MAX_CHOSEN_MESSAGES}"
                )
            return await self.act.acting.redrive_plan(
                request, group, asked, original=original, again=again, only=only
            )

        of_group = [("group", group), ("source", source)]
        options = [("most", str(asked.most)), *([("again", "true")] if again else [])]
        return make, {
            **_redrive_page(asked, original=original, again=again),
            "back": f"/redrive?{urlencode([*of_group, *options])}",
            "back_text": "redrive_chosen",
            "preview": "/redrive/chosen",
            "start": "/redrive/chosen/start",
            "hidden": [*of_group, *options, *((CHOSEN, each) for each in only)],
            "is_choice": True,
        }


def chosen_routes(batch: BatchPages) -> APIRouter:
    """Return the routes of the pages of chosen messages."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    # The first page is the answer to a form, too: an address of so many messages would be too long
    # for proxies.
    @routes.api_route("/resend/chosen", methods=["GET", "POST"])
    async def chosen(request: Request, preferences: Preferred) -> Response:
        return await batch.show(request, preferences, *await batch.chosen(request))

    @routes.post("/resend/chosen/start")
    async def start(request: Request, preferences: Preferred) -> Response:
        return await batch.start(request, preferences, *await batch.chosen(request))

    @routes.api_route("/redrive/chosen", methods=["GET", "POST"])
    async def letters(request: Request, preferences: Preferred) -> Response:
        return await batch.show(request, preferences, *await batch.chosen_letters(request))

    @routes.post("/redrive/chosen/start")
    async def start_letters(request: Request, preferences: Preferred) -> Response:
        return await batch.start(request, preferences, *await batch.chosen_letters(request))

    return routes


def batch_routes(batch: BatchPages) -> APIRouter:
    """Return the routes of all these pages."""
    routes = chosen_routes(batch)
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
            "again_fields": [
                *(("group", asked.group), ("cluster", cluster)),
                ("most", str(most)),
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
            **_redrive_page(asked, original=original, again=again),
            "back": f"/groups?{urlencode([('group', group), ('source', source)])}",
            "hidden": [("group", group), ("source", source)],
        }
        do = batch.start if request.method == "POST" else batch.show
        return await do(request, preferences, make, shown)

    return routes


def _redrive_page(asked: Batch, *, original: bool, again: bool) -> dict[str, object]:
    """Return what pages of dead letters show alike."""
    marks = (("original", original), ("again", again))
    return {
        "kind": "redrive",
        "asked": asked,
        "again_fields": [
            ("most", str(asked.most)),
            *((name, "true") for name, is_set in marks if is_set),
        ],
        "original": original,
        "again": again,
        "is_choice": False,
        "is_store": False,
        "reason": "",
    }


def _page_of(text: str) -> int:
    """Return the page of a plan that is asked for; the first one for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def _most_of(text: str) -> int:
    """Return how many messages a form asks for at most; the default for anything else."""
    return (
        min(max(_page_of(text), 1), limits.MAX_RESEND_MESSAGES)
        if text
        else (limits.DEFAULT_RESEND_MESSAGES)
    )


def _is_store(batch: BatchPages, names: tuple[str, ...]) -> bool:
    return any(each.kind == "store" and each.name in names for each in batch.act.acting.sources)

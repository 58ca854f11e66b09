"""The pages and the API that act: a plan, its execution, and the result.

The API takes JSON only, and no requests from pages of other sites.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.act.act_values import (
    JOB_ROWS,
    LETTER_FILTERS,
    BatchPlanRequest,
    BatchRequest,
    ChosenPlanRequest,
    ChosenRequest,
    ConsumeRequest,
    JobsValue,
    JobValue,
    NameValue,
    NewMessage,
    Order,
    PlanValue,
    RateRequest,
    RedrivePlanRequest,
    RedriveRequest,
    ResendPlanRequest,
    ResendRequest,
    SendMessageBody,
    form_fields,
)
from rocketlens.console.act.jobs import DEFAULT_RATE, ActValue, new_name
from rocketlens.console.act.permission import ActRefused, check_may_act, is_writable, may_send
from rocketlens.console.act.plans import ResendOptions, ResendPlan, check_chosen
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.pages import (
    ERRORS,
    SEE_OTHER,
    Addressed,
    Asked,
    Here,
    HereNow,
    api_router,
    form_of,
    form_pairs_of,
    page_router,
)
from rocketlens.console.preferences import local_path
from rocketlens.console.room import MESSAGE
from rocketlens.console.status.lists import groups_of
from rocketlens.console.values import ErrorAnswer
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.life import group_of_topic
from rocketlens.model.rocketmq import is_group_topic
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import FAILED_STATES, GroupState

JobName = Annotated[str, Path(max_length=40)]
JobRows = Literal["", "sent", "failed", "unknown", "left"]
JobPage = Annotated[int, Query(ge=0, le=limits.MAX_RESEND_MESSAGES)]
api = api_router(
    {
        **ERRORS,
        403: {"model": ErrorAnswer, "description": "not allowed here, or for this user"},
        409: {"model": ErrorAnswer, "description": "the plan has changed: nothing was done"},
        413: {"model": ErrorAnswer, "description": "the request is too large"},
        415: {"model": ErrorAnswer, "description": "the request is not JSON"},
    }
)


@api.post("/send")
async def send(here: Here, request: SendMessageBody) -> ActValue:
    """Send a new message. The answer has its state: stored, failed, or unknown."""
    return await here.actions.act(await here.actions.send(request, request))


@api.post("/consume")
async def consume(here: Here, request: ConsumeRequest) -> ActValue:
    """Let a client consume a stored message again. No offset moves."""
    name = await here.actions.consume(request.message, request.group, request.client_id, request)
    return await here.actions.act(name)


@api.get("/acts/{name}")
async def act(here: Here, name: JobName) -> ActValue:
    """Return an act: a message that was sent, or consumed by a client."""
    return await here.actions.act(name)


@api.get("/name")
async def name() -> NameValue:
    """Return a new name for an act."""
    return NameValue(name=new_name())


@api.post("/resend/search/plan")
async def search_plan(here: Here, question: Asked, request: BatchPlanRequest) -> PlanValue:
    """Plan to send again what a search finds. Nothing is sent."""
    plan = await here.actions.plans.of_search(question, request, request.most)
    return await here.actions.preview(plan)


@api.post("/resend/search")
async def search(here: Here, question: Asked, request: BatchRequest) -> JobValue:
    """Send again what a search finds, as a job."""
    plan = await here.actions.plans.of_search(question, request, request.most)
    return await _start_job(here, plan, request)


@api.post("/resend/chosen/plan")
async def chosen_plan(here: Here, request: ChosenPlanRequest) -> PlanValue:
    """Plan to send these messages again. Nothing is sent."""
    plan = await here.actions.plans.of_chosen(request.messages, request)
    return await here.actions.preview(plan)


@api.post("/resend/chosen")
async def chosen(here: Here, request: ChosenRequest) -> JobValue:
    """Send these messages again, as a job."""
    plan = await here.actions.plans.of_chosen(request.messages, request)
    return await _start_job(here, plan, request)


@api.post("/redrive/plan")
async def redrive_plan(here: Here, request: RedrivePlanRequest) -> PlanValue:
    """Plan to send the dead letters of a group again. Nothing is sent."""
    return await here.actions.preview(await here.actions.plans.of_dead_letters(request))


@api.post("/redrive")
async def redrive(here: Here, request: RedriveRequest) -> JobValue:
    """Send the dead letters of a group again, as a job: to the group, or to their topics."""
    return await _start_job(here, await here.actions.plans.of_dead_letters(request), request)


@api.post("/resend/plan")
async def resend_plan(here: Here, request: ResendPlanRequest) -> PlanValue:
    """Plan to send a stored message again. Nothing is sent."""
    planned = await here.actions.plans.of_message(request.message, request)
    return await here.actions.preview(*planned)


@api.post("/resend")
async def resend(here: Here, request: ResendRequest) -> JobValue:
    """Send a stored message again, as a job. Wait a few seconds for its end."""
    plan, _ = await here.actions.plans.of_message(request.message, request)
    return await _start_job(here, plan, request)


@api.get("/jobs")
async def jobs(here: Here) -> JobsValue:
    """Return the newest jobs and acts, whichever program made them."""
    return await here.actions.all_jobs()


@api.get("/jobs/{name}")
async def job(here: Here, name: JobName, state: JobRows = "", page: JobPage = 0) -> JobValue:
    """Return a job, with a page of its messages."""
    return await here.actions.job(name, state=state, page=page)


@api.post("/jobs/{name}/{verb}")
async def change(
    here: Here, name: JobName, verb: Literal["pause", "resume", "stop"], request: RateRequest
) -> JobValue:
    """Pause, resume or stop a job. It ends after the current message."""
    await here.actions.change(name, verb, rate=request.rate)
    return await here.actions.job(name)


async def _start_job(here: HereNow, plan: ResendPlan, order: Order) -> JobValue:
    return await here.actions.job(await here.actions.resend(plan, order))


_BOTH: Final = ["GET", "POST"]
_CHOSEN: Final = "chosen"
"""The form field with a chosen message. It occurs once for each."""
_OFFERED_GROUPS: Final = 12
"""Groups with a link on a page. The input field suggests the others."""
_DIGITS: Final = 8
"""Page numbers have fewer digits: no plan has so many messages."""
_JobName = Annotated[str, Path(max_length=limits.MAX_CONSOLE_REASON)]
pages = page_router()


async def _form(
    here: HereNow,
    show: Callable[[Mapping[str, str], Exception | None], Awaitable[HTMLResponse]],
    act: Callable[[Mapping[str, str]], Awaitable[str]],
) -> Response:
    """Show a form. After it was sent, act and redirect to the result; on an error show it again."""
    if here.request.method == "GET":
        return await show(here.request.query_params, None)
    fields = await form_of(here.request)
    try:
        name = await act(fields)
    except (RocketLensError, OSError) as error:
        return await show(fields, error)
    return RedirectResponse(f"/jobs/{name}", SEE_OTHER)


def _message_path(request: Request) -> str:
    """Return the address of the message that this page is about, as the browser wrote it."""
    path: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    return path.decode("ascii").partition("?")[0].rpartition("/")[0]


@pages.api_route("/m" + MESSAGE + "/resend", methods=_BOTH)
async def _resend(here: Here, address: Addressed) -> Response:
    async def act(form: Mapping[str, str]) -> str:
        plan, _ = await here.actions.plans.of_message(address, ResendOptions.of_form(form))
        return await here.actions.resend(plan, Order.of_form(form))

    return await _form(here, partial(_resend_form, here, address), act)


async def _resend_form(
    here: HereNow,
    address: MessageAddress,
    fields: Mapping[str, str],
    error: Exception | None = None,
) -> HTMLResponse:
    """Return the page that sends one message again."""
    origin, actions = here.sources.named(address.source), here.actions
    to = "group" if fields.get("to") == "group" else "topic"
    group, cluster = "", fields.get("cluster", "")
    topic = origin.plain(address.topic)
    plan = None
    groups: dict[str, str] = {}
    try:
        if to == "group":
            groups = await _known_groups(here, address, cluster)
            first = next(iter(groups), "")
            failed = first if groups.get(first) in FAILED_STATES else ""
            if is_group_topic(topic):
                # The group of a retry or a dead letter.
                failed = group_of_topic(topic, groups) or failed
            group = fields.get("group", failed).strip()
        if to == "topic" or group:
            options = ResendOptions.of_form({"group": group, "cluster": cluster})
            plan = await actions.preview(*await actions.plans.of_message(address, options))
    except (RocketLensError, OSError) as wrong:
        error = error or wrong
    return here.page_with_error(
        error,
        "act_resend.html",
        plan=plan,
        to=to,
        group=group,
        groups=groups,
        offered=list(groups.items())[:_OFFERED_GROUPS],
        cluster=cluster,
        reason=fields.get("reason", ""),
        address=address,
        back=_message_path(here.request),
        origin=origin,
    )


async def _known_groups(here: HereNow, address: MessageAddress, cluster: str) -> dict[str, str]:
    """Return all groups with their state of the message, or ``""``; failed ones first."""
    origin = here.sources.named(address.source)
    names = [origin.name] if origin.kind == "cluster" else [cluster] if cluster else []
    story, answer = await asyncio.gather(
        here.look_up.story(address), groups_of(here.sources, names)
    )
    states = {origin.plain(each.group): each.state for each in story.groups}
    ranks: dict[str, int] = {GroupState.DEAD_LETTER: 0, GroupState.RETRYING: 1}
    own = sorted(states.items(), key=lambda each: (ranks.get(each[1], 2), each[0]))
    others = sorted(each.name for each in answer.groups if each.name not in states)
    return {**dict(own), **dict.fromkeys(others, "")}


@pages.api_route("/m" + MESSAGE + "/consume", methods=_BOTH)
async def _consume(here: Here, address: Addressed) -> Response:
    async def act(form: Mapping[str, str]) -> str:
        group, client_id = form.get("group", ""), form.get("client", "")
        return await here.actions.consume(address, group, client_id, Order.of_form(form))

    return await _form(here, partial(_consume_form, here, address), act)


async def _consume_form(
    here: HereNow,
    address: MessageAddress,
    fields: Mapping[str, str],
    error: Exception | None = None,
) -> HTMLResponse:
    """Return the page for consuming a message: a list of clients, or the chosen one."""
    group, client_id = fields.get("group", ""), fields.get("client", "")
    groups = None
    try:
        check_may_act(here.sources.named(address.source), address.topic)
        if not (group and client_id):
            groups = await groups_of(here.sources, [address.source], group or None)
    except (RocketLensError, OSError) as wrong:
        error = error or wrong
    return here.page_with_error(
        error,
        "act_consume.html",
        address=address,
        back=_message_path(here.request),
        group=group,
        client=client_id,
        groups=groups,
        form_name=new_name(),
        reason=fields.get("reason", ""),
    )


@pages.get("/m" + MESSAGE + "/edit")
async def _edit(here: Here, address: Addressed) -> Response:
    source = here.sources.named(address.source)
    if not may_send(here.sources, source, address.topic):
        check_may_act(source, address.topic)
    fields = form_fields(await here.look_up.unmasked(address))
    if source.kind == "cluster":
        fields["cluster"] = source.name
    return await _send_form(here, fields, back=_message_path(here.request))


@pages.api_route("/send", methods=_BOTH)
async def _send(here: Here) -> Response:
    async def act(form: Mapping[str, str]) -> str:
        return await here.actions.send(NewMessage.of_form(form), Order.of_form(form))

    return await _form(here, partial(_send_form, here), act)


async def _send_form(
    here: HereNow, fields: Mapping[str, str], error: Exception | None = None, back: str = ""
) -> HTMLResponse:
    """Return the form for a new message."""
    clusters = [each.name for each in here.sources if is_writable(each)]
    if not clusters:
        error = error or ActRefused(Sentence("no_writable_cluster"))
    empty = dict.fromkeys(("topic", "tags", "keys", "properties", "body", "reason"), "")
    return here.page_with_error(
        error,
        "act_send.html",
        clusters=clusters,
        fields={**empty, "encoding": "text", "cluster": "", **fields},
        form_name=new_name(),
        back=back,
    )


class _Batch(NamedTuple):
    """A job with several messages."""

    plan: Callable[[], Awaitable[ResendPlan]]
    shown: dict[str, object]
    """The values of its page, besides the plan."""


@pages.api_route("/resend", methods=_BOTH)
async def _resend_search(here: Here, question: Asked) -> Response:
    return await _show_or_start(here, _of_search(here, question))


@pages.api_route("/redrive", methods=_BOTH)
async def _redrive(here: Here) -> Response:
    return await _show_or_start(here, _of_letters(here, here.request.query_params))


@pages.api_route("/resend/chosen", methods=_BOTH)
@pages.post("/resend/chosen/start")
async def _resend_chosen(here: Here) -> Response:
    return await _show_or_start(here, await _of_chosen(here))


@pages.api_route("/redrive/chosen", methods=_BOTH)
@pages.post("/redrive/chosen/start")
async def _redrive_chosen(here: Here) -> Response:
    fields, letters = await _chosen_in(here.request)
    return await _show_or_start(here, _of_letters(here, fields, letters))


async def _show_or_start(here: HereNow, batch: _Batch) -> Response:
    async def act(form: Mapping[str, str]) -> str:
        return await here.actions.resend(await batch.plan(), Order.of_form(form))

    show, request = partial(_batch_page, here, batch), here.request
    if request.method == "POST" and request.url.path.endswith(f"/{_CHOSEN}"):
        # A plan, too: proxies would refuse an address with so many messages.
        return await show(await form_of(request), None)
    return await _form(here, show, act)


async def _batch_page(
    here: HereNow, batch: _Batch, fields: Mapping[str, str], error: Exception | None
) -> HTMLResponse:
    """Return the page of a plan, with a form that starts it, or with the error."""
    text = fields.get("page", "0")
    page = int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0
    preview, rows = None, {}
    try:
        plan = await batch.plan()
        preview = await here.actions.preview(plan, page=page)
        rows = await here.actions.rows(plan, page)
    except (RocketLensError, OSError) as wrong:
        error = error or wrong
    return here.page_with_error(
        error,
        "act_batch.html",
        plan=preview,
        rows=rows,
        number=page,
        page_rows=JOB_ROWS,
        reason=fields.get("reason", ""),
        rate=DEFAULT_RATE,
        **batch.shown,
    )


def _of_search(here: HereNow, question: Asked) -> _Batch:
    values = here.request.query_params
    options = BatchPlanRequest.of_form(values)
    return _Batch(
        lambda: here.actions.plans.of_search(question, options, options.most),
        {
            "kind": "search",
            "back": question.address("/search"),
            "options": options,
            "hidden": [each for each in values.multi_items() if each[0] not in dict(options)],
            "again_fields": [(name, str(each)) for name, each in options],
            "is_store": _is_store(here, question.sources),
        },
    )


async def _of_chosen(here: HereNow) -> _Batch:
    fields, paths = await _chosen_in(here.request)

    async def plan() -> ResendPlan:
        addresses = [MessageAddress.of_path(each) for each in paths]
        options = ResendOptions.of_form(fields)
        return await here.actions.plans.of_chosen(addresses, options)

    back = local_path(fields.get("back", "/"))
    options = {name: fields.get(name, "").strip() for name in ("group", "cluster")}
    origins = tuple({path.split("/")[2] for path in paths if path.count("/") > 1})
    return _Batch(
        plan,
        {
            "kind": _CHOSEN,
            "back": back,
            "options": options,
            "preview": "/resend/chosen",
            "start": "/resend/chosen/start",
            "hidden": [("back", back), *((_CHOSEN, each) for each in paths)],
            "again_fields": list(options.items()),
            "is_store": _is_store(here, origins),
        },
    )


def _of_letters(
    here: HereNow, fields: Mapping[str, str], letters: list[str] | None = None
) -> _Batch:
    """Return the batch of all dead letters of a group, or of the chosen ones."""
    asked = RedrivePlanRequest.of_form({**fields, "cluster": fields.get("source", "")})
    group = [("group", asked.group), ("source", asked.cluster)]
    marks = [(name, "true") for name in ("original", "again") if getattr(asked, name)]
    most = ("most", str(asked.most))

    async def plan() -> ResendPlan:
        if letters == []:
            raise BadInput(Sentence("no_letter_chosen"))
        if letters:
            check_chosen(letters)
        chosen = asked.model_copy(update={"only": letters or []})
        return await here.actions.plans.of_dead_letters(chosen)

    shown: dict[str, object] = {
        "kind": "redrive",
        "options": asked,
        "again_fields": [most, *marks, *asked.filters.items()],
        "filters": {name: getattr(asked, name) for name in LETTER_FILTERS},
        "original": asked.original,
        "again": asked.again,
        "is_store": False,
        "is_choice": letters is not None,
        "back": f"/groups?{urlencode(group)}",
        "hidden": group,
    }
    if letters is not None:
        kept = [*group, most, *([("again", "true")] if asked.again else [])]
        shown |= {
            "back": f"/redrive?{urlencode(kept)}",
            "back_text": "redrive_chosen",
            "preview": "/redrive/chosen",
            "start": "/redrive/chosen/start",
            "hidden": [*kept, *((_CHOSEN, each) for each in letters)],
        }
    return _Batch(plan, shown)


def _is_store(here: HereNow, names: tuple[str, ...]) -> bool:
    return any(each.kind != "cluster" and each.name in names for each in here.sources)


async def _chosen_in(request: Request) -> tuple[dict[str, str], list[str]]:
    """Return the fields of a form and its chosen messages; both empty for a GET request."""
    pairs = await form_pairs_of(request) if request.method == "POST" else []
    return dict(pairs), [value for name, value in pairs if name == _CHOSEN]


@pages.get("/jobs")
async def _jobs(here: Here) -> Response:
    return here.page("jobs.html", answer=await here.actions.all_jobs())


@pages.get("/jobs/{name}")
async def _job(here: Here, name: _JobName, state: JobRows = "", page: JobPage = 0) -> Response:
    result = await here.actions.result(name, state=state, page=page)
    if isinstance(result, ActValue):
        return here.page("act.html", act=result)
    return here.page(
        "job.html", job=result, state=state, number=page, rows=JOB_ROWS, rate=DEFAULT_RATE
    )


@pages.post("/jobs/{name}/{verb}")
async def _change(here: Here, name: _JobName, verb: Literal["pause", "resume", "stop"]) -> Response:
    form = await form_of(here.request)
    await here.actions.change(name, verb, rate=RateRequest.of_form(form).rate)
    return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

"""The part of the API that acts: JSON only, never from a page of another site."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from rocketlens import limits
from rocketlens.console.act.act_values import (
    ActValue,
    BatchActed,
    BatchPlanRequest,
    BatchRequest,
    ChosenPlanRequest,
    ChosenRequest,
    ConsumeRequest,
    JobsValue,
    JobValue,
    NameValue,
    PlanValue,
    RateRequest,
    RedrivePlanRequest,
    RedriveRequest,
    ResendPlanRequest,
    ResendRequest,
    SendMessageBody,
)
from rocketlens.console.act.actions import Actions, NewMessage, base64_bytes
from rocketlens.console.act.jobs import new_name
from rocketlens.console.act.plans import ResendPlan
from rocketlens.console.api import ERRORS
from rocketlens.console.search.parameters import Asked
from rocketlens.console.values import ErrorAnswer
from rocketlens.errors import BadInput

_ERRORS_OF_ACTS = {
    **ERRORS,
    403: {"model": ErrorAnswer, "description": "it may not be done here, or by this user"},
    409: {"model": ErrorAnswer, "description": "it is not what was shown: nothing was done"},
    413: {"model": ErrorAnswer, "description": "the request is too large"},
    415: {"model": ErrorAnswer, "description": "the request is not JSON"},
}
JobName = Annotated[str, Path(max_length=40)]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("the body is no Unicode text: give body_base64") from error


def act_api_routes(actions: Actions) -> APIRouter:
    """Return the routes of all acts."""
    routes = APIRouter(prefix="/api", responses=_ERRORS_OF_ACTS)

    @routes.post("/send")
    async def send(request: SendMessageBody) -> ActValue:
        """Send a new message; the answer says whether it is stored, failed, or not known."""
        if request.body and request.body_base64:
            raise BadInput("body and body_base64 are both given: give only one")
        new = NewMessage(
            topic=request.topic,
            body=base64_bytes(request.body_base64) if request.body_base64 else _utf8(request.body),
            tags=request.tags,
            keys=request.keys,
            properties=request.properties,
        )
        return await actions.act(await actions.send(request.cluster, new, request.order))

    @routes.post("/consume")
    async def consume(request: ConsumeRequest) -> ActValue:
        """Let one client consume a stored message again; no offset moves."""
        name = await actions.consume(
            request.message.address, request.group, request.client_id, request.order
        )
        return await actions.act(name)

    @routes.get("/acts/{name}")
    async def act(name: JobName) -> ActValue:
        """Return a single act: a message that was sent, or consumed by a client."""
        return await actions.act(name)

    @routes.get("/name")
    async def name() -> NameValue:
        """Return a new name for an act."""
        return NameValue(name=new_name())

    _add_batches(routes, actions)

    @routes.post("/resend/plan")
    async def resend_plan(request: ResendPlanRequest) -> PlanValue:
        """Return what sending a stored message again would do; nothing is sent."""
        plan, message = await actions.plans.of_message(request.message.address, request.options)
        return await actions.preview(plan, message)

    @routes.post("/resend")
    async def resend(request: ResendRequest) -> JobValue:
        """Send a stored message again, as a job; wait a few seconds for its end."""
        plan, _ = await actions.plans.of_message(request.message.address, request.options)
        return await actions.job(await actions.resend(plan, request.order))

    _add_jobs(routes, actions)
    return routes


def _add_batches(routes: APIRouter, actions: Actions) -> None:
    """Add the routes of jobs with several messages."""
    plans = actions.plans

    async def start(plan: ResendPlan, request: BatchActed) -> JobValue:
        return await actions.job(await actions.resend(plan, request.order))

    async def of_chosen(request: ChosenPlanRequest) -> ResendPlan:
        return await plans.of_chosen([each.address for each in request.messages], request.options)

    async def of_dead_letters(request: RedrivePlanRequest) -> ResendPlan:
        return await plans.of_dead_letters(
            request.group,
            request.options,
            original=request.original,
            again=request.again,
            only=request.only,
        )

    @routes.post("/resend/search/plan")
    async def search_plan(question: Asked, request: BatchPlanRequest) -> PlanValue:
        """Return what sending again what a search finds would do; nothing is sent."""
        return await actions.preview(await plans.of_search(question, request.options))

    @routes.post("/resend/search")
    async def search(question: Asked, request: BatchRequest) -> JobValue:
        """Send again what a search finds, as a job."""
        return await start(await plans.of_search(question, request.options), request)

    @routes.post("/resend/chosen/plan")
    async def chosen_plan(request: ChosenPlanRequest) -> PlanValue:
        """Return what sending these messages again would do; nothing is sent."""
        return await actions.preview(await of_chosen(request))

    @routes.post("/resend/chosen")
    async def chosen(request: ChosenRequest) -> JobValue:
        """Send these messages again, as a job."""
        return await start(await of_chosen(request), request)

    @routes.post("/redrive/plan")
    async def redrive_plan(request: RedrivePlanRequest) -> PlanValue:
        """Return what sending the dead letters of a group again would do; nothing is sent."""
        return await actions.preview(await of_dead_letters(request))

    @routes.post("/redrive")
    async def redrive(request: RedriveRequest) -> JobValue:
        """Send the dead letters of a group again, as a job: to it alone, or to their topics."""
        return await start(await of_dead_letters(request), request)


def _add_jobs(routes: APIRouter, actions: Actions) -> None:
    """Add the routes of jobs that were made."""

    @routes.get("/jobs")
    async def jobs() -> JobsValue:
        """Return the newest jobs and acts, whichever program made them."""
        return await actions.all_jobs()

    @routes.get("/jobs/{name}")
    async def job(
        name: JobName,
        state: Literal["", "sent", "failed", "unknown", "left"] = "",
        page: Annotated[int, Query(ge=0, le=limits.MAX_RESEND_MESSAGES)] = 0,
    ) -> JobValue:
        """Return a job, with a page of its messages."""
        return await actions.job(name, state=state, page=page)

    @routes.post("/jobs/{name}/{verb}")
    async def change(
        name: JobName, verb: Literal["pause", "resume", "stop"], request: RateRequest
    ) -> JobValue:
        """Pause, resume or stop a job: it ends after the message that is being sent."""
        await actions.change(name, verb, rate=request.rate)
        return await actions.job(name)

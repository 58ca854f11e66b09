"""The part of the API that acts: JSON only, never from a page of another site."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from rocketlens import limits
from rocketlens.console.act.act_values import (
    DEFAULT_RATE,
    ActValue,
    BatchActed,
    BatchPlanRequest,
    BatchRequest,
    ChosenPlanRequest,
    ChosenRequest,
    ConsumeRequest,
    JobsValue,
    JobValue,
    MessageName,
    NameValue,
    PlanValue,
    RateRequest,
    RedrivePlanRequest,
    RedriveRequest,
    ResendPlanRequest,
    ResendRequest,
    SendMessageBody,
)
from rocketlens.console.act.acting import Acting, Batch
from rocketlens.console.act.forms import new_name
from rocketlens.console.act.resend_plan import ResendPlan
from rocketlens.console.act.single_acts import NewMessage, SingleActs, base64_bytes
from rocketlens.console.api import ERRORS
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.search.parameters import question_of
from rocketlens.console.search.question import Question
from rocketlens.console.values import ErrorAnswer
from rocketlens.errors import BadInput

_ERRORS_OF_ACTS = {
    **ERRORS,
    403: {"model": ErrorAnswer, "description": "it may not be done here, or by this user"},
    409: {"model": ErrorAnswer, "description": "it is not what was shown: nothing was done"},
    413: {"model": ErrorAnswer, "description": "the request is too large"},
    415: {"model": ErrorAnswer, "description": "the request is not JSON"},
}
Asked = Annotated[Question, Depends(question_of)]
JobName = Annotated[str, Path(max_length=40)]


def _address(named: MessageName) -> MessageAddress:
    return MessageAddress(
        named.source, named.topic, named.broker, named.queue_id, named.queue_offset
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("the body is no Unicode text: give body_base64") from error


def single_api_routes(single: SingleActs) -> APIRouter:
    """Return the routes of acts on one message."""
    routes = APIRouter(prefix="/api", responses=_ERRORS_OF_ACTS)

    @routes.post("/send")
    async def send(request: Request, asked: SendMessageBody) -> ActValue:
        """Send a new message; the answer says whether it is stored, failed, or not known."""
        if asked.body and asked.body_base64:
            raise BadInput("body and body_base64 are both given: give only one")
        new = NewMessage(
            topic=asked.topic,
            body=base64_bytes(asked.body_base64) if asked.body_base64 else _utf8(asked.body),
            tags=asked.tags,
            keys=asked.keys,
            properties=asked.properties,
        )
        name = await single.send(request, asked.cluster, new, name=asked.name, reason=asked.reason)
        return ActValue.of(await single.act(name))

    @routes.post("/consume")
    async def consume(request: Request, asked: ConsumeRequest) -> ActValue:
        """Let one client consume a stored message again; no offset moves."""
        name = await single.consume(
            request,
            _address(asked.message),
            group=asked.group,
            client_id=asked.client_id,
            name=asked.name,
            reason=asked.reason,
        )
        return ActValue.of(await single.act(name))

    @routes.get("/acts/{name}")
    async def act(name: JobName) -> ActValue:
        """Return a single act: a message that was sent, or consumed by a client."""
        return ActValue.of(await single.act(name))

    @routes.get("/name")
    async def name() -> NameValue:
        """Return a new name for an act."""
        return NameValue(name=new_name())

    return routes


def batch_api_routes(acting: Acting) -> APIRouter:
    """Return the routes of jobs with several messages."""
    routes = APIRouter(prefix="/api", responses=_ERRORS_OF_ACTS)

    async def start(request: Request, plan: ResendPlan, asked: BatchActed) -> JobValue:
        name = await acting.start(
            request,
            plan,
            name=asked.name,
            reason=asked.reason,
            digest=asked.digest,
            rate=asked.rate,
        )
        return await acting.job(name)

    @routes.post("/resend/search/plan")
    async def search_plan(request: Request, question: Asked, asked: BatchPlanRequest) -> PlanValue:
        """Return what sending again what a search finds would do; nothing is sent."""
        return await acting.shown(await acting.search_plan(request, question, _batch(asked)))

    @routes.post("/resend/search")
    async def search(request: Request, question: Asked, asked: BatchRequest) -> JobValue:
        """Send again what a search finds, as a job."""
        plan = await acting.search_plan(request, question, _batch(asked))
        return await start(request, plan, asked)

    @routes.post("/resend/chosen/plan")
    async def chosen_plan(request: Request, asked: ChosenPlanRequest) -> PlanValue:
        """Return what sending these messages again would do; nothing is sent."""
        return await acting.shown(await _chosen(request, asked))

    @routes.post("/resend/chosen")
    async def chosen(request: Request, asked: ChosenRequest) -> JobValue:
        """Send these messages again, as a job."""
        return await start(request, await _chosen(request, asked), asked)

    @routes.post("/redrive/plan")
    async def redrive_plan(request: Request, asked: RedrivePlanRequest) -> PlanValue:
        """Return what sending the dead letters of a group again would do; nothing is sent."""
        return await acting.shown(await _redrive(request, asked))

    @routes.post("/redrive")
    async def redrive(request: Request, asked: RedriveRequest) -> JobValue:
        """Send the dead letters of a group again, as a job: to it alone, or to their topics."""
        return await start(request, await _redrive(request, asked), asked)

    async def _chosen(request: Request, asked: ChosenPlanRequest) -> ResendPlan:
        addresses = [_address(each) for each in asked.messages]
        return await acting.chosen_plan(request, addresses, Batch(asked.group, asked.cluster))

    async def _redrive(request: Request, asked: RedrivePlanRequest) -> ResendPlan:
        return await acting.redrive_plan(
            request,
            asked.group,
            _batch(asked),
            original=asked.original,
            again=asked.again,
            only=asked.only,
        )

    return routes


def _batch(asked: BatchPlanRequest) -> Batch:
    return Batch(asked.group, asked.cluster, asked.most)


def act_api_routes(acting: Acting, single: SingleActs) -> APIRouter:
    """Return the routes of all acts."""
    routes = single_api_routes(single)
    routes.routes.extend(batch_api_routes(acting).routes)

    @routes.post("/resend/plan")
    async def resend_plan(request: Request, asked: ResendPlanRequest) -> PlanValue:
        """Return what sending a stored message again would do; nothing is sent."""
        plan, message = await acting.message_plan(
            request, _address(asked.message), group=asked.group, cluster=asked.cluster
        )
        return await acting.shown(plan, message)

    @routes.post("/resend")
    async def resend(request: Request, asked: ResendRequest) -> JobValue:
        """Send a stored message again, as a job; wait a few seconds for its end."""
        plan, _ = await acting.message_plan(
            request, _address(asked.message), group=asked.group, cluster=asked.cluster
        )
        name = await acting.start(
            request,
            plan,
            name=asked.name,
            reason=asked.reason,
            digest=plan.digest,
            rate=DEFAULT_RATE,
        )
        return await acting.job(name)

    @routes.get("/jobs")
    async def jobs() -> JobsValue:
        """Return the newest jobs and acts, whichever program made them."""
        return await acting.all_jobs()

    @routes.get("/jobs/{name}")
    async def job(
        name: JobName,
        state: Literal["", "sent", "failed", "unknown", "left"] = "",
        page: Annotated[int, Query(ge=0, le=limits.MAX_RESEND_MESSAGES)] = 0,
    ) -> JobValue:
        """Return a job, with a page of its messages."""
        return await acting.job(name, state=state, page=page)

    @routes.post("/jobs/{name}/{verb}")
    async def change(
        request: Request,
        name: JobName,
        verb: Literal["pause", "resume", "stop"],
        asked: RateRequest,
    ) -> JobValue:
        """Pause, resume or stop a job: it ends after the message that is being sent."""
        await acting.change(request, name, verb, rate=asked.rate)
        return await acting.job(name)

    return routes

"""The acts of users: sending again, sending, and consumption by a client.

Pages and API share it. Each act is checked, written to the audit log, done once per order name, and
recorded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

from rocketlens import limits
from rocketlens.client.admin.group_calls import ConsumedDirectly, consume_directly
from rocketlens.client.resend.resend_job import copy_of
from rocketlens.client.send.message import RESEND_GROUP
from rocketlens.client.send.send_result import SendResult
from rocketlens.console.act.act_values import (
    JOB_ROWS,
    JobSummary,
    JobsValue,
    JobValue,
    NewMessage,
    Order,
    PlannedValue,
    PlanValue,
)
from rocketlens.console.act.jobs import (
    DONE,
    FAILED,
    KEPT_CHARACTERS,
    ActValue,
    Jobs,
    JobState,
    new_name,
    now_text,
)
from rocketlens.console.act.permission import (
    check_cluster,
    check_may_act,
    check_may_see_job,
    current_login,
    current_user,
)
from rocketlens.console.act.plans import (
    READ_AT_ONCE,
    SHOWN_MARKER,
    PlanChanged,
    Plans,
    ResendPlan,
    address_of,
    check_plan,
    check_topics,
)
from rocketlens.console.login.viewer import LOCAL, current_viewer
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.console.values import MessageRow
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.text.sentences import Sentence

_SHORT_JOB: Final = 20
"""A request waits for the end of its job if the job has at most so many messages."""
_PATIENCE_S: Final = 3.0
"""Seconds of that wait."""


class Actions:
    """Acts on behalf of the current user."""

    def __init__(self, look_up: LookUps, jobs: Jobs) -> None:
        self.look_up: Final = look_up
        self.sources: Final = look_up.sources
        self.plans: Final = Plans(look_up, jobs.directory)
        self._searches: Final = look_up.searches
        self._jobs: Final = jobs

    async def preview(
        self, plan: ResendPlan, message: MessageExt | None = None, *, page: int = 0
    ) -> PlanValue:
        """Return one page of a plan. ``message`` is the message of a plan with a single one.

        :raises BadInput: if the plan is empty.
        :raises TopicNotFound: if a target topic does not exist, or a message names none.
        :raises RemotingError: if no name server answers.
        """
        await check_plan(plan)
        properties = None
        if message is not None:
            copied = await self.look_up.searches.masked(plan.origin, message)
            copy = copy_of(copied, plan.messages[0].target, SHOWN_MARKER)
            properties = dict(copy.properties)
        start = page * JOB_ROWS
        return PlanValue.of(
            plan,
            name=new_name(),
            target=str(plan.target),
            source=plan.origin.name,
            cluster=plan.cluster.name,
            count=len(plan.messages),
            messages=[
                PlannedValue.planned(number, each)
                for number, each in enumerate(plan.messages[start : start + JOB_ROWS], start + 1)
            ],
            properties=properties,
            notes=dict(plan.notes),
        )

    async def rows(self, plan: ResendPlan, page: int = 0) -> dict[int, MessageRow]:
        """Return the readable messages of one page of a plan as rows, by number."""
        origin = self.sources.named(plan.origin.name)
        start = page * JOB_ROWS
        numbers = range(start, min(start + JOB_ROWS, len(plan.messages)))
        messages: dict[int, MessageExt] = {}

        async def read(number: int) -> None:
            each = plan.messages[number]
            if not each.offset_msg_id:
                # It is not in a log.
                return
            host = str(OffsetMessageId.decode(each.offset_msg_id).store_host)
            try:
                messages[number] = await self.look_up.original(address_of(each, origin, host))
            except (MessageNotFound, AnswerIncomplete):
                # The page shows its id. The job looks for it again.
                return

        for first in range(0, len(numbers), READ_AT_ONCE):
            await asyncio.gather(*map(read, numbers[first : first + READ_AT_ONCE]))
        rows = await self._searches.rows([(origin, each) for each in messages.values()])
        return {number + 1: row for number, row in zip(messages, rows, strict=True)}

    async def resend(self, plan: ResendPlan, order: Order) -> str:
        """Start a job from a plan; return its name.

        :raises ActRefused: if the user lacks the right.
        :raises PlanChanged: if the plan differs from the one that was shown.
        :raises ConsoleBusy: if too many jobs run.
        """
        check_topics(plan.cluster, plan.messages)
        if self._jobs.path(order.name).exists():
            return order.name
        if order.digest not in {None, plan.digest}:
            raise PlanChanged(Sentence("plan_changed"))
        await check_plan(plan)
        self._searches.audit.record(
            "resend",
            job=order.name,
            selection=plan.selection,
            target=str(plan.target),
            count=len(plan.messages),
            cluster=plan.cluster.name,
            reason=order.reason,
        )
        await self._jobs.start(order.name, plan, reason=order.reason, rate=order.rate)
        if len(plan.messages) <= _SHORT_JOB:
            await self._jobs.settled(order.name, _PATIENCE_S)
        return order.name

    async def send(self, new: NewMessage, order: Order) -> str:
        """Send a new message once; return the name of the act.

        :raises BadInput: if a part cannot be sent.
        :raises ActRefused: if the user lacks the right.
        :raises TopicNotFound: if the topic does not exist. It is not created.
        """
        cluster = check_may_act(self.sources.named(new.cluster), new.topic)
        if self._jobs.acts.has(order.name):
            return order.name
        message = new.message(cluster.admin.source.full_topic(new.topic))
        await cluster.admin.source.topology.route(message.topic)
        facts = {
            "topic": message.topic,
            "tags": new.tags,
            "keys": new.keys,
            "msg_id": message.unique_key or "",
            "size": str(len(message.body)),
        }

        async def work() -> dict[str, str]:
            # A second attempt after a timeout could store it twice.
            async with cluster.producer(group=RESEND_GROUP, retries=0) as producer:
                return _send_results(await producer.send(message))

        return await self._act("send", cluster, order, facts, work)

    async def consume(
        self, address: MessageAddress, group: str, client_id: str, order: Order
    ) -> str:
        """Let a client consume a stored message once; return the name of the act.

        :raises BadInput: if group or client are missing; other errors as `LookUps.original`.
        :raises ActRefused: if the user lacks the right.
        """
        cluster = check_may_act(self.sources.named(address.source), address.topic)
        if not (group and client_id):
            raise BadInput(Sentence("choose_client"))
        if self._jobs.acts.has(order.name):
            return order.name
        message = await self.look_up.original(address)
        facts = {
            "topic": message.topic,
            "position": f"{message.queue_id}/{message.queue_offset}",
            "msg_id": message.msg_id,
            "group": group,
            "client_id": client_id,
        }
        source = cluster.admin.source

        async def work() -> dict[str, str]:
            full_group = source.full_topic(group)
            return _consume_results(
                await consume_directly(source.cluster, full_group, client_id, message)
            )

        return await self._act("consume", cluster, order, facts, work)

    async def _act(
        self,
        kind: Literal["send", "consume"],
        cluster: ClusterOfConsole,
        order: Order,
        facts: Mapping[str, str],
        work: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> str:
        """Write the act to the audit log, do it, and return its name."""
        self._searches.audit.record(
            kind, job=order.name, cluster=cluster.name, reason=order.reason, **facts
        )
        act = ActValue(
            name=order.name,
            kind=kind,
            cluster=cluster.name,
            reason=order.reason,
            user=current_user(),
            login=current_login(),
            time=now_text(),
            facts={key: value for key, value in facts.items() if value},
        )
        await self._jobs.acts.do(act, work)
        return order.name

    async def result(self, name: str, *, state: str = "", page: int = 0) -> JobValue | ActValue:
        """Return a job with a page of its messages, or an act; errors as `Jobs.state`."""
        if self._jobs.acts.has(name):
            return await self.act(name)
        return await self.job(name, state=state, page=page)

    async def job(self, name: str, *, state: str = "", page: int = 0) -> JobValue:
        """Return a job that the user may see; errors as `Jobs.state`."""
        return JobValue.of_job(await self._state(name), state=state, page=page)

    async def act(self, name: str) -> ActValue:
        """Return an act that the user may see; errors as `Acts.act`."""
        act = await self._jobs.acts.act(name)
        check_may_see_job(self.sources, name, act.login, act.cluster)
        return act

    async def _state(self, name: str) -> JobState:
        state = await self._jobs.state(name)
        check_may_see_job(self.sources, name, state.header.login, state.header.cluster)
        return state

    async def all_jobs(self) -> JobsValue:
        """Return the newest jobs and acts that the user may see. Users do not see damaged files."""
        names = self._jobs.names()
        most = limits.MAX_CONSOLE_JOB_FILES
        if current_viewer() is LOCAL:
            jobs = [each for name in names[:most] if (each := await self._summary(name))]
            return JobsValue(jobs=jobs, more=len(names) - len(jobs))
        # Limit and count only what the user may see.
        shown = [each for name in names if (each := await self._summary(name))]
        return JobsValue(jobs=shown[:most], more=len(shown[most:]))

    async def _summary(self, name: str) -> JobSummary | None:
        """Return the row of a job or an act; None if the user may not see it."""
        try:
            if self._jobs.acts.has(name):
                act = await self.act(name)
                facts = map(act.facts.get, ("topic", "position", "msg_id", "client_id"))
                return JobSummary.of(act, what=" ".join(filter(None, facts)))
            job = await self._jobs.listed(name)
            check_may_see_job(self.sources, name, job.header.login, job.header.cluster)
        except MessageNotFound:
            return None
        except (RocketLensError, OSError) as error:
            if current_viewer() is not LOCAL:
                return None
            nothing = dict.fromkeys(("cluster", "user", "reason"), "")
            return JobSummary.of(
                None, name=name, kind="damaged", state="unknown", what=str(error), **nothing
            )
        return JobSummary.of(
            job.header,
            name=name,
            kind="resend",
            state=job.word,
            what=f"{job.header.selection} → {job.header.target}",
            counts=job.counts,
        )

    async def change(
        self, name: str, verb: Literal["pause", "resume", "stop"], *, rate: int
    ) -> None:
        """Pause, resume or stop a job.

        :raises ActRefused: if the user lacks the right.
        :raises BadInput: if its cluster is not a source of this console, or its file is damaged.
        :raises StoreLocked: if another process runs it.
        """
        job = await self._state(name)
        assert job.contents is not None  # noqa: S101 - only a list has jobs without
        source = self._jobs.cluster_of(job.header)
        check_topics(source, job.contents.messages)
        cluster = check_cluster(source)
        self._searches.audit.record(f"{verb}-job", job=name, cluster=source.name)
        if verb == "resume":
            await self._jobs.resume(name, cluster, rate=rate)
            return
        if verb == "pause":
            self._jobs.end(name, f"paused by {current_user()}")
        else:
            await self._jobs.stop(name, current_user())
        await self._jobs.settled(name, _PATIENCE_S)


def _send_results(result: SendResult) -> dict[str, str]:
    queue = result.message_queue
    return {
        "send_status": result.send_status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "queue": f"{queue.broker_name} {queue.queue_id}/{result.queue_offset}",
    }


def _consume_results(result: ConsumedDirectly) -> dict[str, str]:
    """Return the result of a client. A listener that failed is a failure."""
    answer = result.consume_result
    return {
        "state": DONE if result.is_consumed else FAILED,
        "client_id": result.client_id,
        "consume_result": "?" if answer is None else answer.name,
        "remark": (result.remark or "")[:KEPT_CHARACTERS],
        "spent_time_ms": str(result.spent_time_ms),
    }

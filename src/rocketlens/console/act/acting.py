"""What pages and API do alike when something is sent again: check, show, do once, keep."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from fastapi import Request

from rocketlens import limits
from rocketlens.console.act.act_values import (
    JOB_ROWS,
    JobSummary,
    JobsValue,
    JobValue,
    PlannedValue,
    PlanValue,
)
from rocketlens.console.act.acts import Act, Acts
from rocketlens.console.act.forms import checked_name, checked_reason, new_name
from rocketlens.console.act.jobs import Jobs, JobState
from rocketlens.console.act.permission import (
    ActRefused,
    check_cluster,
    check_may_act,
    check_may_see_job,
    record,
    user_of,
)
from rocketlens.console.act.resend_plan import (
    PlanChanged,
    ResendPlan,
    check_plan,
    cluster_for,
    origin_of_search,
    plan_of_chosen,
    plan_of_dead_letters,
    plan_of_message,
    plan_of_search,
    properties_of_copy,
)
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.sources import ConsoleSource
from rocketlens.console.values import MessageRow
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.model.text.sentences import Sentence

_SHORT_JOB: Final = 20
"""Messages of a job whose end a request waits for."""
_READ_AT_ONCE: Final = 16
"""Chosen messages that are read at once."""
_PATIENCE_S: Final = 3.0
"""Seconds that it waits."""


class Batch(NamedTuple):
    """What is asked of a job with several messages."""

    group: str = ""
    """Only this consumer group; empty: their topics."""
    cluster: str = ""
    most: int = limits.DEFAULT_RESEND_MESSAGES


class Acting:
    """Acts for the console's users."""

    def __init__(self, searches: Searches, look_up: LookUps, jobs: Jobs, acts: Acts) -> None:
        self.searches: Final = searches
        self.look_up: Final = look_up
        self.jobs: Final = jobs
        self.acts: Final = acts
        self.sources: Final = look_up.sources

    async def message_plan(
        self, request: Request, address: MessageAddress, *, group: str, cluster: str
    ) -> tuple[ResendPlan, MessageExt]:
        """Return the plan to send one message again, and the message.

        :raises ActRefused: if the user may not.
        :raises BadInput: if the cluster cannot be.
        :raises MessageNotFound: if there is no such message.
        :raises AnswerIncomplete: if it could not be looked for.
        """
        origin = self.sources.named(address.source)
        goes_to = check_may_act(request, cluster_for(self.sources, origin, cluster), address.topic)
        message = await self.look_up.original(address)
        await self._check_unmasked(origin, goes_to, [message])
        return plan_of_message(origin, goes_to, message, group), message

    async def search_plan(self, request: Request, question: Question, asked: Batch) -> ResendPlan:
        """Return the plan to send again what a search finds; errors as `plan_of_search`.

        :raises ActRefused: if the user may not.
        """
        origin = origin_of_search(self.sources, question)
        # Each topic is checked when they are known.
        cluster = check_cluster(cluster_for(self.sources, origin, asked.cluster))
        plan = await plan_of_search(
            self.searches,
            question,
            cluster,
            group=asked.group,
            max_num=asked.most,
            check=lambda messages: self._check_unmasked(origin, cluster, messages),
        )
        for topic in plan.topics:
            check_may_act(request, cluster, topic)
        return plan

    async def chosen_plan(
        self, request: Request, addresses: Sequence[MessageAddress], asked: Batch
    ) -> ResendPlan:
        """Return the plan to send again exactly these messages; the number in ``asked`` is not
        used.

        :raises BadInput: if there is none, there are too many, or they are of several sources.
        :raises ActRefused: if the user may not; then none was read.
        :raises MessageNotFound: naming one that is not there.
        :raises AnswerIncomplete: if one could not be looked for.
        """
        several = list(dict.fromkeys(addresses))
        names = sorted({each.source for each in several})
        if not several:
            raise BadInput("no message is chosen: choose some in the list of a search")
        if len(several) > limits.MAX_CHOSEN_MESSAGES:
            raise BadInput(
                f"{len(several)} messages are chosen: at most {limits.MAX_CHOSEN_MESSAGES}; send "
                "all that a search finds, or make several jobs"
            )
        if len(names) > 1:
            quoted = " and ".join(repr(each[:80]) for each in names[:2])
            raise BadInput(f"the chosen messages are of {quoted}: choose those of one source")
        origin = self.sources.named(names[0])
        cluster = check_cluster(cluster_for(self.sources, origin, asked.cluster))
        for topic in sorted({each.topic for each in several}):
            check_may_act(request, cluster, topic)
        messages: list[MessageExt] = []
        for start in range(0, len(several), _READ_AT_ONCE):
            part = several[start : start + _READ_AT_ONCE]
            messages += await asyncio.gather(*map(self.look_up.original, part))
        await self._check_unmasked(origin, cluster, messages)
        plan = plan_of_chosen(origin, cluster, messages, asked.group)
        for topic in plan.topics:
            check_may_act(request, cluster, topic)
        return plan

    async def _check_unmasked(
        self, origin: ConsoleSource, goes_to: ConsoleSource, messages: Sequence[MessageExt]
    ) -> None:
        """Check that no message goes where its viewer could see what is masked for him here.

        :raises ActRefused: if parts of one are masked, and it goes to another source: there its
            viewer can have other rights.
        """
        if goes_to.name == origin.name:
            return
        for message in messages:
            if await self.look_up.masked(origin, message) is not message:
                raise ActRefused(
                    f"parts of {message.msg_id} are masked for you, so it cannot be sent from "
                    f"{origin.name} to {goes_to.name}"
                )

    async def redrive_plan(
        self,
        request: Request,
        group: str,
        asked: Batch,
        *,
        original: bool,
        again: bool,
        only: Collection[str] = (),
    ) -> ResendPlan:
        """Return the plan to send a group's dead letters; errors as `plan_of_dead_letters`.

        ``only`` has offset message ids of those that were chosen; empty: all.

        :raises ActRefused: if the user may not.
        :raises BadInput: if earlier jobs have sent all of them.
        :raises PlanChanged: if one that was chosen is not there any more, or was sent.
        """
        source = self.sources.named(asked.cluster)
        cluster = check_may_act(request, source, DEAD_LETTER_PREFIX + group)
        plan = await plan_of_dead_letters(
            cluster,
            group,
            self.jobs.directory,
            original=original,
            again=again,
            max_num=asked.most,
        )
        if not only:
            earlier = dict(plan.notes).get("earlier")
            if earlier and not plan.messages:
                raise BadInput(Sentence("dead_letters_sent", count=earlier))
            return plan
        chosen = [each for each in plan.messages if each.offset_msg_id in only]
        if len(chosen) < len(set(only)):
            raise PlanChanged(
                "some of the chosen dead letters are not there any more, or were sent again: "
                "choose them anew"
            )
        return replace(plan, messages=chosen, notes=())

    async def rows(self, plan: ResendPlan, page: int = 0) -> dict[int, MessageRow]:
        """Return the messages of one page of a plan by number, as a list has them; without those
        that could not be read.
        """
        origin = self.sources.named(plan.origin.name)
        start = page * JOB_ROWS
        numbers = range(start, min(start + JOB_ROWS, len(plan.messages)))
        found: dict[int, MessageExt] = {}

        async def read(number: int) -> None:
            each = plan.messages[number]
            host = str(OffsetMessageId.decode(each.offset_msg_id).store_host)
            address = MessageAddress(
                origin.name, each.topic, host, each.queue_id, each.queue_offset
            )
            try:
                found[number] = await self.look_up.original(address)
            except (MessageNotFound, AnswerIncomplete):
                # It is shown by its id: the job looks for it again, and says what became of it.
                return

        for first in range(0, len(numbers), _READ_AT_ONCE):
            await asyncio.gather(*map(read, numbers[first : first + _READ_AT_ONCE]))
        rows = await self.searches.rows([(origin, each) for each in found.values()])
        return {number + 1: row for number, row in zip(found, rows, strict=True)}

    async def shown(
        self, plan: ResendPlan, message: MessageExt | None = None, *, page: int = 0
    ) -> PlanValue:
        """Return what a plan would do, with one page of its messages.

        :raises BadInput: if it cannot be done.
        :raises TopicNotFound: if a topic is not there, or a message names none.
        :raises RemotingError: if no name server answers.
        """
        await check_plan(plan)
        properties = None
        if message is not None:
            shown = await self.look_up.masked(plan.origin, message)
            properties = properties_of_copy(shown, plan.messages[0].target)
        return PlanValue(
            name=new_name(),
            selection=plan.selection,
            target=str(plan.target),
            source=plan.origin.name,
            cluster=plan.cluster.name,
            count=len(plan.messages),
            digest=plan.digest,
            messages=[
                PlannedValue.of(number, each, None)
                for number, each in enumerate(
                    plan.messages[page * JOB_ROWS : (page + 1) * JOB_ROWS], page * JOB_ROWS + 1
                )
            ],
            properties=properties,
            notes=dict(plan.notes),
        )

    async def start(
        self,
        request: Request,
        plan: ResendPlan,
        *,
        name: str,
        reason: str,
        digest: str,
        rate: int,
    ) -> str:
        """Make a job of a plan and run it; return its name.

        :raises BadInput: if there is no reason, or no name.
        :raises ActRefused: if the user may not.
        :raises PlanChanged: if it is not what was shown.
        :raises ConsoleBusy: if too many jobs run.
        """
        name, reason = checked_name(name), checked_reason(reason)
        for topic in plan.topics:
            check_may_act(request, plan.cluster, topic)
        if self.jobs.path(name).exists():
            return name
        _check_rate(rate)
        if digest != plan.digest:
            raise PlanChanged("there are more or other messages now than were shown: look again")
        await check_plan(plan)
        record(
            request,
            "resend",
            job=name,
            selection=plan.selection,
            target=str(plan.target),
            count=len(plan.messages),
            cluster=plan.cluster.name,
            reason=reason,
        )
        await self.jobs.start(name, plan, reason=reason, user=user_of(request), rate=rate)
        if len(plan.messages) <= _SHORT_JOB:
            await self.jobs.settled(name, _PATIENCE_S)
        return name

    async def job(self, name: str, *, state: str = "", page: int = 0) -> JobValue:
        """Return a job that the viewer may see; errors as `Jobs.state`."""
        return JobValue.of(await self._state(name), state=state, page=page)

    async def _state(self, name: str) -> JobState:
        found = await self.jobs.state(name)
        header = found.contents.header
        check_may_see_job(self.sources, name, header.user, header.cluster)
        return found

    async def all_jobs(self) -> JobsValue:
        """Return the newest jobs that the viewer may see; one whose file is damaged is among them
        for a viewer of all topics.
        """
        names = sorted((*self.jobs.names(), *self.acts.names()), reverse=True)
        newest = names[: limits.MAX_CONSOLE_JOB_FILES]
        found = [await self._summary(each) for each in newest]
        shown = [each for each in found if self._is_shown(each)]
        return JobsValue(jobs=shown, more=len(names) - len(newest))

    def _is_shown(self, job: JobSummary) -> bool:
        try:
            check_may_see_job(self.sources, job.name, job.user, job.cluster)
        except MessageNotFound:
            return False
        return True

    async def _summary(self, name: str) -> JobSummary:
        try:
            if self.acts.has(name):
                return _summary_of(await self.acts.act(name))
            job = await self.jobs.digest(name)
        except (RocketLensError, OSError) as error:
            return JobSummary(
                name=name,
                kind="damaged",
                state="unknown",
                what=str(error),
                cluster="",
                user="",
                reason="",
            )
        header = job.header
        return JobSummary(
            name=name,
            kind="resend",
            state=job.word,
            what=f"{header.selection} → {header.target}",
            cluster=header.cluster,
            user=header.user,
            reason=header.reason,
            counts=dict(job.counts),
        )

    async def change(self, request: Request, name: str, verb: str, *, rate: int) -> None:
        """Pause, resume or stop a job.

        :raises ActRefused: if the user may not.
        :raises BadInput: if its cluster is no source of this console, its file is damaged, or it
            cannot be sent so quickly.
        :raises StoreLocked: if another process runs it.
        """
        _check_rate(rate)
        state = await self._state(name)
        header = state.contents.header
        cluster = self.jobs.cluster_of(header)
        topics = {each.topic for each in state.contents.messages}
        goes_to = [check_may_act(request, cluster, topic) for topic in sorted(topics)]
        user = user_of(request)
        record(request, f"{verb}-job", job=name, cluster=cluster.name)
        if verb == "pause":
            self.jobs.end(name, f"paused by {user}")
        elif verb == "stop":
            await self.jobs.stop(name, user)
        else:
            await self.jobs.resume(name, goes_to[0], rate=rate)
        if verb != "resume":
            await self.jobs.settled(name, _PATIENCE_S)


def _check_rate(rate: int) -> None:
    if not 1 <= rate <= limits.MAX_RESEND_RATE:
        raise BadInput(f"{rate} messages a second: give 1 to {limits.MAX_RESEND_RATE}")


def _summary_of(act: Act) -> JobSummary:
    shown = [act.facts.get(name) for name in ("topic", "position", "msg_id", "client_id")]
    return JobSummary(
        name=act.name,
        kind=act.kind,
        state=act.state,
        what=" ".join(filter(None, shown)),
        cluster=act.cluster,
        user=act.user,
        reason=act.reason,
    )

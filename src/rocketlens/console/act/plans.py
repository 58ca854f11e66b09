"""Plans of jobs that send stored messages again: made once for display, and again for execution.

A plan that is shown has a digest. If the digest is another one at the execution, nothing is sent:
the messages have changed, and the new plan is shown.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct
from msgspec.structs import asdict, replace
from pydantic import Field, StringConstraints

from rocketlens import limits
from rocketlens.client.resend.dead_letters import dead_letter_selection, plan_dead_letters
from rocketlens.client.resend.resend_job import Target, check_targets, plan_message
from rocketlens.client.resend.resend_journal import EarlierSend, PlannedMessage, earlier_jobs
from rocketlens.console.act.permission import ActRefused, check_cluster, check_may_act
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.sources.sources import ClusterOfConsole, Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import ConsoleRequest
from rocketlens.errors import AnswerIncomplete, BadInput, RocketLensError
from rocketlens.model.answer import Answer, first_failure
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.query.answer_builder import order_in_time

if TYPE_CHECKING:
    from rocketlens.console.act.act_values import RedrivePlanRequest

FILE_THREADS: Final = WorkThreads(1, "console-jobs")
"""Reads and writes the files of jobs and of saved searches."""
_PAGE_ROWS: Final = limits.MAX_EXPORT_ROWS
"""Messages of a page of a search. A store is read once per page."""
_SELECTION_CHARACTERS: Final = 2_000
"""Characters of a search that its job records."""
READ_AT_ONCE: Final = 16
"""Messages of a plan that are read at once."""
SHOWN_MARKER: Final = "…"
"""Stands for the job name and the message number in a preview."""
ShortName = Annotated[
    str, StringConstraints(max_length=limits.MAX_TOPIC_CHARACTERS, strip_whitespace=True)
]


class PlanChanged(RocketLensError):
    """The plan has other messages than the one that was shown."""


class ResendOptions(ConsoleRequest):
    """The target of messages that are sent again."""

    group: ShortName = Field("", description="send to this group alone; empty: to their topics")
    cluster: ShortName = Field("", description="the target; required for messages of files")


class ResendPlan(Struct, frozen=True, kw_only=True):
    """Messages to send again, with their source and target."""

    origin: ConsoleSource
    cluster: ClusterOfConsole
    selection: str
    target: Target
    messages: Sequence[PlannedMessage]
    notes: tuple[tuple[str, int], ...] = ()
    """Counts for the user: messages left out (``earlier``, ``older``, all but the ``newest``), sent
    ``again``, or with the ``same_id`` as another one.
    """

    @property
    def digest(self) -> str:
        """Identifies the content of the plan."""
        parts = [self.origin.title, self.cluster.title, self.selection, str(self.target)]
        lines = [json.dumps(asdict(each)) for each in self.messages]
        return hashlib.sha256("\n".join([*parts, *lines]).encode()).hexdigest()[:32]


def check_topics(cluster: ConsoleSource, messages: Iterable[PlannedMessage]) -> None:
    """Check that the user may act on all topics that messages come from and go to.

    The retry topic of a target group does not count: it is only the way to the group.

    :raises ActRefused: if not.
    """
    topics: set[str] = set()
    for each in messages:
        topics.add(each.topic)
        if each.target and TopicKind.of(each.target) != TopicKind.RETRY:
            topics.add(each.target)
    for topic in sorted(topics):
        check_may_act(cluster, topic)


def address_of(message: PlannedMessage, origin: ConsoleSource, broker: str = "-") -> MessageAddress:
    return MessageAddress(
        source=origin.name,
        topic=message.topic,
        broker=broker,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
    )


class Plans:
    """Makes plans on which the current user may act."""

    def __init__(self, look_up: LookUps, directory: Path) -> None:
        """:param directory: The directory of jobs, to find dead letters that were sent before."""
        self._look_up: Final = look_up
        self._searches: Final = look_up.searches
        self._sources: Final = look_up.sources
        self._directory: Final = directory

    async def of_message(
        self, address: MessageAddress, options: ResendOptions
    ) -> tuple[ResendPlan, MessageExt]:
        """Return the plan to send one message again, and the message.

        :raises ActRefused: if the user lacks the right.
        :raises BadInput: if the cluster is not valid for the message; other errors as
            `LookUps.original`.
        """
        origin = self._sources.named(address.source)
        cluster = check_may_act(cluster_for(self._sources, origin, options.cluster), address.topic)
        message = await self._look_up.original(address)
        await self._check_unmasked(origin, cluster, [message])
        selection = f"ids {message.offset_msg_id} of topic {message.topic}"
        return _plan_of(origin, cluster, [message], options.group, selection), message

    async def of_chosen(
        self, addresses: Sequence[MessageAddress], options: ResendOptions
    ) -> ResendPlan:
        """Return the plan to send exactly these messages, oldest first, each once.

        :raises BadInput: if there are none, too many, or messages of several sources; other errors
            as `LookUps.original`.
        :raises ActRefused: if the user lacks the right.
        """
        several = list(dict.fromkeys(addresses))
        names = sorted({each.source for each in several})
        if not several:
            raise BadInput(Sentence("no_message_chosen"))
        check_chosen(several)
        if len(names) > 1:
            quoted = ", ".join(repr(each[:80]) for each in names[:2])
            raise BadInput(Sentence("chosen_of_several", sources=quoted))
        origin = self._sources.named(names[0])
        cluster = check_cluster(cluster_for(self._sources, origin, options.cluster))
        for topic in sorted({each.topic for each in several}):
            check_may_act(cluster, topic)
        messages: list[MessageExt] = []
        for start in range(0, len(several), READ_AT_ONCE):
            part = several[start : start + READ_AT_ONCE]
            messages += await asyncio.gather(*map(self._look_up.original, part))
        await self._check_unmasked(origin, cluster, messages)
        # Several addresses can name the same message.
        ranked = {order_in_time(each): each for each in messages}
        ordered = [ranked[rank] for rank in sorted(ranked)]
        selection = f"{len(ordered)} chosen messages"
        plan = _plan_of(origin, cluster, ordered, options.group, selection)
        check_topics(cluster, plan.messages)
        return plan

    async def of_search(self, question: Question, options: ResendOptions, most: int) -> ResendPlan:
        """Return the plan to send what a search finds, oldest first. Of several records with one
        message id, the oldest is sent.

        :raises ActRefused: if the user lacks the right.
        :raises BadInput: if the question is empty, or about several sources.
        :raises AnswerIncomplete: if not everything could be searched.
        """
        if question.is_empty:
            raise BadInput(NOTHING_ASKED)
        chosen = self._sources.chosen(question.sources)
        if len(chosen) != 1:
            raise BadInput(Sentence("search_of_several"))
        (origin,) = chosen
        # The topics are checked after the search.
        cluster = check_cluster(cluster_for(self._sources, origin, options.cluster))
        target = Target(group=options.group) if options.group else Target()
        by_id: dict[str, PlannedMessage] = {}
        is_more = False
        found = self._searches.unmasked_pages(question, min(_PAGE_ROWS, most + 1))
        async with aclosing(found) as pages:
            async for page in pages:
                if not page.answer.complete:
                    why = first_failure(page.answer.coverage) or "not everything was searched"
                    raise AnswerIncomplete(f"not all messages are known: {why}", Answer("", (), ()))
                await self._check_unmasked(origin, cluster, page.messages)
                for message in page.messages:
                    # Newest first: the oldest record of each id replaces the others.
                    by_id.pop(message.msg_id, None)
                    full_topic = cluster.admin.source.full_topic
                    by_id[message.msg_id] = plan_message(message, target, full_topic)
                is_more = page.is_more
                if len(by_id) >= most:
                    break
        plan = ResendPlan(
            origin=origin,
            cluster=cluster,
            selection=f"search {question.address('/search', cursor=None)}"[:_SELECTION_CHARACTERS],
            target=target,
            messages=list(by_id.values())[:most][::-1],
            notes=(("newest", most),) if is_more or len(by_id) > most else (),
        )
        check_topics(cluster, plan.messages)
        return plan

    async def of_dead_letters(self, asked: "RedrivePlanRequest") -> ResendPlan:
        """Return the plan to send the dead letters of a group.

        :raises ActRefused: if the user lacks the right.
        :raises BadInput: if an earlier job of the group is not finished, all dead letters were
            sent, or a filter is not valid.
        :raises PlanChanged: if a chosen dead letter does not exist any more, or was sent.
        :raises TopicNotFound: if the group has no dead letters.
        :raises AnswerIncomplete: if not all of them could be read.
        """
        group, most, chosen = asked.group, asked.most, asked.asked
        source = self._sources.named(asked.cluster)
        cluster = check_may_act(source, DEAD_LETTER_PREFIX + group)
        target = Target(group=None if asked.original else group, original=asked.original)
        if chosen.cause or chosen.options.keys() & {"where", "grep"}:
            self._searches.check_unmasked([cluster])
            options = {**chosen.options, "body_rules": self._searches.rules}
            chosen = replace(chosen, options=options)
        sent = {} if asked.again else await self._sent_before(cluster, group)
        letters = await plan_dead_letters(
            *(cluster.admin, group, target),
            earlier=sent,
            max_num=most,
            only=asked.only,
            asked=chosen,
        )
        if asked.only and len(letters.messages) + letters.older < len(set(asked.only)):
            raise PlanChanged(Sentence("chosen_gone"))
        if letters.skipped and not letters.messages:
            raise BadInput(Sentence("dead_letters_sent", count=len(letters.skipped)))
        notes = (
            ("older", letters.older),
            ("again", len(letters.again)),
            ("earlier", len(letters.skipped)),
            ("newest", most if letters.is_cut else 0),
        )
        return ResendPlan(
            origin=cluster,
            cluster=cluster,
            selection=dead_letter_selection(group, chosen)[:_SELECTION_CHARACTERS],
            target=target,
            messages=letters.messages,
            notes=tuple(each for each in notes if each[1]),
        )

    async def _sent_before(self, cluster: ClusterOfConsole, group: str) -> dict[str, EarlierSend]:
        """Return the dead letters of a group that earlier jobs have sent."""
        topic = cluster.admin.source.full_topic(DEAD_LETTER_PREFIX + group)
        sent, unfinished = await in_thread(
            lambda: earlier_jobs(self._directory, topic, cluster.admin.source.name), FILE_THREADS
        )
        if unfinished:
            raise BadInput(Sentence("job_unfinished", name=unfinished[0].stem))
        return sent

    async def _check_unmasked(
        self, origin: ConsoleSource, cluster: ClusterOfConsole, messages: Sequence[MessageExt]
    ) -> None:
        """Check that no masked message goes to another source, where the user can have other
        rights.

        :raises ActRefused: if one does.
        """
        if cluster.name == origin.name:
            return
        for message in messages:
            if await self._searches.masked(origin, message) is not message:
                names = {"id": message.msg_id, "origin": origin.name, "cluster": cluster.name}
                raise ActRefused(Sentence("masked_not_sent", **names))


def check_chosen(several: Sequence[object]) -> None:
    most = limits.MAX_CHOSEN_MESSAGES
    if len(several) > most:
        raise BadInput(Sentence("many_chosen", count=len(several), limit=most))


def cluster_for(sources: Sources, origin: ConsoleSource, name: str) -> ConsoleSource:
    """Return the target of messages: the cluster that has them, or the chosen one.

    :raises BadInput: if there is no such cluster, or several to choose from.
    """
    if origin.kind == "cluster":
        if name not in {"", origin.name}:
            raise BadInput(Sentence("own_cluster_only", origin=origin.name))
        return origin
    if name:
        return sources.named(name)
    clusters = [each for each in sources if each.kind == "cluster"]
    if len(clusters) != 1:
        raise BadInput(Sentence("choose_cluster" if clusters else "no_cluster"))
    return clusters[0]


def _plan_of(
    origin: ConsoleSource,
    cluster: ClusterOfConsole,
    messages: Sequence[MessageExt],
    group: str,
    selection: str,
) -> ResendPlan:
    """Return the plan for messages, each with its own target. Equal message ids are all sent."""
    originals = {TopicKind.RETRY, TopicKind.DEAD_LETTER}
    targets = [
        Target(group=group) if group else Target(original=TopicKind.of(each.topic) in originals)
        for each in messages
    ]
    same_id = len(messages) - len({each.msg_id for each in messages})
    return ResendPlan(
        origin=origin,
        cluster=cluster,
        selection=selection,
        target=targets[0] if len(set(targets)) == 1 else Target(),
        messages=[
            plan_message(each, target, cluster.admin.source.full_topic)
            for each, target in zip(messages, targets, strict=True)
        ],
        notes=(("same_id", same_id),) if same_id else (),
    )


async def check_plan(plan: ResendPlan) -> None:
    """Check that the plan is not empty and the cluster has its topics.

    :raises BadInput: if it is empty.
    :raises TopicNotFound: if a topic does not exist, or a message names none.
    :raises RemotingError: if no name server answers.
    """
    if not plan.messages:
        raise BadInput(Sentence("nothing_to_send"))
    await check_targets(plan.cluster.admin, list(plan.messages))

"""Plans of jobs that send stored messages again: made once to be shown, and again to be done.

A plan that was shown has a digest. What is done must have the same one: otherwise there are more
or other messages now, and the new plan is shown first.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.client.resend.dead_letters import dead_letter_selection, plan_dead_letters
from rocketlens.client.resend.resend_job import Target, check_targets, copy_of, planned
from rocketlens.client.resend.resend_journal import PlannedMessage, earlier_jobs
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.sources import ClusterOfConsole, ConsoleSource, Sources
from rocketlens.errors import AnswerIncomplete, BadInput, RocketLensError
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.query.answer_builder import order_in_time

FILE_THREADS: Final = WorkThreads(1, "console-jobs")
"""Reads and writes the files of jobs and of saved searches."""
_PAGE_ROWS: Final = limits.MAX_EXPORT_ROWS
"""Messages that a search is read by, at most: a store is read once for each page."""
_SELECTION_CHARACTERS: Final = 2_000
"""Of a search that are kept with its job."""
_SHOWN_MARKER: Final = "…"
"""In a preview, where the job's name and the message's number stand when it is sent."""


class PlanChanged(RocketLensError):
    """There are more or other messages than were shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendPlan:
    """Which messages are sent again, from where, and where to."""

    origin: ConsoleSource
    cluster: ClusterOfConsole
    selection: str
    target: Target
    messages: Sequence[PlannedMessage]
    notes: tuple[tuple[str, int], ...] = ()
    """What its user should see, and how many: ``earlier``, ``more`` and ``newest`` were left out,
    ``same_id`` have the message id of another one of them.
    """

    @property
    def digest(self) -> str:
        """A short text that another plan does not have."""
        parts = [self.origin.title, self.cluster.title, self.selection, str(self.target)]
        lines = [json.dumps(asdict(each)) for each in self.messages]
        return hashlib.sha256("\n".join([*parts, *lines]).encode()).hexdigest()[:32]

    @property
    def topics(self) -> list[str]:
        """The topics that messages come from and, if they name it, go to."""
        named = {each.topic for each in self.messages} | {each.target for each in self.messages}
        return sorted(each for each in named if each and TopicKind.of(each) != TopicKind.RETRY)

    @property
    def from_store(self) -> str:
        """The store directory that messages are read from; empty if the cluster has them."""
        return self.origin.title if self.origin.kind == "store" else ""


def cluster_for(sources: Sources, origin: ConsoleSource, name: str) -> ConsoleSource:
    """Return where messages of a source are sent: its own cluster, or for a store the chosen one.

    :raises BadInput: if there is no such cluster, or none is chosen and there are several.
    """
    if origin.kind == "cluster":
        if name not in {"", origin.name}:
            raise BadInput(f"messages of {origin.name} are sent to that cluster, not to another")
        return origin
    if name:
        return sources.named(name)
    clusters = [each for each in sources if each.kind == "cluster"]
    if len(clusters) != 1:
        raise BadInput(
            "choose the cluster to send to"
            if clusters
            else "this console has no cluster to send to: start it with --namesrv or --context, too"
        )
    return clusters[0]


def target_for(message: MessageExt, group: str) -> Target:
    """Return where one message goes: to a group alone, or to the topic that it was sent to."""
    if group:
        return Target(group=group)
    kind = TopicKind.of(message.topic)
    return Target(original=kind in {TopicKind.RETRY, TopicKind.DEAD_LETTER})


def plan_of_message(
    origin: ConsoleSource, cluster: ClusterOfConsole, message: MessageExt, group: str
) -> ResendPlan:
    """Return the plan for one message."""
    target = target_for(message, group)
    return ResendPlan(
        origin=origin,
        cluster=cluster,
        selection=f"ids {message.offset_msg_id} of topic {message.topic}",
        target=target,
        messages=[planned(message, target, cluster.admin.source.full_topic)],
    )


def plan_of_chosen(
    origin: ConsoleSource,
    cluster: ClusterOfConsole,
    messages: Sequence[MessageExt],
    group: str,
) -> ResendPlan:
    """Return the plan for messages that were chosen one by one, the oldest first, each once.

    Each goes where it would alone. Records with one id are sent as often as they were chosen.
    """
    # A message can be named in several ways.
    ranked = {order_in_time(each): each for each in messages}
    ordered = [ranked[rank] for rank in sorted(ranked)]
    targets = [target_for(each, group) for each in ordered]
    same_id = len(ordered) - len({each.msg_id for each in ordered})
    return ResendPlan(
        origin=origin,
        cluster=cluster,
        selection=f"{len(ordered)} chosen messages",
        target=targets[0] if len(set(targets)) == 1 else Target(),
        messages=[
            planned(each, target, cluster.admin.source.full_topic)
            for each, target in zip(ordered, targets, strict=True)
        ],
        notes=(("same_id", same_id),) if same_id else (),
    )


async def check_plan(plan: ResendPlan) -> None:
    """Check that there is something to send, and that the cluster has the topics.

    :raises BadInput: if there is nothing.
    :raises TopicNotFound: if a topic is not there, or a message names none.
    :raises RemotingError: if no name server answers.
    """
    if not plan.messages:
        raise BadInput("there is nothing to send")
    await check_targets(plan.cluster.admin, list(plan.messages))


def properties_of_copy(message: MessageExt, target: str) -> dict[str, str]:
    """Return the properties that a message is sent with.

    :raises BadInput: if it cannot be sent again.
    """
    return dict(copy_of(message, target, _SHOWN_MARKER).properties)


async def message_of_plan(look_up: LookUps, origin: str, message: PlannedMessage) -> MessageExt:
    """Read a message of a plan as it is stored; errors as `LookUps.original`."""
    address = MessageAddress(origin, message.topic, "-", message.queue_id, message.queue_offset)
    return await look_up.original(address)


async def plan_of_search(
    searches: Searches,
    question: Question,
    cluster: ClusterOfConsole,
    *,
    group: str,
    max_num: int,
    check: Callable[[Sequence[MessageExt]], Awaitable[None]],
) -> ResendPlan:
    """Return the plan for what a search finds, the oldest first; of several with one id the first.

    ``check`` raises an error if some of them may not be sent.

    :raises BadInput: if it searches nothing, or several sources.
    :raises AnswerIncomplete: if not everything could be searched.
    """
    origin = origin_of_search(searches.sources, question)
    target = Target(group=group) if group else Target()
    found: dict[str, PlannedMessage] = {}
    is_more = False
    async with aclosing(searches.originals(question, min(_PAGE_ROWS, max_num + 1))) as pages:
        async for page in pages:
            if not page.answer.complete:
                failed = next(iter(page.answer.failures), None)
                why = f"{failed.source}: {failed.error}" if failed else "not all was searched"
                raise AnswerIncomplete(f"not all messages are known: {why}", Answer("", (), ()))
            await check(page.messages)
            for message in page.messages:
                # They come the newest first: the oldest of each id stays, and is the last.
                found.pop(message.msg_id, None)
                found[message.msg_id] = planned(message, target, cluster.admin.source.full_topic)
            is_more = page.is_more
            if len(found) >= max_num:
                break
    messages = list(found.values())[:max_num]
    cut = is_more or len(found) > max_num
    return ResendPlan(
        origin=origin,
        cluster=cluster,
        selection=f"search {question.address('/search', cursor=None)}"[:_SELECTION_CHARACTERS],
        target=target,
        messages=messages[::-1],
        notes=(("newest", max_num),) if cut else (),
    )


def origin_of_search(sources: Sources, question: Question) -> ConsoleSource:
    """Return the source of a search.

    :raises BadInput: if it searches nothing, or several sources.
    """
    if question.is_empty:
        raise BadInput(NOTHING_ASKED)
    chosen = sources.chosen(question.sources)
    if len(chosen) != 1:
        raise BadInput("the search has several sources: choose one of them first")
    return chosen[0]


async def plan_of_dead_letters(
    cluster: ClusterOfConsole,
    group: str,
    directory: Path,
    *,
    original: bool,
    again: bool,
    max_num: int,
) -> ResendPlan:
    """Return the plan for the dead letters of a group; without ``again`` for those not sent yet.

    :raises BadInput: if an earlier job of them is not finished, or they cannot be read.
    :raises TopicNotFound: if the group has none.
    :raises AnswerIncomplete: if not all of them could be read.
    """
    target = Target(group=None if original else group, original=original)
    selection = dead_letter_selection(group)
    earlier: set[str] = set()
    if not again:
        where = cluster.admin.source.name
        earlier, unfinished = await in_thread(
            lambda: earlier_jobs(directory, selection, where), FILE_THREADS
        )
        if unfinished:
            raise BadInput(
                f"job {unfinished[0].stem} of this group is not finished: resume or stop it first"
            )
    found = await plan_dead_letters(cluster.admin, group, target, earlier=earlier, max_num=max_num)
    notes = (("earlier", found.skipped), ("more", max_num if found.is_cut else 0))
    return ResendPlan(
        origin=cluster,
        cluster=cluster,
        selection=selection,
        target=target,
        messages=found.messages,
        notes=tuple(each for each in notes if each[1]),
    )

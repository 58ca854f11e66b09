"""Follows the messages that a job sent: the state of each copy, in each group that gets it.

===============  ===============================================================================
state            evidence
===============  ===============================================================================
``dead_letter``  the newest record of the copy for the group is a dead letter
``retrying``     it is a retry that waits, or that the group has not reached
``consumed``     the group's offset is past it, and there is no newer record
``not_yet``      none of these: the group has not reached it
===============  ===============================================================================

A record is one of the copy if it names the job (`MARKER`), which retries and dead letters keep. The
group's offsets are read before the records, since a consumer sends a message back before the offset
moves past it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.client.admin.group_calls import connections_of, consume_stats, groups_of_topic
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.resend.resend_journal import SENT, JobContents
from rocketlens.errors import BrokerError, RocketLensError, TopicNotFound
from rocketlens.model.answer import first_failure
from rocketlens.model.life import LifeState, dead_letter_topic, group_topics, life_of, retry_topics
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, DELAY_TOPIC, TIMER_TOPIC, is_system_group
from rocketlens.net.pace import at_once
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin

_ENDS: Final = frozenset({GroupState.CONSUMED, GroupState.DEAD_LETTER})
_WORDS: Final = {
    GroupState.CONSUMED: ("consumed", "consumed"),
    GroupState.RETRYING: ("in retry", "in retry"),
    GroupState.DEAD_LETTER: ("dead letter", "dead letters"),
    GroupState.NOT_YET: ("not consumed yet", "not consumed yet"),
}
_PAUSE_S: Final = 1.0
_AT_ONCE: Final = 8
Came = Mapping[str, Mapping[int, str]]
"""The state of each message by group and number."""
_Offsets = dict[tuple[str, str, int], int]
"""A group's next offsets, by topic, broker name and queue id."""


class CopyFollower:
    """Reads the states of a job's messages from a cluster."""

    def __init__(self, admin: "MQAdmin", contents: JobContents) -> None:
        self._admin: Final = admin
        self._cluster: Final = admin.source.cluster
        self._contents: Final = contents
        self._groups: Final[dict[str, set[str]]] = {}
        """The groups that get the messages of a target."""
        self._names: dict[str, str] = {}
        """Broker names by store host."""
        self._existing: set[str] = set()
        self.offline: set[str] = set()
        self.problem = ""
        """The last failed request."""

    @property
    def is_over(self) -> bool:
        """True if no message waits, or only messages of groups without a member."""
        waiting = {group for group, states in self._contents.came.items() if _waits(states)}
        return waiting <= self.offline and not self.problem

    async def poll(self) -> dict[str, dict[int, str]]:
        """Return the states that changed, by group and number.

        :raises RocketLensError: if no name server answers.
        """
        sent = {n: each for n, each in self._contents.outcomes.items() if each.state == SENT}
        messages = self._contents.messages
        self.problem = ""
        await self._load_groups({messages[number - 1].target for number in sent})
        offsets = {each: await self._offsets(each) for each in set().union(*self._groups.values())}
        changed: dict[str, dict[int, str]] = {}

        async def look_for(number: int) -> None:
            target = messages[number - 1].target
            before = {each: self._contents.came.get(each, {}) for each in self._groups[target]}
            asked = {group for group, states in before.items() if states.get(number) not in _ENDS}
            if not asked:
                return
            copies = await self._copies(number, target, asked)
            for group in asked:
                state = self._state(target, group, copies, offsets[group])
                if state != before[group].get(number):
                    changed.setdefault(group, {})[number] = state

        await at_once(look_for, sent, _AT_ONCE)
        return changed

    async def _load_groups(self, targets: Collection[str]) -> None:
        source = self._admin.source
        brokers = (await source.topology.brokers()).value
        self._names = {
            address: name for name, each in brokers.items() for address in each.addresses.values()
        }
        self._existing = set((await source.topology.topics())[0])
        for target in set(targets) - self._groups.keys():
            self._groups[target] = {each.group for each in group_topics(target)}
            if not self._groups[target]:
                try:
                    names = await groups_of_topic(self._cluster, target)
                except TopicNotFound:
                    names = ()
                self._groups[target] = {each for each in names if not is_system_group(each)}
        self.offline = set()
        for group in set().union(*self._groups.values()):
            try:
                await connections_of(self._cluster, group)
            except (BrokerError, TopicNotFound):
                self.offline.add(group)
            except RocketLensError as error:
                self.problem = str(error)

    async def _offsets(self, group: str) -> _Offsets:
        try:
            stats = await consume_stats(self._cluster, group)
        except (BrokerError, TopicNotFound):
            # The group has no offsets.
            return {}
        except RocketLensError as error:
            self.problem = str(error)
            return {}
        return {
            (queue.topic, queue.broker_name, queue.queue_id): each.consumer_offset
            for queue, each in stats.offset_table.items()
        }

    async def _copies(self, number: int, target: str, groups: Collection[str]) -> list[MessageExt]:
        topics = {target, DELAY_TOPIC, TIMER_TOPIC}
        for group in groups:
            topics |= {dead_letter_topic(group)} | retry_topics(group, {target})
        namespace = self._admin.namespace
        names = tuple(
            sorted(without_namespace(namespace, each) for each in topics & self._existing)
        )
        request = FindRequest(
            self._contents.outcomes[number].key,
            names,
            kind="unique-key",
            all_topics=True,
            only_delivered=True,
            max_num=limits.MAX_STORY_RECORDS,
        )
        try:
            answer = await find(request, self._admin.source)
        except RocketLensError as error:
            self.problem = str(error)
            return []
        self.problem = first_failure(answer.coverage) or self.problem
        marker = self._contents.header.marker(number)
        own = [each for each in answer.messages if each.properties.get(MARKER) == marker]
        return sorted(own, key=lambda each: (each.store_timestamp_ms, each.reconsume_times))

    def _state(self, target: str, group: str, copies: list[MessageExt], offsets: _Offsets) -> str:
        of_group = [
            each
            for each in copies
            if each.topic == target or life_of(each, (target,)).group == group
        ]
        if not of_group:
            return GroupState.NOT_YET
        last = of_group[-1]
        life = life_of(last, (target,))
        if life.state is LifeState.DEAD_LETTER:
            return GroupState.DEAD_LETTER
        if last.topic not in {DELAY_TOPIC, TIMER_TOPIC}:
            name = self._names.get(str(last.store_host), "")
            if offsets.get((last.topic, name, last.queue_id), 0) > last.queue_offset:
                return GroupState.CONSUMED
        return GroupState.RETRYING if last.reconsume_times else GroupState.NOT_YET


async def follow(
    follower: CopyFollower,
    record: Callable[[Came], None],
    limit_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncGenerator[Came]:
    """Poll until no message waits, no waiting group has a member, or for ``limit_s``.

    ``record`` stores the changed states, which are yielded.

    :raises RocketLensError: if no name server answers.
    """
    ends_s = clock() + limit_s
    while True:
        changed = await follower.poll()
        if changed:
            record(changed)
        yield changed
        if follower.is_over or clock() >= ends_s:
            return
        await sleep(min(_PAUSE_S, max(ends_s - clock(), 0)))


def _waits(states: Mapping[int, str]) -> bool:
    return GroupState.NOT_YET in states.values()


def count_states(contents: JobContents) -> dict[str, dict[str, int]]:
    return {
        group: {str(name): count for name in _WORDS if (count := Counter(states.values())[name])}
        for group, states in sorted(contents.came.items())
    }


def describe_states(contents: JobContents) -> str:
    """Return the states of sent messages in one line; empty if they were not followed.

    Such as ``66 sent: 12 consumed, 54 dead letters again``.
    """
    counts = count_states(contents)
    sent = contents.counts()[SENT]
    if not counts or not sent:
        return ""
    again = all(each.topic.startswith(DEAD_LETTER_PREFIX) for each in contents.messages)

    def in_words(states: Mapping[str, int]) -> str:
        words = []
        for name, count in states.items():
            more = " again" if again and name == GroupState.DEAD_LETTER else ""
            words.append(f"{count} {_WORDS[GroupState(name)][count != 1]}{more}")
        return ", ".join(words)

    if len(counts) == 1:
        return f"{sent} sent: {in_words(next(iter(counts.values())))}"
    return f"{sent} sent; " + "; ".join(
        f"{name}: {in_words(each)}" for name, each in counts.items()
    )


def describe_state(contents: JobContents, number: int) -> str:
    states = {
        group: _WORDS[GroupState(states[number])][0]
        for group, states in sorted(contents.came.items())
        if number in states
    }
    if len(states) == 1:
        return next(iter(states.values()))
    return ", ".join(f"{group}: {state}" for group, state in states.items())

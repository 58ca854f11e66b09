"""The story of one message as a cluster's brokers report it: copies, groups and their progress."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rocketlens.client.admin.cluster_groups import find_groups
from rocketlens.client.admin.track import MessageTrack, track_of_group
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import MAX_MESSAGE_ANSWERS
from rocketlens.client.connect.namespace import is_in_namespace, without_namespace
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.view import broker_with
from rocketlens.errors import RemotingError, RocketLensError, TopicNotFound
from rocketlens.model.answer import Coverage
from rocketlens.model.life import (
    KEEPING_TOPICS,
    copy_topics_of,
    dead_letter_topic,
    life_of,
    origin_topics,
    retry_topics,
)
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_system_group
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import at_once
from rocketlens.query.facts.group_state import GroupFacts, GroupState
from rocketlens.query.story.story import Unlearnt
from rocketlens.query.story.story_search import CopyTopics, SourceFacts, StorySource, missing_group

if TYPE_CHECKING:
    from rocketlens.client.connect.route import Broker


class ClusterStorySource(StorySource):
    """Answers the questions of a message's story from a cluster."""

    source: ClusterSource

    def __init__(self, source: ClusterSource) -> None:
        super().__init__(source)
        self._cluster: Final = source.cluster
        self._brokers: dict[str, Broker] = {}
        self._holder: Broker | None = None
        self._groups: dict[str, tuple[set[str], tuple[Coverage, ...]]] = {}
        """Groups by topic, listed once for each story."""

    async def facts(self, message: MessageExt, groups: set[str], asked: str | None) -> SourceFacts:
        await self._find_holder(message)
        topic_groups, coverage = await self._groups_of(message.topic)
        names = {each for each in topic_groups if not is_system_group(each)} | groups
        no_group = None
        if asked is not None:
            full_name, coverage, no_group = self.source.full_topic(asked), (), ""
            if full_name not in names:
                answer = await find_groups(self._cluster, self.source.topology, full_name)
                no_group = missing_group(answer)
            names = {full_name}
        tracks = await at_once(
            lambda name: track_of_group(self._cluster, message, self._holder, name),
            sorted(names),
            MAX_MESSAGE_ANSWERS,
        )
        max_times = await self._retry_max_times(names & groups)
        unlearnt = [
            Unlearnt(
                Sentence("group_did", group=each.consumer_group),
                each.rests_on,
                is_failure=isinstance(each.error, RemotingError),
            )
            for each in tracks
            if each.state is GroupState.UNKNOWN and each.error is not None and not no_group
        ]
        if any(each.may_be_at_proxy for each in tracks):
            unlearnt.append(Unlearnt(Sentence("online_clients"), Sentence("members_of_proxies")))
        return SourceFacts(
            tuple(_facts(each, message, max_times.get(each.consumer_group)) for each in tracks),
            tuple(unlearnt),
            tuple(coverage),
            self._names_by_host(message),
            no_group,
        )

    async def copy_topics(self, messages: Sequence[MessageExt]) -> CopyTopics:
        """Return the topics that can hold copies of a message, made by brokers and consumers.

        Brokers look up a key in one topic at a time, so searching every topic would take a request
        each.
        """
        source = self.source
        listed, failed = await source.topology.topics()
        existing = {each for each in listed if is_in_namespace(source.namespace, each)}
        own = {each.topic for each in messages}
        for each in messages:
            own.update(origin_topics(each.topic, each.properties))
        groups = {life_of(each, own).group or "" for each in messages}
        groups |= copy_topics_of(own, ()).by_group.keys()
        coverage = [each for each in failed if each.is_failure]
        for topic in sorted(own & existing):
            names, failures = await self._groups_of(topic)
            groups |= names
            coverage += failures
        of_groups = {dead_letter_topic(each) for each in groups}.union(
            *(retry_topics(each, own) for each in groups)
        )
        chosen = existing & (own | of_groups | KEEPING_TOPICS)
        if not chosen:
            return CopyTopics(coverage=tuple(coverage))
        return CopyTopics(
            tuple(without_namespace(source.namespace, each) for each in sorted(chosen)),
            sum(TopicKind.of(each) is not TopicKind.SYSTEM for each in existing - chosen),
            tuple(coverage),
        )

    async def said_by(self, message: MessageExt) -> str:
        """Return the name of the storing broker, or its address if no registered broker has it."""
        await self._find_holder(message)
        return self._names_by_host(message).get(str(message.store_host), str(message.store_host))

    async def _find_holder(self, message: MessageExt) -> None:
        self._brokers = (await self.source.topology.brokers()).value
        self._holder = await broker_with(self._cluster, self._brokers, message)

    async def _groups_of(self, topic: str) -> tuple[set[str], tuple[Coverage, ...]]:
        if topic not in self._groups:
            self._groups[topic] = await self._list_groups(topic)
        return self._groups[topic]

    async def _list_groups(self, topic: str) -> tuple[set[str], tuple[Coverage, ...]]:
        try:
            route = (await self.source.topology.route(topic)).value
        except TopicNotFound:
            return set(), ()
        answers = await self._cluster.ask_brokers(
            route.brokers.values(),
            lambda _, address: broker_calls.groups_of_topic(self._cluster, address, topic),
        )
        names = {name for each in answers for name in each.value or ()}
        return names, tuple(each.coverage for each in answers if each.coverage.is_failure)

    async def _retry_max_times(self, groups: set[str]) -> dict[str, int]:
        """Return the retry limits that the holder configures for groups; empty if unknown."""
        addresses = [] if self._holder is None else self._holder.in_order
        if not groups or not addresses:
            return {}
        try:
            configs = await broker_calls.group_configs(self._cluster, addresses[0])
        except RocketLensError:
            # The story then omits only the retry limit.
            return {}
        return {name: configs[name].retry_max_times for name in groups if name in configs}

    def _names_by_host(self, message: MessageExt) -> dict[str, str]:
        names = {
            address: name
            for name, broker in self._brokers.items()
            for address in broker.addresses.values()
        }
        if self._holder is not None:
            names[str(message.store_host)] = self._holder.name
        return names


def _facts(track: MessageTrack, message: MessageExt, max_times: int | None) -> GroupFacts:
    said_by = "" if track.has_offsets is None else Sentence("by_brokers")
    return replace(
        track.facts(message.topic),
        retry_max_times=max_times,
        offsets_source=said_by,
        clients_source=Sentence("by_connections") if track.is_online is not None else "",
    )

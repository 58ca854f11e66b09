"""``find`` and ``show`` over a running cluster: the same questions and answers as over a store.

Without a topic every topic that the name servers know is searched, several at a time. Each broker
that was asked stands in the coverage once; one that failed makes the answer incomplete.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rocketlens import limits
from rocketlens.client.admin import ClusterClient
from rocketlens.client.dispatch import Dispatch
from rocketlens.client.key_search import KeyQuestion
from rocketlens.client.name_servers import name_server_addresses
from rocketlens.client.namespace import is_in_namespace, without_namespace
from rocketlens.client.pull import pull_answer
from rocketlens.client.queue_read import read_queue
from rocketlens.client.records import records_in
from rocketlens.client.route import Broker, MessageQueue
from rocketlens.client.seen_brokers import SeenBrokers
from rocketlens.client.view import view_on
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.net.event_loop import run
from rocketlens.query.held import Held
from rocketlens.query.topic_choice import (
    asked_topics,
    is_pattern,
    matching_topics,
    unknown_topic,
)
from rocketlens.query.verify import Wanted
from rocketlens.terminal.cluster_access import ClusterAccess, seen_brokers_path

TOPICS_AT_ONCE: Final = 16
AskQueue = Callable[[MessageQueue, str, list[str]], Awaitable[None]]
"""Asks a broker's address for a queue, holds what it has, and adds what is damaged to a list."""

_QUEUE_PLACE: Final = re.compile(
    r"(?P<topic>.+)/(?P<queue_id>\d{1,9})/(?P<queue_offset>\d{1,18})\Z", re.ASCII
)


def find_in_cluster(
    connection: ClusterAccess,
    text: str | None,
    topic: str | Iterable[str] | None,
    *,
    kind: str = "auto",
    begin: int | None = None,
    end: int | None = None,
    max_num: int | None = None,
) -> Answer:
    """Find messages in a cluster; arguments as ``Store.find`` has them.

    With a namespace, topics are those of it; messages come with their topics' full names.

    :raises BadInput: when the text cannot be what ``kind`` says, or a name server is no address.
    :raises RemotingError: when no name server answers.
    """
    low = 0 if begin is None else begin
    high = limits.MAX_TIMESTAMP_MS if end is None else end
    asked = asked_topics(topic)

    async def find() -> Answer:
        async with ClusterFinder(
            connection.name_servers, seen_brokers=seen_brokers_path(), **connection.client_options
        ) as finder:
            gathered = Gathered(text or ",".join(asked), Held(max_num))
            await finder.find(text, asked, kind, Wanted(begin=low, end=high), gathered)
            return gathered.answer()

    return run(find())


def forget_broker(connection: ClusterAccess, broker_name: str) -> bool:
    """Forget a broker that is gone for good; False if it is not remembered."""
    addresses = name_server_addresses(connection.name_servers)
    return SeenBrokers(seen_brokers_path(), addresses).forget(broker_name)


@dataclass(slots=True)
class Gathered:
    """The answers of brokers and topics on their way into one."""

    query: str
    held: Held
    coverage: dict[tuple[str, SourceState, str | None], Coverage] = field(default_factory=dict)
    indexed_to_ms: int = 0

    def cover(self, coverage: Iterable[Coverage]) -> None:
        """Add where was looked."""
        for each in coverage:
            place = (each.source, each.state, each.error)
            known = self.coverage.get(place)
            newest_ms = max(each.indexed_to_ms or 0, (known and known.indexed_to_ms) or 0)
            self.coverage[place] = replace(each, indexed_to_ms=newest_ms or None)

    @property
    def is_complete(self) -> bool:
        """Whether everything was searched so far."""
        return Answer(self.query, (), tuple(self.coverage.values())).complete

    def answer(self) -> Answer:
        """Give all of it as one answer."""
        return Answer(
            self.query,
            self.held.in_order(),
            tuple(self.coverage.values()),
            truncated=self.held.truncated,
            index_last_update_timestamp_ms=self.indexed_to_ms,
        )


class ClusterFinder(ClusterClient):
    """Finds by whatever is at hand."""

    async def find(
        self, text: str | None, asked: Sequence[str], kind: str, wanted: Wanted, gathered: Gathered
    ) -> None:
        """Look for a text of some kind, or without one for all of a time.

        :raises TopicNotFound: when nothing is found, and the name servers know no such topic.
        """
        topics = await self._chosen(asked, gathered)
        if text is None:
            for each in topics or await self._topics(gathered):
                await self._in_time(each, wanted, gathered)
        else:
            await self._by_text(text, topics, kind, wanted, gathered)
        is_empty = not gathered.held and gathered.is_complete
        if len(asked) > 1 or (asked and is_empty):
            await self._check_known(topics, gathered)

    async def _by_text(
        self, text: str, topics: list[str], kind: str, wanted: Wanted, gathered: Gathered
    ) -> None:
        if kind in {"auto", "offset-id"}:
            await self._by_offset_id(text, topics, kind, wanted, gathered)
        if not gathered.held and kind in {"auto", "queue-offset"}:
            await self._by_queue_offset(text, kind, wanted, gathered)
        if not gathered.held and kind in {"auto", "key", "unique-key"}:
            await self._by_key(text, topics, kind, wanted, gathered)

    async def _chosen(self, asked: Sequence[str], gathered: Gathered) -> list[str]:
        """Return the full names of the topics that names and patterns mean; none for all."""
        if not any(map(is_pattern, asked)):
            return [self._full_topic(name) for name in asked]
        topics = await self._topics(gathered)
        names = [without_namespace(self.namespace, each) for each in topics]
        return [self._full_topic(name) for name in matching_topics(asked, names)]

    async def _check_known(self, topics: Iterable[str], gathered: Gathered) -> None:
        """Refuse topics that are not there, unless a broker or name server could not be asked."""
        listed = await self._topics(gathered)
        if not gathered.is_complete:
            return
        for topic in topics:
            if topic not in listed:
                known = [without_namespace(self.namespace, each) for each in listed]
                name = without_namespace(self.namespace, topic)
                raise unknown_topic(name, known, "the cluster")

    async def _by_offset_id(
        self, text: str, topics: list[str], kind: str, wanted: Wanted, gathered: Gathered
    ) -> None:
        try:
            asked = OffsetMessageId.decode(text)
        except BadInput:
            if kind == "auto":
                return
            raise
        brokers, surveyed = await self._brokers_of_id(asked)
        gathered.cover(surveyed)
        topic = topics[0] if len(topics) == 1 else None
        for each in await view_on(self._cluster, brokers, asked, topic):
            for message in each.value or ():
                if (
                    wanted.is_in_time(message.store_timestamp_ms)
                    and (not topics or message.topic in topics)
                    and is_in_namespace(self.namespace, message.topic)
                ):
                    gathered.held.add(message)
            gathered.cover([each.coverage])

    async def _by_queue_offset(
        self, text: str, kind: str, wanted: Wanted, gathered: Gathered
    ) -> None:
        place = _QUEUE_PLACE.match(text)
        if place is None:
            if kind == "auto":
                return
            raise BadInput(f"{text[:80]!r} is no queue position: write TOPIC/QUEUE/OFFSET")
        topic, queue_id = self._full_topic(place["topic"]), int(place["queue_id"])
        if kind == "auto" and not await self._has_topic(topic):
            return
        queue_offset = int(place["queue_offset"])

        async def ask(queue: MessageQueue, address: str, damage: list[str]) -> None:
            async with self._cluster.turn(address):
                answer = await pull_answer(self._cluster, address, queue, queue_offset, max_num=1)
                for record in records_in(answer.body, damage):
                    place = (record.topic, record.queue_id, record.queue_offset)
                    if place == (topic, queue_id, queue_offset) and wanted.matches(record):
                        gathered.held.take(record)

        await self._in_queues(topic, queue_id, ask, gathered)

    async def _in_time(self, topic: str, wanted: Wanted, gathered: Gathered) -> None:
        wanted = replace(wanted, topic=topic)

        async def ask(queue: MessageQueue, address: str, damage: list[str]) -> None:
            await read_queue(
                self._cluster, address, queue, wanted=wanted, held=gathered.held, damage=damage
            )

        await self._in_queues(topic, None, ask, gathered)

    async def _in_queues(
        self, topic: str, queue_id: int | None, ask: AskQueue, gathered: Gathered
    ) -> None:
        """Ask for each queue of a topic, or for those with one number; brokers all at once."""
        try:
            route, surveyed = await self._survey.route(topic)
        except TopicNotFound as error:
            gathered.cover(await self._no_topic(error))
            return
        gathered.cover(surveyed)
        queues = [q for q in route.read_queues if queue_id is None or q.queue_id == queue_id]

        dispatch = Dispatch(self._cluster)

        async def ask_all(broker: Broker, address: str) -> list[str]:
            behind = await dispatch.wait(address)
            damage = [] if behind is None else [behind]
            for queue in queues:
                if queue.broker_name == broker.name:
                    await ask(queue, address, damage)
            return damage

        answers = await self._cluster.ask_brokers(route.brokers.values(), ask_all)
        for broker, damage, coverage in answers:
            failed = [
                Coverage(broker.name, SourceKind.BROKER, SourceState.FAILED, None, error)
                for error in damage or ()
            ]
            gathered.cover([coverage, *failed])

    async def _by_key(
        self, text: str, topics: list[str], kind: str, wanted: Wanted, gathered: Gathered
    ) -> None:
        key = None if kind == "unique-key" else text
        unique_key = None if kind == "key" else text
        turn = asyncio.Semaphore(TOPICS_AT_ONCE)
        dispatch = Dispatch(self._cluster)

        async def ask(one: str) -> None:
            wanted_here = replace(wanted, topic=one, key=key, unique_key=unique_key)
            async with turn:
                try:
                    question = KeyQuestion(one, text, wanted_here, gathered.held)
                    coverage, indexed_to_ms = await self._search(question, dispatch=dispatch)
                except TopicNotFound as error:
                    # Deleted since the name server listed it, or never there.
                    gathered.cover(await self._no_topic(error) if topics else ())
                else:
                    gathered.indexed_to_ms = max(gathered.indexed_to_ms, indexed_to_ms)
                    gathered.cover(coverage)

        await asyncio.gather(*map(ask, topics or await self._topics(gathered)))

    async def _has_topic(self, topic: str) -> bool:
        try:
            await self._survey.route(topic)
        except TopicNotFound:
            return False
        return True

    async def _topics(self, gathered: Gathered) -> list[str]:
        """Return all topics, as the coverage of a search of every topic says."""
        listed, failed = await self._survey.topics()
        topics = [each for each in listed if is_in_namespace(self.namespace, each)]
        source = f"{len(topics)} topics"
        listing = Coverage(source, SourceKind.TOPICS, SourceState.SEARCHED)
        brokers, surveyed = await self._survey.brokers()
        gathered.cover([listing, *failed, *surveyed])
        if brokers and not topics:
            gathered.cover([_brokers_coverage(brokers, "they have no topic")])
        return topics

    async def _no_topic(self, error: TopicNotFound) -> tuple[Coverage, ...]:
        """Return the coverage of a topic that no broker has: all of them said so."""
        brokers, surveyed = await self._survey.brokers()
        if not brokers:
            return surveyed
        return (_brokers_coverage(brokers, str(error)), *surveyed)


def _brokers_coverage(brokers: Collection[str], detail: str) -> Coverage:
    """Return the coverage of what the registration of all brokers answers already."""
    names = f"{len(brokers)} broker{'' if len(brokers) == 1 else 's'}"
    return Coverage(names, SourceKind.BROKER, SourceState.SEARCHED, None, detail)

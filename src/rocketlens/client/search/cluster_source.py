"""The source over a running cluster.

All brokers of a topic are asked concurrently, each one's master first, and its slaves if it fails.
Each is in the coverage once; a failed one makes the answer incomplete. Without a topic, every topic
that the name servers list is searched, several at a time. With a namespace only its topics are
searched, and messages have full topic names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.broker_calls import offset_at_time
from rocketlens.client.connect.cluster import ClusterCalls, failed_broker, runtime_table
from rocketlens.client.connect.compacted_topics import is_compacted
from rocketlens.client.connect.namespace import is_in_namespace, with_namespace, without_namespace
from rocketlens.client.connect.queue_puller import tools_puller
from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.client.connect.topology import Topology, TopologyResult
from rocketlens.client.search.key_search import (
    MAX_QUERY_MESSAGES,
    UNTRIED,
    Dispatch,
    IndexSamples,
    KeySearch,
    SearchedIndex,
    query_limit,
)
from rocketlens.client.search.queue_offsets import unreadable_messages
from rocketlens.client.search.queue_read import RISING_TIMES, read_queues
from rocketlens.client.search.view import offset_id_of, record_of_position, records_of_id
from rocketlens.errors import BrokerError, RecordError, RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import Record, is_dispatched_to
from rocketlens.model.answer import Coverage, SourceKind, SourceState, hint
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import LMQ_PREFIX, is_internal_topic
from rocketlens.model.text.counted import counted
from rocketlens.model.text.sentences import Sentence, both
from rocketlens.net.pace import at_once
from rocketlens.query.answer_builder import AnswerMessages, Findings, PlacedFindings
from rocketlens.query.find import one_message
from rocketlens.query.kept import KeptFindings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import FindRequest, QueuePosition
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import (
    is_pattern,
    matching_topics,
    no_topic_of_position,
    outside_of,
    unknown_topic,
)
from rocketlens.wire.bodies.tables import TopicOffset
from rocketlens.wire.codes import ResponseCode

MAX_SAMPLED_TOPICS: Final = 64
"""A search by key of more topics does not sample the index."""
TOPICS_AT_ONCE: Final = 16
_ANY_BROKER: Final = "any broker that could have it"
_MAX_OFFSET: Final = 2**63 - 1


class _BrokerSearch:
    """The state of a search of one broker's queues."""

    def __init__(self, broker: Broker, address: str, findings: Findings) -> None:
        self.broker: Final = broker
        self.address: Final = address
        self.findings: Final = findings
        self.damage: Final[list[str]] = []
        self.relies_on: str | None = None


_AskQueues = Callable[[Sequence[MessageQueue], _BrokerSearch], Awaitable[None]]


class ClusterSource:
    """Finds the messages of one cluster."""

    kind: Final = SourceKind.BROKER
    is_one_log: Final = False

    def __init__(
        self, cluster: ClusterCalls, topology: Topology, samples: IndexSamples, namespace: str
    ) -> None:
        self.cluster: Final = cluster
        self.topology: Final = topology
        self.samples: Final = samples
        self.namespace: Final = namespace

    @property
    def name(self) -> str:
        return ";".join(self.cluster.name_servers)

    def full_topic(self, topic: str) -> str:
        return with_namespace(self.namespace, topic)

    async def oldest_ms(self) -> dict[str, int]:
        """Return the store time of each broker's first message, by broker name."""
        brokers = (await self.topology.brokers()).value.values()
        answers = await self.cluster.ask_brokers(
            brokers, lambda _, address: runtime_table(self.cluster, address)
        )
        texts = {
            each.coverage.source: (each.value or {}).get("earliestMessageTimeStamp", "")
            for each in answers
        }
        return {source: int(text) for source, text in texts.items() if text.isdigit()}

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add matching messages: see `rocketlens.query.source.Source.find`."""
        await self._find(request, findings)
        findings.cover(await self.topology.recheck_missing_brokers())

    async def _find(self, request: FindRequest, findings: Findings) -> None:
        topics, unknown = await self._choose_topics(request.topics, findings)
        findings.unknown.update(unknown)
        if unknown and not topics:
            for error in unknown.values():
                findings.cover(await self.coverage_of_missing_topic(error))
            return
        if request.text is None:
            searched, left_out = await self._split_topics(request, topics, findings)
            await at_once(
                lambda topic: self._find_in_time(request, topic, findings), searched, TOPICS_AT_ONCE
            )
            await count_left_out(self, request, left_out, findings.tally)
        else:
            await self._find_text(request, topics, findings)

    async def topics_for(
        self, request: FindRequest, findings: Findings
    ) -> tuple[list[str], list[str]]:
        """Return the full names of the topics that a request searches, and of those it leaves out.

        A topic is not reported as missing if a broker or name server failed.

        :raises TopicNotFound: if no broker has a named topic, or nothing matches a pattern.
        """
        topics, unknown = await self._choose_topics(request.topics, findings)
        for name in filter(_is_listed, request.topics):
            # A proxy lists no topics, so ask for the route.
            await self._has_topic(self.full_topic(name))
        listed, failed = await self.topology.topics()
        brokers, surveyed = await self.topology.brokers()
        is_told = brokers and not failed and not any(each.is_failure for each in surveyed)
        if is_told:
            unknown = self._unlisted(request.topics, listed) | unknown
        for error in unknown.values():
            raise error
        return await self._split_topics(request, topics, findings)

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that no broker has: see `rocketlens.query.source.Source`.

        Topics are not reported as missing if a broker or name server failed.
        """
        listed = await self._topics(findings)
        if findings.is_complete:
            findings.unknown.update(self._unlisted(names, listed))

    def _unlisted(self, names: Sequence[str], listed: Sequence[str]) -> dict[str, TopicNotFound]:
        """Return the errors for named topics that the cluster does not have."""
        shown = self._user_names(listed)
        return {
            name: unknown_topic(name, shown, "the cluster")
            for name in names
            if _is_listed(name) and self.full_topic(name) not in listed
        }

    def _user_names(self, topics: Iterable[str]) -> list[str]:
        return [without_namespace(self.namespace, each) for each in topics]

    async def find_by_key(
        self,
        message_filter: MessageFilter,
        findings: Findings,
        cluster_name: str | None = None,
        dispatch: Dispatch | None = None,
        *,
        exhaustive: bool = False,
        tries_index: bool = True,
    ) -> None:
        """Add the messages of a topic with a key, from all its brokers or those of one cluster.

        `dispatch` is shared by the parts of one search; `exhaustive` is that of the request;
        `tries_index` samples each broker's index.

        :raises TopicNotFound: if no broker has the topic, or none of that cluster.
        """
        topic = message_filter.topic or ""
        is_kept = isinstance(findings, KeptFindings) and not exhaustive
        if isinstance(findings, KeptFindings) and is_kept:
            route, doubts = await self._route_of_kept(topic, findings)
        else:
            route, doubts = await self.topology.route_of_name(topic)
        brokers = route.brokers_in(cluster_name)
        dispatch = dispatch or Dispatch(self.cluster)

        async def ask(broker: Broker, address: str) -> SearchedIndex:
            behind = await dispatch.wait(address)
            own = route.queues_of(broker.name)
            is_unique_key = message_filter.key is None
            limit = await query_limit(self.cluster, address, is_unique_key=is_unique_key)
            there = PlacedFindings(findings, route.static, broker.origin)
            own_filter = message_filter.at(broker.origin)
            search = KeySearch(self.cluster, address, own_filter, there, own, limit, exhaustive)
            damage = [] if behind is None else [behind]
            has_index = limit > 0 and await self.topology.has_index(address)
            search.reads_queues = exhaustive or not has_index
            try:
                if not is_kept:
                    search.reads_queues |= await self.topology.has_batches(route.topic, address)
            except BrokerError as error:
                damage.append(f"keys of messages in batches are not searched: {error}")
            whole = route
            if search.reads_queues and is_kept:
                with suppress(TopicNotFound):
                    whole = (await self.topology.route(topic)).value
                search.queues = whole.queues_of(broker.name)
            if search.reads_queues:
                damage += await unreadable_messages(self.cluster, address, broker.name, whole, None)
            searched = await search.run()
            if not search.reads_queues:
                sampled = await self.samples.take(address, own) if tries_index else UNTRIED
                damage += [_index_problem(sampled.missing)] if sampled.missing else []
                relies_on = both(searched.relies_on, sampled.relies_on)
                searched = replace(searched, relies_on=relies_on)
            return replace(searched, damage=(*searched.damage, *damage))

        coverage: list[Coverage] = []
        for broker, searched, covered in await self.cluster.ask_brokers(brokers, ask):
            if searched is None:
                coverage.append(covered)
                continue
            findings.indexed_to_ms = max(findings.indexed_to_ms, searched.indexed_to_ms)
            newest_ms = searched.indexed_to_ms or None
            coverage.append(replace(covered, indexed_to_ms=newest_ms, relies_on=searched.relies_on))
            coverage += [failed_broker(broker.name, error) for error in searched.damage]
        findings.cover((*coverage, *doubts))

    async def _route_of_kept(self, topic: str, kept: KeptFindings) -> TopologyResult[Route]:
        """Return the brokers that can keep messages of `kept.topics` in `topic`, without queues.

        Name servers may not know that internal topic, but it is on the brokers of the kept topics.
        A broker without it has no message for its key.
        """
        brokers: dict[str, Broker] = {}
        try:
            for name in kept.topics:
                if is_pattern(name):
                    return await self.topology.route_by_brokers(topic)
                brokers |= (await self.topology.route(name)).value.brokers
        except TopicNotFound:
            return await self.topology.route_by_brokers(topic)
        return TopologyResult(Route(topic, brokers, (), ()), ())

    async def view_by_offset_id(self, msg_id: str) -> MessageExt:
        """Return the message with an offset message id.

        :raises BadInput: if it is not an offset message id.
        :raises MessageNotFound: if no broker has it.
        :raises AnswerIncomplete: if it was not found, and a broker failed.
        """
        findings = Findings(AnswerMessages(1))
        await self._view(OffsetMessageId.decode(msg_id), None, findings)
        return one_message(findings.answer(msg_id), _ANY_BROKER)

    async def view_in_topic(
        self, topic: str, msg_id: str, cluster_name: str | None = None
    ) -> MessageExt:
        """Return a topic's message with an offset message id, or the oldest with a unique key.

        A unique key is searched on all brokers of the topic, or on those of one cluster. Errors as
        `view_by_offset_id`.

        :raises TopicNotFound: if no broker has the topic, or none of that cluster.
        """
        findings = Findings(AnswerMessages(1, oldest=True))
        offset_id = offset_id_of(msg_id)
        if offset_id is not None:
            await self._view(offset_id, topic, findings)
        if not findings.messages:
            unique_key = MessageFilter(topic=topic, unique_key=msg_id, tally=findings.tally)
            await self.find_by_key(unique_key, findings, cluster_name)
        return one_message(findings.answer(msg_id), _ANY_BROKER)

    async def _view(
        self, offset_id: OffsetMessageId, topic: str | None, findings: Findings
    ) -> None:
        records, coverage = await records_of_id(self.cluster, self.topology, offset_id, topic)
        findings.cover(coverage)
        for record in records[:1]:
            findings.take(record)

    async def _find_text(self, request: FindRequest, topics: list[str], findings: Findings) -> None:
        offset_id = request.offset_msg_id
        if offset_id is not None:
            message_filter = request.filter_of(findings.tally, topics, is_identified=True)
            await self._find_by_offset_id(offset_id, message_filter, findings)
        named = None if findings.count else request.queue_position
        is_known = False
        if named is not None:
            position = named._replace(topic=self.full_topic(named.topic))
            is_known = await self._has_topic(position.topic)
            if is_known or request.kind == "queue-offset":
                message_filter = request.filter_of(findings.tally, is_identified=True)
                await self._find_by_queue_offset(position, message_filter, findings)
        if request.is_key and not findings.count:
            await self._find_by_key(request, topics, findings)
        if named is not None and not is_known and not findings.count:
            names = self._user_names(await self._topics(findings))
            findings.cover((no_topic_of_position(named.topic, names),))

    async def _choose_topics(
        self, patterns: Sequence[str], findings: Findings
    ) -> tuple[list[str], dict[str, TopicNotFound]]:
        """Return matching full names, none for all, and the errors of unmatched patterns."""
        if not any(map(is_pattern, patterns)):
            return [self.full_topic(name) for name in patterns], {}
        names = self._user_names(await self._topics(findings))
        topics, unknown = matching_topics(patterns, names)
        return [self.full_topic(name) for name in topics], unknown

    async def _find_by_offset_id(
        self, offset_id: OffsetMessageId, message_filter: MessageFilter, findings: Findings
    ) -> None:
        topic = message_filter.topic
        records, coverage = await records_of_id(self.cluster, self.topology, offset_id, topic)
        findings.cover(coverage)
        for record in records:
            if message_filter.matches(record) and is_in_namespace(self.namespace, record.topic):
                findings.take(record)

    async def _find_by_queue_offset(
        self, position: QueuePosition, message_filter: MessageFilter, findings: Findings
    ) -> None:
        stored, only_broker = await self._as_stored(position)
        topic, queue_id, queue_offset = there = stored or position
        bounds: dict[str, tuple[int, int]] = {}

        async def ask(queues: Sequence[MessageQueue], search: _BrokerSearch) -> None:
            # At most one queue of a broker has the requested id.
            queue, address = next(iter(queues), None), search.address
            own_filter = message_filter.at(search.broker.origin)
            if queue is None or only_broker not in {None, queue.broker_name}:
                return
            async with self.cluster.turn(address):
                puller = tools_puller(self.cluster)
                pulled = await puller.pull(address, queue, queue_offset, count=1)
                bounds[queue.broker_name] = pulled.min_offset, pulled.max_offset
                records = list(pulled.records(search.damage))
                compacted = pulled.max_offset > queue_offset and await is_compacted(
                    self.cluster, topic, address
                )
                if compacted and not any(each.queue_offset == queue_offset for each in records):
                    records = await self._compacted_record(queue, queue_offset, search)
                for record in chain.from_iterable(map(own_filter.matching_in, records)):
                    # An entry of a light queue refers to a record of another topic.
                    has = (record.topic, record.queue_id, record.queue_offset)
                    is_there = has == there or is_dispatched_to(record, topic)
                    if is_there and own_filter.matches(record):
                        search.findings.take(record)

        # An offset must fit the field of 64 bits.
        queue_ids = {queue_id} if stored is not None and queue_offset <= _MAX_OFFSET else set()
        await self._ask_queues(topic, queue_ids, ask, findings)
        if not findings.count and only_broker is None:
            await self._cover_outside(position, bounds, findings)

    async def _as_stored(self, position: QueuePosition) -> tuple[QueuePosition | None, str | None]:
        """Return a position as brokers store it, None if none can; and a static topic's broker."""
        static = None
        with suppress(TopicNotFound):
            static = (await self.topology.route(position.topic)).value.static
        if static is None:
            return position, None
        there = static.stored(position.queue_id, position.queue_offset)
        if there is None:
            return None, ""
        return QueuePosition(position.topic, *there[1:]), there[0]

    async def _cover_outside(
        self, position: QueuePosition, bounds: dict[str, tuple[int, int]], findings: Findings
    ) -> None:
        """Add the offset ranges of queues that do not reach the position."""
        named = position._replace(topic=without_namespace(self.namespace, position.topic))
        for name, span in sorted(bounds.items()):
            where = Sentence("on_broker", broker=name) if len(bounds) > 1 else ""
            findings.cover(outside_of(named, span, (), where))
        if not bounds:
            with suppress(TopicNotFound):
                route = (await self.topology.route(position.topic)).value
                findings.cover(outside_of(named, None, [q.queue_id for q in route.read_queues]))

    async def _compacted_record(
        self, queue: MessageQueue, queue_offset: int, search: _BrokerSearch
    ) -> list[Record]:
        """Return the commit log's record for a position that compaction removed."""
        problem = "it was deleted"
        try:
            record = await record_of_position(self.cluster, search.address, queue, queue_offset)
        except (BrokerError, RecordError) as error:
            record, problem = None, str(error)
        if record is not None:
            return [record]
        search.damage.append(
            f"{queue.topic}/{queue.queue_id}/{queue_offset}: the broker compacts this topic, and a "
            f"newer message with the same key replaced this one. In the commit log: {problem}"
        )
        return []

    async def _find_in_time(
        self, request: FindRequest, topic: str, findings: Findings, *, with_key: bool = False
    ) -> None:
        message_filter = request.filter_of(findings.tally, [topic], with_key=with_key)

        async def ask(queues: Sequence[MessageQueue], search: _BrokerSearch) -> None:
            relies_on_order = await read_queues(
                self.cluster,
                search.address,
                queues,
                message_filter=message_filter.at(search.broker.origin),
                findings=search.findings,
                damage=search.damage,
                exhaustive=request.exhaustive,
            )
            if relies_on_order:
                search.relies_on = RISING_TIMES

        await self._ask_queues(topic, None, ask, findings)

    async def _ask_queues(
        self, topic: str, queue_ids: Collection[int] | None, ask: _AskQueues, findings: Findings
    ) -> None:
        """Read all queues of a topic, or those with some ids, from all brokers at once."""
        try:
            route, doubts = await self.topology.route(topic)
        except TopicNotFound as error:
            findings.cover(await self.coverage_of_missing_topic(error))
            return
        findings.cover(doubts)
        queues = [
            each for each in route.read_queues if queue_ids is None or each.queue_id in queue_ids
        ]
        dispatch = Dispatch(self.cluster)
        is_light = topic.startswith(LMQ_PREFIX)

        async def ask_all(broker: Broker, address: str) -> _BrokerSearch:
            behind = await dispatch.wait(address)
            own = [queue for queue in queues if queue.broker_name == broker.name]
            there = PlacedFindings(findings, route.static, broker.origin)
            search = _BrokerSearch(broker, address, there)
            if behind is not None:
                search.damage.append(behind)
            try:
                await ask(own, search)
            except BrokerError as error:
                # Brokers have light topics only if configured to.
                if not is_light or error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
            if is_light:
                return search
            search.damage.extend(
                await unreadable_messages(self.cluster, address, broker.name, route, queue_ids)
            )
            return search

        answers = await self.cluster.ask_brokers(route.brokers.values(), ask_all)
        for broker, search, coverage in answers:
            if search is None:
                findings.cover((coverage,))
                continue
            covered = replace(coverage, relies_on=search.relies_on)
            damage = [failed_broker(broker.name, error) for error in search.damage]
            findings.cover((covered, *damage))

    async def _find_by_key(
        self, request: FindRequest, topics: list[str], findings: Findings
    ) -> None:
        dispatch = Dispatch(self.cluster)
        searched, left_out = await self._split_topics(request, topics, findings)
        tries_index = len(searched) <= MAX_SAMPLED_TOPICS

        async def ask(topic: str) -> None:
            if topic.startswith(LMQ_PREFIX):
                # The index has these messages under their own topics.
                await self._find_in_time(request, topic, findings, with_key=True)
                return
            key_filter = request.filter_of(findings.tally, [topic], with_key=True)
            try:
                await self.find_by_key(
                    key_filter,
                    findings,
                    dispatch=dispatch,
                    exhaustive=request.exhaustive,
                    tries_index=tries_index,
                )
            except TopicNotFound as error:
                # The topic was deleted meanwhile, or does not exist.
                findings.cover(await self.coverage_of_missing_topic(error) if topics else ())

        counting = count_left_out(self, request, left_out, findings.tally)
        await asyncio.gather(at_once(ask, searched, TOPICS_AT_ONCE), counting)

    async def _split_topics(
        self, request: FindRequest, chosen: list[str], findings: Findings
    ) -> tuple[list[str], list[str]]:
        """Return the topics to search, all if none is chosen, and those left out."""
        topics = chosen or await self._topics(findings)
        if not request.leaves_out:
            return topics, []
        left_out = [each for each in topics if is_internal_topic(each)]
        searched = [each for each in topics if not is_internal_topic(each)]
        if left_out and not searched:
            brokers, doubts = await self.topology.brokers()
            only = "they have RocketMQ's own topics only"
            findings.cover((_brokers_coverage(brokers, only), *doubts))
        return searched, left_out

    async def _has_topic(self, topic: str) -> bool:
        try:
            await self.topology.route(topic)
        except TopicNotFound:
            return False
        return True

    async def _topics(self, findings: Findings) -> list[str]:
        """Return all topics, and add the coverage of listing them."""
        listed, failed = await self.topology.topics()
        topics = [each for each in listed if is_in_namespace(self.namespace, each)]
        source = counted(len(topics), "topic")
        listing = Coverage(source, SourceKind.TOPICS, SourceState.SEARCHED)
        brokers, doubts = await self.topology.brokers()
        findings.cover((listing, *failed, *doubts))
        if brokers and not topics:
            findings.cover((_brokers_coverage(brokers, "they have no topic"),))
        return topics

    async def coverage_of_missing_topic(self, error: TopicNotFound) -> tuple[Coverage, ...]:
        """Return the coverage of a topic that no broker has; all of them were asked."""
        brokers, doubts = await self.topology.brokers()
        if not brokers:
            return doubts
        return (_brokers_coverage(brokers, str(error)), *doubts)


def _is_listed(name: str) -> bool:
    """Return True if name servers would list the topic; they list no light topics."""
    return not is_pattern(name) and not name.startswith(LMQ_PREFIX)


def _index_problem(missing: str) -> str:
    return (
        f"its index lacks messages that its queues have, such as {missing}: a broker that was "
        "killed can lose keys of messages stored before. An exhaustive search reads whole queues"
    )


def _brokers_coverage(brokers: Collection[str], detail: str) -> Coverage:
    """Return the coverage of brokers whose registration is already the answer."""
    return hint(counted(len(brokers), "broker"), detail, SourceKind.BROKER)


async def count_left_out(
    source: "ClusterSource", request: FindRequest, topics: "Collection[str]", tally: SearchTally
) -> None:
    """Count in ``tally`` the messages of RocketMQ's own topics that a search leaves out.

    A search by key is counted by a look-up, other searches by the offsets of each queue and the
    times. An unknown count does not change the answer.
    """

    async def count(topic: str) -> None:
        try:
            if request.text is None:
                tally.put_internal(topic, await _count_stored(source, request, topic))
            else:
                await _count_with_key(source, request, topic, tally)
        except TopicNotFound:
            # The topic was deleted meanwhile.
            return
        except RocketLensError:
            tally.put_internal(topic, None)

    await asyncio.gather(*map(count, topics))


async def _count_with_key(
    source: "ClusterSource", request: FindRequest, topic: str, tally: SearchTally
) -> None:
    most = MAX_QUERY_MESSAGES
    findings = Findings(AnswerMessages(most))
    key_filter = request.filter_of(findings.tally, [topic], with_key=True)
    key_filter = replace(key_filter, content=None, leaves_out=False)
    await source.find_by_key(key_filter, findings, tries_index=False)
    is_least = findings.messages.truncated or not findings.is_complete
    tally.put_internal(topic, min(findings.count, most), is_least=is_least)


async def _count_stored(source: "ClusterSource", request: FindRequest, topic: str) -> int | None:
    """Return the approximate number of messages of the request's times; None if unknown."""
    route = (await source.topology.route(topic)).value

    async def ask(_: Broker, address: str) -> int:
        count = 0
        table = await broker_calls.topic_stats(source.cluster, address, topic, missing_ok=True)
        for queue, offsets in table.items():
            count += await _count_between(source, request, address, queue, offsets)
        return count

    answers = await source.cluster.ask_brokers(route.brokers.values(), ask)
    counts = [each.value for each in answers]
    return None if None in counts else sum(each or 0 for each in counts)


async def _count_between(
    source: "ClusterSource",
    request: FindRequest,
    address: str,
    queue: MessageQueue,
    offsets: TopicOffset,
) -> int:
    low, high = offsets.min_offset, offsets.max_offset
    if request.begin is not None and 0 < offsets.last_update_timestamp_ms < request.begin:
        return 0
    if low < high and request.begin is not None:
        low = max(low, await offset_at_time(source.cluster, address, queue, request.begin))
    if low < high and request.end < limits.MAX_TIMESTAMP_MS:
        high = min(high, await offset_at_time(source.cluster, address, queue, request.end + 1))
    return max(high - low, 0)

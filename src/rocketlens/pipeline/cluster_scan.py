"""Reads messages of a running cluster as Arrow record batches: the work of Spark's tasks.

:class:`ClusterScan` plans stretches of queues and pulls one, as
:class:`rocketlens.bulk.messages.BatchScan` plans ranges of a store's log and reads one. The columns
are the same, since a pull returns bytes of the log. The options are in
:data:`rocketlens.bulk.options.OPTIONS`.

Spark sends a scan to executors. It has the names of files with secrets, not the secrets.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketlens import limits
from rocketlens.bulk.messages import INT64, Losses
from rocketlens.bulk.options import (
    BODY_VALUES,
    TopicSelection,
    choice_option,
    flag_option,
    number_option,
    time_option,
    topic_option,
)
from rocketlens.bulk.positions import EARLIEST, LATEST, check_range, positions_option
from rocketlens.client.connect.broker_history import SeenBrokers, seen_brokers_path
from rocketlens.client.connect.cluster import ClusterCalls, Credentials, name_server_addresses
from rocketlens.client.connect.route import Route
from rocketlens.client.connect.topology import Topology
from rocketlens.client.search.queue_offsets import unreadable_of_topic
from rocketlens.client.search.queue_stretch import PulledChunk, QueueStretch, StretchReader, cut
from rocketlens.errors import BadInput, RemotingError, TopicNotFound
from rocketlens.formats import batch_rows, columns
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.batch_rows import PulledRows, scan_pulled
from rocketlens.formats.commitlog_record import decode, message_of
from rocketlens.formats.rows import Rows
from rocketlens.model.answer import Coverage
from rocketlens.model.arrow import batches_of
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from rocketlens.net.secret_file import read_secret_file
from rocketlens.net.sync import LoopThread
from rocketlens.net.tls import client_context
from rocketlens.query.topic_choice import matching_topics, unknown_topic

MAX_RECORDS_PER_PARTITION: Final = 100_000
"""The default of ``maxRecordsPerPartition``: some seconds of a task. RocketMQ's Spark connector
reads a whole queue in one partition."""
_log = logging.getLogger(__name__)

_SHOWN_RANGES: Final = 5
_REMEDY: Final = "reads what it has"


class ClusterAddress(NamedTuple):
    """The name servers of a cluster, and the paths of files with credentials and certificates."""

    name_servers: tuple[str, ...]
    secret: tuple[str, Path] | None
    """The access key, and the file with its secret key."""
    tls: Mapping[str, Any] | None
    """The arguments of `client_context`; None for connections without TLS."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ClusterAddress":
        """Read the options of a connection.

        :raises BadInput: if an option is not valid, or needs or excludes another one.
        """
        access_key, secret_key_file = options.get("accessKey"), options.get("secretKeyFile")
        if (access_key is None) != (secret_key_file is None):
            raise BadInput("options accessKey and secretKeyFile go together: give both")
        files = {
            name: None if not options.get(option) else Path(options[option])
            for name, option in (("ca", "ca"), ("certificate", "cert"), ("key", "certKey"))
        }
        insecure = flag_option(options, "insecure", default=False)
        check_hostname = None
        if "checkHostname" in options:
            check_hostname = flag_option(options, "checkHostname", default=True)
        if insecure and (files["ca"] is not None or check_hostname):
            raise BadInput("options insecure, and ca or checkHostname contradict each other")
        if files["key"] is not None and files["certificate"] is None:
            raise BadInput("option certKey needs cert")
        implied = insecure or check_hostname is not None or any(files.values())
        tls = flag_option(options, "tls", default=implied)
        if implied and not tls:
            raise BadInput("option tls is false, but other options of TLS are given")
        context = {**files, "verify": not insecure, "check_hostname": check_hostname}
        return cls(
            name_server_addresses(options["namesrv"]),
            None if access_key is None else (access_key, Path(secret_key_file or "")),
            context if tls else None,
        )

    @contextmanager
    def connect(self) -> Iterator[tuple[LoopThread, ClusterCalls]]:
        """Read the files, and open a client and its thread; errors as `connection`."""
        calls = ClusterCalls(**self.connection())
        with LoopThread("rocketlens-spark") as thread:
            try:
                yield thread, calls
            finally:
                thread.run(calls.close())

    def connection(self) -> dict[str, Any]:
        """Read the files, and return the arguments of a client; raise BadInput if one is
        unusable.
        """
        credentials = None
        if self.secret is not None:
            access_key, file = self.secret
            where = "the secret key's file (option secretKeyFile)"
            credentials = Credentials(access_key, read_secret_file(file, where))
        return {
            "name_servers": self.name_servers,
            "credentials": credentials,
            "tls": None if self.tls is None else client_context(**self.tls),
        }


class ClusterScan:
    """Plans stretches of queues that may have matching messages, and reads one."""

    def __init__(self, options: Mapping[str, str], *, is_stream: bool = False) -> None:
        """Check the values of options with names from `known_options`; raise BadInput if
        invalid.
        """
        if options.get("path"):
            raise BadInput("option namesrv reads a cluster, load(DIR) a store: give one")
        self.address: Final = ClusterAddress.of(options)
        self._seen_brokers: Final = seen_brokers_path()
        self.missing: list[str] = []
        """A line for each name server that did not answer the last `stored`, and for each broker
        that was registered earlier and was not then."""
        topics = topic_option(options)
        if topics is None:
            raise BadInput('say which topics to read: .option("subscribe", "Orders,Pay*")')
        self.topics: Final[TopicSelection] = topics
        self.losses: Final = Losses(fails=flag_option(options, "failOnDataLoss", default=False))
        form = choice_option(options, "body", BODY_VALUES)
        self.with_body: Final = form != "false"
        self.with_text = form == "true"
        self.check_crc: Final = flag_option(options, "checkCrc", default=True)
        self.min_partitions: Final = number_option(options, "minPartitions", 1)
        self.partition_records: Final = number_option(
            options, "maxRecordsPerPartition", MAX_RECORDS_PER_PARTITION
        )
        refused, has_topic = None if is_stream else LATEST, topics.matches
        starts, ends = "startingOffsets", "endingOffsets"
        self.starts = positions_option(options, starts, refused=refused, has_topic=has_topic)
        self.ends = positions_option(options, ends, refused=EARLIEST, has_topic=has_topic)
        self.times: Final = (
            time_option(options, "startingTimestamp", INT64[0]),
            time_option(options, "endingTimestamp", INT64[1]),
        )
        """The earliest and the latest store time of rows, both inclusive."""

    # Planning.

    def shares(self) -> list[QueueStretch]:
        """Return the stretches that can hold matching rows, up to the current ends of the queues.

        :raises TopicNotFound: if the cluster lacks a requested topic.
        :raises BadInput: if it lacks a queue that has a position.
        :raises RemotingError: if no name server answers, or neither master nor slave of a broker.
        :raises StoreError: if a broker is missing, only a slave answers, or a position is not in
            its queue, and ``failOnDataLoss`` is set.
        """
        has_positions = bool(self.starts.offsets or self.ends.offsets)
        # Positions are checked against the whole queue.
        times = INT64 if has_positions else self.times
        answers = self.stored(*times)
        for missing in self.missing:
            self.losses.add(missing, _REMEDY)
        for warning in dict.fromkeys(
            warning_text for _, warning_text in answers if warning_text is not None
        ):
            self.losses.add(warning, _REMEDY)
        stretches = [stretch for stretch, _ in answers]
        return self.cut(self._placed(stretches) if has_positions else stretches)

    def _placed(self, stretches: list[QueueStretch]) -> Iterator[QueueStretch]:
        """Yield the parts of queues between positions."""
        queues = [each.queue for each in stretches]
        starts, ends = (each.by_queue(queues) for each in (self.starts, self.ends))
        for queue, first, last in stretches:
            start, end = starts.get(queue, EARLIEST), ends.get(queue, LATEST)
            check_range(queue, self.starts, start, self.ends, end)
            for positions, offset in ((self.starts, start), (self.ends, end)):
                if offset >= 0:
                    for what in positions.outside(queue, offset, (first, last)):
                        self.losses.add(what, _REMEDY)
            stop = last if end == LATEST else min(end, last)
            yield QueueStretch(queue, min(max(start, first), last), max(stop, first))

    def cut(self, stretches: Iterable[QueueStretch]) -> list[QueueStretch]:
        """Split stretches into parts for one task each."""
        return cut(stretches, self.partition_records, self.min_partitions)

    def stored(self, begin_ms: int, end_ms: int) -> list[tuple[QueueStretch, str | None]]:
        """Return the part of each queue in a time range, as `StretchReader.stored` does.

        :raises TopicNotFound: if the cluster lacks a requested topic.
        :raises RemotingError: if no name server answers, or neither master nor slave of a broker.
        """
        with self.address.connect() as (thread, cluster):
            return thread.run(self._stored(cluster, begin_ms, end_ms))

    async def _stored(
        self, cluster: ClusterCalls, begin_ms: int, end_ms: int
    ) -> list[tuple[QueueStretch, str | None]]:
        import asyncio

        self.missing = []
        seen = SeenBrokers(self._seen_brokers, cluster.name_servers)
        topology = Topology(cluster, seen, time.monotonic)
        reader = StretchReader(cluster)
        routes = [
            await self._route(topology, topic) for topic in await self._chosen_topics(topology)
        ]
        for route in routes:
            if route is not None:
                for name, problem in await unreadable_of_topic(cluster, route):
                    self.losses.add(f"{name}: {problem}", _REMEDY)
        requests = [
            reader.stored(route.brokers[queue.broker_name], queue, begin_ms, end_ms)
            for route in routes
            if route is not None
            for queue in route.read_queues
        ]
        stored = await asyncio.gather(*requests)
        # Last, because name servers forget a broker that ended, with its queues.
        self._check(await topology.recheck_missing_brokers())
        return stored

    async def _chosen_topics(self, topology: Topology) -> list[str]:
        names, patterns = self.topics
        listed_topics: list[str] = []
        if patterns:
            listed = await topology.topics()
            listed_topics = listed.value
            self._check(listed.coverage)
        topics, unknown = matching_topics((*names, *patterns), listed_topics)
        for error in unknown.values():
            raise error
        return topics

    async def _route(self, topology: Topology, topic: str) -> Route | None:
        """Return a topic's route; None if only a pattern matches it, and it was just deleted."""
        try:
            answer = await topology.route(topic)
        except TopicNotFound:
            if topic not in self.topics.names:
                return None
            listed_topics = (await topology.topics()).value
            raise unknown_topic(topic, set(listed_topics) - {topic}, "this cluster") from None
        route = answer.value
        of_queues = {queue.broker_name for queue in route.read_queues}
        self._check(answer.coverage, of_queues - route.brokers.keys())
        return route

    def _check(self, coverage: Iterable[Coverage], needed: Iterable[str] = ()) -> None:
        """Add failures to `missing`; raise RemotingError for a broker in ``needed``."""
        for each in coverage:
            text = f"{each.source}: {each.error}"
            if each.source in needed:
                raise RemotingError(each.source, each.error or "it cannot be asked")
            if not each.is_failure:
                _log.warning("%s", text)
            elif text not in self.missing:
                self.missing.append(text)

    # Reading.

    def read(self, share: QueueStretch) -> Iterator[Any]:
        """Return the record batches of one share; can run in another process.

        The next chunk is pulled while the current one is converted.

        :raises RemotingError: if neither master nor slave of the broker answers.
        :raises StoreError: if messages are missing and ``failOnDataLoss`` is set.
        """
        with self.address.connect() as (thread, cluster):
            pull = partial(_pull, Topology(cluster, None, time.monotonic), StretchReader(cluster))
            pending = thread.submit(pull(share))
            rest = share
            warned = False
            while rest.start < rest.stop:
                try:
                    chunk = pending.result()
                except TopicNotFound:
                    chunk = PulledChunk([], rest.stop)
                part, rest = (
                    rest._replace(stop=chunk.next_offset),
                    rest._replace(start=chunk.next_offset),
                )
                if rest.start < rest.stop:
                    pending = thread.submit(pull(rest))
                if chunk.warning is not None and not warned:
                    warned = True
                    _log.warning("%s", chunk.warning)
                yield from self._batches(part, chunk)

    def _batches(self, part: QueueStretch, chunk: PulledChunk) -> Iterator[Any]:
        bodies, broker = chunk.bodies, part.queue.broker_name
        pulled = scan_pulled(bodies, len(bodies) * limits.MAX_PULL_MESSAGES)
        pulled = pulled.of(_belongs(pulled, part))
        if self.check_crc and len(pulled.rows):
            pulled = pulled.of(np.frombuffer(pulled.rows.sound(), np.bool_))
        missing = _missing(pulled, part)
        if missing:
            self._report_loss(part, missing)
        stop = 0
        for is_batch, rows in batch_rows.runs(pulled.rows):
            start, stop = stop, stop + len(rows)
            if not is_batch:
                run = PulledRows(rows, pulled.physical_offsets[start:stop])
                chosen = run.of(self._choose(rows, part))
                yield from columns.batches(
                    chosen.rows,
                    with_body=self.with_body,
                    with_text=self.with_text,
                    origin=(chunk.cluster, broker),
                    physical_offsets=chosen.physical_offsets,
                )
                continue
            for piece, records in batch_rows.messages_of(rows):
                chosen_records = compress(records, self._choose(piece, part))
                origin = (chunk.cluster, broker)
                messages = (message_of(each, origin=origin) for each in chosen_records)
                yield from batches_of(messages, with_body=self.with_body, with_text=self.with_text)

    def _choose(self, rows: Rows, part: QueueStretch) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is in the part and in the time range."""
        # A batch can have messages of several parts; it is pulled for each of them.
        fields = rows.as_array
        offsets, stored_ms = fields["queue_offset"], fields["store_timestamp_ms"]
        is_chosen = (offsets >= part.start) & (offsets < part.stop)
        if self.times != INT64:
            is_chosen &= (stored_ms >= self.times[0]) & (stored_ms <= self.times[1])
        return is_chosen

    def _report_loss(self, part: QueueStretch, missing: list[tuple[int, int]]) -> None:
        count = sum(stop - start for start, stop in missing)
        shown = ", ".join(f"{start} to {stop - 1}" for start, stop in missing[:_SHOWN_RANGES])
        more = " and others" if len(missing) > _SHOWN_RANGES else ""
        self.losses.add(
            f"{part}: {count} have no message that can be read, deleted meanwhile or damaged: "
            f"{shown}{more}",
            "leaves them out",
        )


async def _pull(topology: Topology, reader: StretchReader, stretch: QueueStretch) -> PulledChunk:
    """Return the next chunk of a stretch from the broker that the current route names."""
    route = await topology.route(stretch.queue.topic)
    name = stretch.queue.broker_name
    broker = route.value.brokers.get(name)
    if broker is None:
        raise RemotingError(name, f"not registered now, and has {stretch}")
    chunk = await reader.read(broker, stretch)
    return chunk._replace(cluster=broker.cluster_name or None)


def _belongs(pulled: PulledRows, part: QueueStretch) -> Any:
    """Return for each row whether it is of the part's queue, with an offset above all before."""
    names, number_of_row = pulled.rows.queue_names()
    is_queue = np.array([name == (part.queue.topic, part.queue.queue_id) for name in names], bool)
    offsets = pulled.rows.as_array["queue_offset"]
    belongs = (offsets >= 0) & (offsets < part.stop) & is_queue[number_of_row]
    highest = np.maximum.accumulate(offsets)
    belongs[1:] &= offsets[1:] > highest[:-1]
    return belongs


def _missing(pulled: PulledRows, part: QueueStretch) -> list[tuple[int, int]]:
    """Return the offsets of a part without a row, as (first, end) ranges."""
    fields = pulled.rows.as_array
    offsets = fields["queue_offset"]
    after = offsets + 1
    for number in np.flatnonzero(fields["sys_flag"] & SYS_FLAG_INNER_BATCH):
        after[number] += _batch_size(pulled.rows, int(number)) - 1
    ends = np.maximum.accumulate(np.concatenate([[part.start], after]))
    begins = np.concatenate([offsets, [part.stop]])
    is_gap = begins > ends
    return [(int(end), int(begin)) for end, begin in zip(ends[is_gap], begins[is_gap], strict=True)]


def _batch_size(rows: Rows, number: int) -> int:
    """Return the number of messages in a RocketMQ 5 batch record; 1 if it cannot be parsed."""
    start = rows.column("physical_offset")[number]
    return message_count(decode(rows.content, start, check_crc=False))

"""A group's offsets: stored by brokers (14, 15), or in a local file in broadcasting mode.

The file is ``~/.rocketmq_offsets/<client id>/<group>/offsets.json``, as in RocketMQ, so a consumer
can continue where one in Java stopped. The previous file is kept as ``offsets.json.bak`` and read
if the current one is damaged. A group without an offset in a queue starts there:

======================  =====================================  ==============================
begin                   a topic's queue                        the group's retry topic
======================  =====================================  ==============================
LAST_OFFSET (default)   at the end: new messages only          at the beginning, to keep the
                                                               group's own failures
FIRST_OFFSET            at the beginning                       at the beginning
TIMESTAMP               at the first message of that time      at the end
======================  =====================================  ==============================

A broker returns offset 0 for a group without an offset while the queue still has its first message.
So LAST_OFFSET also starts at 0 in a new topic, and RocketMQ loses none of its messages. Sources:
``RebalancePushImpl.computePullFromWhereWithException``, ``LocalFileOffsetStore``,
``RemoteBrokerOffsetStore``, ``ControllableOffset``.
"""

import asyncio
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.broker_calls import commit_offset
from rocketlens.client.connect.cluster import ClusterCalls, fields_of
from rocketlens.client.connect.route import Broker, MessageQueue
from rocketlens.errors import BrokerError, CommandBodyError, RocketLensError, TopicNotFound
from rocketlens.net.pace import in_thread
from rocketlens.store.disk import Disk
from rocketlens.wire.bodies.clients import LocalOffsets
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.groups import QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest
from rocketlens.wire.declare import read_body, write_body

logger: Final = logging.getLogger("rocketlens.client")

LOCAL_DIRECTORY: Final = ".rocketmq_offsets"
_FILE: Final = "offsets.json"


class OffsetTable(dict[MessageQueue, int]):
    """The offset of each queue up to which a consumer has consumed it."""

    def put(self, queue: MessageQueue, queue_offset: int, *, increase_only: bool) -> None:
        """Record the consumed offset of a queue; with ``increase_only`` never decrease it."""
        self[queue] = max(queue_offset, self.get(queue, 0)) if increase_only else queue_offset

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.items() if queue.topic == topic}


class RemoteOffsets:
    """Offsets of a group, stored by the broker of each queue."""

    def __init__(self, cluster: ClusterCalls, group: str) -> None:
        self._cluster: Final = cluster
        self._group: Final = group
        self._first_turns: Final[dict[tuple[str, str], asyncio.Lock]] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker stores; None if the group is new to the queue."""
        header = QueryConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            lo=False,
        )
        address = (await broker_of(self._cluster, queue)).in_order[0]
        try:
            answer = await self._cluster.ask(address, QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return fields_of(address, QUERY_CONSUMER_OFFSET, answer).queue_offset

    async def write(self, offsets: Iterable[tuple[MessageQueue, int]]) -> None:
        """Send the offsets to the brokers: one of each topic first, then its others concurrently.

        If a group's first two offsets of a topic arrive together, RocketMQ's broker can lose one:
        each creates the topic's table (``ConsumerOffsetManager.commitOffset``).
        """
        shares: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
        for queue, offset in offsets:
            shares.setdefault((queue.broker_name, queue.topic), []).append((queue, offset))
        await asyncio.gather(*itertools.starmap(self._write_share, shares.items()))

    async def _write_share(
        self, broker_and_topic: tuple[str, str], share: Sequence[tuple[MessageQueue, int]]
    ) -> None:
        async with self._first_turns.setdefault(broker_and_topic, asyncio.Lock()):
            await self._write(*share[0])
        await asyncio.gather(*itertools.starmap(self._write, share[1:]))

    async def _write(self, queue: MessageQueue, queue_offset: int) -> None:
        try:
            address = (await broker_of(self._cluster, queue)).in_order[0]
            await commit_offset(self._cluster, address, self._group, queue, queue_offset)
        except RocketLensError as error:
            logger.warning("offset %d of %s is not committed yet: %s", queue_offset, queue, error)


async def broker_of(cluster: ClusterCalls, queue: MessageQueue) -> Broker:
    """Return the broker of a queue; it has at least one address.

    :raises TopicNotFound: if the name servers know no address of it.
    """
    route = await cluster.route(queue.topic, wait=False)
    broker = route.brokers.get(queue.broker_name)
    if broker is None or not broker.addresses:
        raise TopicNotFound(f"{queue}: no name server knows its broker now")
    return broker


class LocalOffsetFile:
    """Offsets of a broadcasting consumer, in RocketMQ's file.

    ``directory`` is the one of all clients, ``~/.rocketmq_offsets`` by default.
    """

    def __init__(
        self,
        client_id: str,
        group: str,
        directory: str | PathLike[str] | None = None,
        disk: Disk | None = None,
    ) -> None:
        root = Path.home() / LOCAL_DIRECTORY if directory is None else Path(directory)
        self.path: Final = root / client_id / group / _FILE
        self._backup: Final = self.path.with_name(_FILE + ".bak")
        self._disk: Final = disk or Disk()
        self._stored: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue.

        :raises CommandBodyError: if the file and its backup are damaged.
        :raises OSError: if they cannot be read.
        """
        return (await self._read()).get(queue)

    async def _read(self) -> dict[MessageQueue, int]:
        if self._stored is None:
            self._stored = await in_thread(self.load)
        return self._stored

    async def write(self, offsets: Iterable[tuple[MessageQueue, int]]) -> None:
        """Merge offsets into the file. A failure is logged."""
        given = dict(offsets)
        if not given:
            return
        try:
            merged = {**await self._read(), **given}
            if merged == self._stored:
                return
            await in_thread(lambda: self.save(merged))
        except (CommandBodyError, OSError) as error:
            logger.warning("%s: offsets are not stored yet: %s", self.path, error)
        else:
            self._stored = merged

    def load(self) -> dict[MessageQueue, int]:
        """Read the file, or its backup; empty if neither exists."""
        damage: CommandBodyError | None = None
        for path in (self.path, self._backup):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                if content.strip():
                    body = read_body(LocalOffsets, content, limits.MAX_CLIENT_JSON_BODY_BYTES)
                    return dict(body.offset_table)
            except CommandBodyError as error:
                logger.warning("%s: %s", path, error)
                damage = CommandBodyError(f"{path}: {error}; mend or delete it")
        if damage is not None:
            raise damage
        return {}

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._disk.make_directory(self.path.parent)
        try:
            before = self.path.read_bytes()
        except FileNotFoundError:
            before = b""
        if before:
            self._disk.write_durably(self._backup, before)
        self._disk.write_durably(self.path, write_body(LocalOffsets(offset_table=offsets)))

"""The data source ``rocketmq`` as a sink: each row of a table is sent to a cluster as a message.

::

    orders.write.format("rocketmq").options(namesrv=ADDR, topic=TOPIC).mode("append").save()
    orders.writeStream.format("rocketmq").options(namesrv=ADDR, topic=TOPIC).start()

Spark repeats a failed task, and a micro-batch that it did not see committed, so a row is sent at
least once. The unique key of a message is derived from the row: copies have the same key.
``docs/reference/spark.md`` has the columns.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from ipaddress import IPv4Address
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rocketlens.bulk.options import known_options, number_option
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import DEFAULT_GROUP, Producer
from rocketlens.client.send.send_request import cut_batches
from rocketlens.errors import BadInput, RemotingError, RocketLensError, TopicNotFound
from rocketlens.model import properties as props
from rocketlens.model.message_id import UniqueKey, month_start_ms
from rocketlens.net.sync import LoopThread
from rocketlens.pipeline.cluster_scan import ClusterAddress

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

SINK_TIMEOUT_S: Final = 30.0
"""Seconds in which a Spark task repeats a failed send; a broker restarts faster. RocketMQ: 3.

Spark repeats a failed task as a whole."""
_log = logging.getLogger(__name__)

SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("array<string>", "string"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "sharding_key": ("string",),
    "deliver_at": ("timestamp", "bigint"),
    "flag": ("int",),
}
"""The columns of a message, with the Spark types that each accepts."""

_CHUNK_ROWS: Final = 1_000
_DAY_MS: Final = 86_400_000
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 2.0


class SentRows(WriterCommitMessage):
    """Commit message: the number of rows that a task sent."""

    def __init__(self, count: int) -> None:
        self.count: Final = count


class _Row(NamedTuple):
    number: int
    message: Message
    sharding_key: str | None


class RowSender(Struct, frozen=True):
    """Sends rows; Spark sends it to executors. It has names of files with secrets, no secret."""

    address: ClusterAddress
    group: str
    topic: str | None
    id_columns: tuple[str, ...]
    """The columns that identify a row; empty for all."""
    rate: int
    """The maximum number of messages per second of a task; 0 for no limit."""
    write_id: str
    """Identifies the job, or the micro-batch of a query."""
    month_millis: int
    """The time in unique keys: look-ups by unique key start at it."""

    @classmethod
    def of(cls, options: Mapping[str, str], columns: Mapping[str, str]) -> "RowSender":
        """Check options, and columns by name with their types as Spark shows them.

        :raises BadInput: if an option or a column is not valid.
        """
        checked = known_options(options, "writes")
        if checked.get("path"):
            raise BadInput("rows are sent to a cluster: give option namesrv, and no path to save()")
        if not checked.get("namesrv"):
            raise BadInput('say where to send: .option("namesrv", "127.0.0.1:9876")')
        id_columns = tuple(filter(None, map(str.strip, checked.get("idColumns", "").split(","))))
        topic = checked.get("topic") or None
        _check_columns(columns, id_columns, topic)
        rate = (
            number_option(checked, "messagesPerSecond", 0) if "messagesPerSecond" in checked else 0
        )
        return cls(
            ClusterAddress.of(checked),
            checked.get("group") or DEFAULT_GROUP,
            topic,
            id_columns,
            rate,
            checked.get("writeId") or uuid.uuid4().hex,
            _month_millis(of_today="writeId" in checked),
        )

    def of_batch(self, query: str, number: str) -> "RowSender":
        """Return the sender of a micro-batch; if it is repeated, it makes the same keys."""
        millis = _month_millis(of_today=True)
        return replace(self, write_id=f"{query}/{number}", month_millis=millis)

    def send(self, batches: Iterable["RecordBatch"], partition: int) -> int:
        """Send all rows; return their number once each is acknowledged.

        Rows with the same sharding key arrive in their order, in one queue. Others are sent in
        batches of RocketMQ's own, concurrently.

        :raises BadInput: if a row is no valid message; names its partition and number.
        :raises RemotingError: if no broker stored a row; names the first one.
        """
        sent = 0
        with LoopThread("rocketlens-spark") as thread:
            producer = thread.run(self._producer())
            try:
                stored: set[str] = set()
                servers = str(self.address.name_servers)
                begun = time.monotonic()
                rows = self._rows(batches, partition)
                most = min(_CHUNK_ROWS, max(self.rate // 4, 1)) if self.rate else _CHUNK_ROWS
                while chunk := list(islice(rows, most)):
                    thread.run(_send(producer, chunk, partition, servers, stored))
                    sent += len(chunk)
                    if self.rate:
                        time.sleep(max(begun + sent / self.rate - time.monotonic(), 0))
            finally:
                thread.run(producer.close())
        return sent

    async def _producer(self) -> Producer:
        producer = Producer(
            **self.address.connection(), group=self.group, send_timeout_s=SINK_TIMEOUT_S
        )
        await producer.start()
        return producer

    def _rows(self, batches: Iterable["RecordBatch"], partition: int) -> Iterator[_Row]:
        number = 0
        for batch in batches:
            for values in batch.to_pylist():
                try:
                    yield _Row(number, self.message(values), values.get("sharding_key"))
                except BadInput as error:
                    raise BadInput(
                        f"row {number} of partition {partition}, keys {values.get('keys')!r:.80}: "
                        f"{error}. {number} rows before it were sent or are on their way"
                    ) from error
                number += 1

    def message(self, values: Mapping[str, Any]) -> Message:
        """Return the message of a row, without properties that RocketMQ sets itself.

        :raises BadInput: if the row is no valid message.
        """
        topic, body = values.get("topic") or self.topic, values["body"]
        if topic is None:
            raise BadInput("it has no topic, and there is no option topic")
        if body is None:
            raise BadInput("its body is null")
        own = dict(values.get("properties") or ())
        return Message(
            topic,
            body,
            tags=values.get("tags") or None,
            keys=values.get("keys") or (),
            properties={k: v for k, v in own.items() if k not in props.SYSTEM_PROPERTIES},
            flag=values.get("flag") or 0,
            deliver_at=values.get("deliver_at"),
            unique_key=self._unique_key(values),
        )

    def _unique_key(self, values: Mapping[str, Any]) -> str:
        identity = tuple(values[name] for name in self.id_columns or sorted(values))
        digest = sha256(repr((self.write_id, identity)).encode(errors="surrogatepass")).digest()
        return UniqueKey(
            str(IPv4Address(digest[:4])),
            int.from_bytes(digest[4:6]),
            int.from_bytes(digest[6:10]),
            self.month_millis,
            int.from_bytes(digest[10:12]),
        ).encode()


def _month_millis(*, of_today: bool) -> int:
    """Return the time in unique keys: now, or the start of the day, which repetitions share."""
    now_ms = time.time_ns() // 1_000_000
    at_ms = now_ms // _DAY_MS * _DAY_MS if of_today else now_ms
    return max(at_ms - month_start_ms(now_ms, None), 0)


async def _send(
    producer: Producer, rows: Iterable[_Row], partition: int, servers: str, stored: set[str]
) -> None:
    """Send rows concurrently: in batches, or one after another if their order matters.

    Topics that are surely there are in ``stored``; those of the rows are added.

    :raises RemotingError: if a row was not stored; names the first one.
    """
    ordered: dict[tuple[str, str], list[_Row]] = {}
    together: dict[tuple[str, bool], list[_Row]] = {}
    for row in rows:
        message = row.message
        if row.sharding_key is not None:
            ordered.setdefault((message.topic, row.sharding_key), []).append(row)
        else:
            is_timed = props.TIMER_DELIVER_MS in message.properties
            together.setdefault((message.topic, is_timed), []).append(row)

    async def one_by_one(rows: list[_Row]) -> None:
        for row in rows:
            await named([row], partial(producer.send, row.message, sharding_key=row.sharding_key))

    async def named(rows: list[_Row], send: Callable[[], Awaitable[object]]) -> None:
        topic = rows[0].message.topic
        try:
            await _until_stored(send, topic, stored)
        except RocketLensError as error:
            raise RemotingError(
                servers,
                f"rows {rows[0].number} to {rows[-1].number} of partition {partition}, topic "
                f"{topic}, were perhaps not stored: {error}",
            ) from error

    async def as_batch(rows: list[_Row]) -> None:
        if len(rows) == 1:
            await one_by_one(rows)
        else:
            await named(rows, partial(producer.send_batch, [row.message for row in rows]))

    outcomes = await asyncio.gather(
        *map(one_by_one, ordered.values()),
        *(
            as_batch(batch)
            for rows in together.values()
            for batch in cut_batches(rows, attrgetter("message"))
        ),
        return_exceptions=True,
    )
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _until_stored(
    send: Callable[[], Awaitable[object]], topic: str, stored: set[str]
) -> None:
    """Send; repeat if the broker may recover soon, from a restart or a full disk.

    If a topic in ``stored`` has no brokers, its broker is away; another topic may not exist.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SINK_TIMEOUT_S
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            await send()
        except RocketLensError as error:
            may_pass = error.retriable or (isinstance(error, TopicNotFound) and topic in stored)
            if not may_pass or loop.time() + pause_s > deadline_s:
                raise
        else:
            stored.add(topic)
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def _check_columns(
    kinds: Mapping[str, str], id_columns: tuple[str, ...], topic: str | None
) -> None:
    for name in id_columns:
        if name not in kinds:
            raise BadInput(f"option idColumns names {name}: the table has {', '.join(kinds)}")
    for name, kind in kinds.items():
        if name in SINK_COLUMNS and kind not in SINK_COLUMNS[name]:
            raise BadInput(f"column {name} is {kind}: cast it to {' or '.join(SINK_COLUMNS[name])}")
        if name not in SINK_COLUMNS and name not in id_columns:
            raise BadInput(
                f"column {name} is not part of a message: select from {', '.join(SINK_COLUMNS)}, "
                "or name it in option idColumns"
            )
    if "body" not in kinds:
        raise BadInput("there is no column body: select(...alias('body'))")
    if "topic" not in kinds and topic is None:
        raise BadInput("there is no column topic: add one, or give option topic")


def kinds_of(schema: "StructType") -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


class RocketMQWriter(DataSourceArrowWriter):
    """Sends the rows of a table."""

    def __init__(self, sender: RowSender) -> None:
        self._sender: Final = sender

    def write(self, iterator: Iterator["RecordBatch"]) -> SentRows:
        """Send the rows of a partition; runs in an executor. Errors as `RowSender.send`."""
        return SentRows(self._sender.send(iterator, _task().partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log.info("%d messages were sent", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the messages that stay sent although the job failed."""
        _log.warning(
            "the job failed: %d messages of finished tasks were sent, and some of others",
            _count(messages),
        )


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch."""

    def __init__(self, sender: RowSender) -> None:
        self._sender: Final = sender

    def write(self, iterator: Iterator["RecordBatch"]) -> SentRows:
        """Send the rows of a partition; runs in an executor. Errors as `RowSender.send`."""
        task = _task()
        names = ("sql.streaming.queryId", "streaming.sql.batchId")
        sender = self._sender.of_batch(*(str(task.getLocalProperty(name)) for name in names))
        return SentRows(sender.send(iterator, task.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log.info("micro-batch %d: %d messages were sent", batchId, _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the messages that stay sent although the micro-batch failed."""
        _log.warning("micro-batch %d failed: %d messages are sent", batchId, _count(messages))


def _count(messages: list[WriterCommitMessage | None]) -> int:
    return sum(each.count for each in messages if isinstance(each, SentRows))


def _task() -> TaskContext:
    return cast("TaskContext", TaskContext.get())

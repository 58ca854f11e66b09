"""Finds unique keys that are stored more than once: the messages, their producer, and the cause.

A producer makes a unique key for each message. A topic has a key twice if the producer retried
because it saw no answer, if a tool sent the message again, or if a job or its producer sent
everything again. Retry and dead-letter topics have copies by design, and so have RocketMQ's own
topics: they are left out.
"""

from enum import StrEnum
from fnmatch import translate
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from rocketlens.archive.copied import known_missing
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.reader import ArchiveLists
from rocketlens.archive.tables import (
    MESSAGES,
    add_missing_columns,
    check_file,
    check_values,
    message_schema,
)
from rocketlens.errors import ArchiveError, BadInput
from rocketlens.late import pa
from rocketlens.model.properties import RESENT
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    PRODUCER_RETRY_MS,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

_LISTED_COPIES: Final = 10
_COLUMNS: Final = (
    "topic string, unique_key string, queue_id int, queue_offset bigint, "
    "store_timestamp_ms bigint, born_timestamp_ms bigint, born_host string, "
    "properties map<string,string>"
)
"""The columns that a search reads."""


class Cause(StrEnum):
    """The reason why a unique key is stored more than once."""

    RETRIED = "retried"
    """One host sent it again within a minute: it saw no answer, or an error, of a stored send."""
    RESENT = "resent"
    """RocketLens sent it again: it has the property for that."""
    SENT_AGAIN = "sent again"
    """It was sent again later, or from another host."""


class Copy(NamedTuple):
    """One of the messages of a unique key."""

    store_timestamp_ms: int
    queue_id: int
    queue_offset: int
    born_timestamp_ms: int
    born_host: str


class Duplicate(Struct, frozen=True):
    """A unique key that a topic has more than once."""

    topic: str
    unique_key: str
    count: int
    cause: Cause
    producer: str
    """The host that sent the first copy, without its port."""
    copies: tuple[Copy, ...]
    """The first ten, by store time."""


class DuplicateGroup(Struct, frozen=True):
    """The number of unique keys of a topic and a producer that are stored twice for one cause."""

    topic: str
    producer: str
    cause: Cause
    unique_keys: int
    copies: int
    """Messages beyond the first of each key."""


class DuplicateReport(Struct, frozen=True):
    """The result of a search for duplicates."""

    groups: list[DuplicateGroup]
    """By number of copies, the largest first."""
    duplicates: list[Duplicate]
    """The requested number of duplicates, those with most copies first."""
    messages: int
    """The number of messages that were compared."""

    @property
    def unique_keys(self) -> int:
        """The number of unique keys that are stored more than once."""
        return sum(each.unique_keys for each in self.groups)


def find_duplicates(messages: "DataFrame", max_num: int) -> DuplicateReport:
    """Search a table of the data source ``rocketmq``, or the table ``messages`` of an archive.

    One job groups the messages by topic and unique key, and keeps the groups. ``max_num`` bounds
    the listed keys, not the counts.
    """
    from pyspark.sql import functions as sql

    copy = sql.struct(*Copy._fields)
    grouped = (
        messages.where(sql.col("unique_key").isNotNull() & ~_is_of_rocketmq())
        .groupBy("topic", "unique_key")
        .agg(
            sql.count("*").alias("count"),
            sql.slice(sql.sort_array(sql.collect_list(copy)), 1, _LISTED_COPIES).alias("copies"),
            sql.max(sql.col("properties")[RESENT].isNotNull()).alias("is_resent"),
            sql.min(_host()).alias("producer"),
            sql.countDistinct(_host()).alias("hosts"),
            (sql.max("born_timestamp_ms") - sql.min("born_timestamp_ms")).alias("apart_ms"),
        )
    )
    names = ("topic", "unique_key")
    is_copied = sql.col("count") > 1
    # One row without a topic counts all keys that are stored once: a separate job would read all
    # messages again, and Spark drops observations of empty results.
    keys = (
        grouped.groupBy(*(sql.when(is_copied, sql.col(each)).alias(each) for each in names))
        .agg(
            sql.sum("count").alias("count"),
            *(sql.first(each).alias(each) for each in grouped.columns[len(names) + 1 :]),
        )
        .withColumn(
            "cause",
            sql.when(sql.col("is_resent"), Cause.RESENT.value)
            .when(
                (sql.col("hosts") == 1) & (sql.col("apart_ms") < PRODUCER_RETRY_MS),
                Cause.RETRIED.value,
            )
            .otherwise(Cause.SENT_AGAIN.value),
        )
        .cache()
    )
    try:
        read = keys.agg(sql.sum("count")).collect()[0][0] or 0
        copied = keys.where(sql.col("topic").isNotNull())
        counted = copied.groupBy("topic", "producer", "cause").agg(
            sql.count("*").alias("unique_keys"), sql.sum(sql.col("count") - 1).alias("copies")
        )
        groups = [
            DuplicateGroup(row.topic, row.producer, Cause(row.cause), row.unique_keys, row.copies)
            for row in counted.orderBy(sql.desc("copies"), "topic", "producer", "cause").collect()
        ]
        listed = copied.orderBy(sql.desc("count"), "topic", "unique_key").limit(max_num).collect()
    finally:
        keys.unpersist()
    return DuplicateReport(
        groups,
        [
            Duplicate(
                row.topic,
                row.unique_key,
                row["count"],
                Cause(row.cause),
                row.producer,
                tuple(Copy(*each) for each in row.copies),
            )
            for row in listed
        ],
        read,
    )


def archived_messages(
    spark: "SparkSession", root: str, topics: str, begin: int | None, end: int | None
) -> "tuple[DataFrame, list[str]]":
    """Return the messages of an archive, and lines on what it could not archive.

    ``topics`` are names and patterns, separated by commas; empty for all. Times are as in `find`.

    :raises ArchiveError: if ``root`` is not an archive, or its version is not supported.
    :raises BadInput: if it has no messages yet.
    """
    from pyspark.sql import functions as sql

    lists = ArchiveLists(root)
    has = lists.newest(refreshed=False)
    if not has.messages:
        raise BadInput(f"{root} has no messages yet")
    low, high = -(1 << 63) if begin is None else begin, (1 << 63) - 1 if end is None else end
    paths = [
        (lists.tables.path(MESSAGES, each.path),)
        for each in has.files({"store_timestamp_ms": (low, high)})
    ]
    rows = spark.sparkContext.parallelize(paths, max(len(paths), 1))
    # Spark's own reader needs more jars for object stores, and does not check footers.
    files = spark.createDataFrame(rows, "path string")
    messages = files.mapInArrow(partial(_messages_in, lists.tables.location), _COLUMNS)
    if topics:
        patterns = "|".join(translate(each.strip()) for each in topics.split(","))
        messages = messages.where(sql.col("topic").rlike(f"^(?:{patterns})"))
    if begin is not None:
        messages = messages.where(sql.col("store_timestamp_ms") >= begin)
    if end is not None:
        messages = messages.where(sql.col("store_timestamp_ms") <= end)
    gaps = [
        f"{name}: {each.what}"
        for name, batches in has.sources
        for each in known_missing(batches)
        if each.is_within(low, high)
    ]
    return messages, [*gaps, *has.problems]


def _messages_in(
    location: ArchiveLocation, paths: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Read files of messages, in a task of Spark."""
    for batch in paths:
        for path in batch.column(0).to_pylist():
            try:
                yield from _messages_of(location, path)
            except (OSError, ValueError, pa.ArrowException) as error:
                reason = location.reason(error)
                raise ArchiveError(f"{path} cannot be read: {reason}") from error


def _messages_of(location: ArchiveLocation, path: str) -> "Iterator[pa.RecordBatch]":
    columns = message_schema()
    names = [each.partition(" ")[0] for each in _COLUMNS.split(", ")]
    with location.parquet(path) as file:
        check_file(file, MESSAGES, path)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=names, use_threads=False)
            yield from (
                check_values(add_missing_columns(rows, columns, names)).select(names).to_batches()
            )


def _host() -> "Column":
    from pyspark.sql import functions as sql

    return sql.regexp_replace("born_host", r":\d+$", "")


def _is_of_rocketmq() -> "Column":
    """Return a condition for RocketMQ's own topics and those of groups."""
    from pyspark.sql import functions as sql

    topic = sql.col("topic")
    is_own = topic.isin(*SYSTEM_TOPICS)
    for prefix in (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DEAD_LETTER_PREFIX):
        is_own |= topic.startswith(prefix)
    return is_own

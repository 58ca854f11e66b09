"""Counts the topics of an archive by the position columns of its files.

It reads a few bytes a message: no keys, properties or bodies. Files never change, so the counts of
a file are kept while the archive is open. Look-ups start faster because only `Archive.topics`
imports this module.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Final

from rocketlens.archive.files import DataFile
from rocketlens.archive.reader import ArchiveReader
from rocketlens.archive.source import ArchiveSource, bounds_of
from rocketlens.formats.commitlog_record import has_queue_entry
from rocketlens.late import pa
from rocketlens.model.topic import FoundTopic, TopicQueue, TopicsAnswer
from rocketlens.query.lookup.message_filter import MessageFilter

_QUEUE: Final = ("cluster", "broker", "topic", "queue_id")
_COUNTED: Final = (
    ("queue_offset", "count"),
    ("queue_offset", "min"),
    ("queue_offset", "max"),
    ("store_timestamp_ms", "min"),
    ("store_timestamp_ms", "max"),
    ("store_size", "sum"),
)
_Queue = tuple[str, str, str, int]
_FileCounts = list[tuple[_Queue, list[int]]]


def topics_of_archive(source: ArchiveSource, requested: Collection[str]) -> TopicsAnswer:
    """Return all topics of an archive, or those that names and patterns match, with their queues.

    O(messages of the matching files that were not counted before).

    :raises TopicNotFound: if no topic has a name, or matches a pattern.
    """
    source.refresh()
    listed, names = source.topics, source.topics_matching(requested)
    message_filter = MessageFilter(topics=frozenset(names or listed))
    errors: list[str] = []
    parts: dict[_Queue, list[list[int]]] = defaultdict(list)
    for file in source.reader.listing.files(bounds_of(message_filter)):
        for queue, of_file in _counts_of(source.reader, file, errors):
            parts[queue].append(of_file)
    is_one_cluster = len({cluster for cluster, *_ in parts}) < 2
    queues: dict[str, list[TopicQueue]] = {name: [] for name in names or listed}
    for (cluster, broker, topic, queue_id), counts in sorted(parts.items()):
        if topic in queues:
            named = broker if is_one_cluster else f"{cluster}/{broker}"
            queues[topic].append(_queue(named, queue_id, counts))
    return TopicsAnswer(
        tuple(FoundTopic(name, None if errors else tuple(queues[name])) for name in sorted(queues)),
        source.coverage(message_filter, names, errors),
    )


def _counts_of(reader: ArchiveReader, file: DataFile, errors: list[str]) -> _FileCounts:
    """Return the counts of a file's queues; read errors are added to ``errors``."""
    kept = reader.kept.get(file.path)
    if kept is not None:
        return kept
    found: dict[_Queue, list[list[int]]] = defaultdict(list)
    own_errors: list[str] = []
    columns = [*_QUEUE, "sys_flag", *dict.fromkeys(name for name, _ in _COUNTED)]
    for table in reader.columns(file, columns, own_errors):
        _add_counts(table, found)
    counts = [(queue, _merge_counts(several)) for queue, several in found.items()]
    errors.extend(own_errors)
    if not own_errors:
        reader.keep(file, counts)
    return counts


def _merge_counts(several: list[list[int]]) -> list[int]:
    """Merge the counts of all row groups of a file, in the order of `_COUNTED`."""
    functions: dict[str, Callable[[Iterable[int]], int]] = {"min": min, "max": max}
    return [
        functions.get(function, sum)(values)
        for (_, function), values in zip(_COUNTED, zip(*several, strict=True), strict=True)
    ]


def _add_counts(table: "pa.Table", parts: dict[_Queue, list[list[int]]]) -> None:
    has_entry = has_queue_entry(table.column("sys_flag").to_numpy())
    if not has_entry.all():
        table = table.filter(pa.array(has_entry))
    grouped = table.group_by(list(_QUEUE), use_threads=False).aggregate(list(_COUNTED))
    counts = [f"{name}_{function}" for name, function in _COUNTED]
    for row in grouped.to_pylist():
        cluster, broker, topic, queue_id = (row[name] for name in _QUEUE)
        parts[cluster, broker, topic, queue_id].append([row[name] for name in counts])


def _queue(broker: str, queue_id: int, counts: list[list[int]]) -> TopicQueue:
    numbers, first, last, oldest, newest, sizes = zip(*counts, strict=True)
    begin, end = min(first), max(last) + 1
    return TopicQueue(
        broker,
        queue_id,
        begin,
        end,
        min(oldest),
        max(newest),
        sum(sizes),
        missing=end - begin - sum(numbers),
    )

"""Checks index files: each by itself, and all entries against the records of a range of the log."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlens import limits
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.errors import IndexFileError
from rocketlens.formats import index_file
from rocketlens.formats.index_file import ENTRY_LAYOUT, Geometry
from rocketlens.store import fs
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.index.index_check import compiled_chain_check

Numbers = npt.NDArray[np.int64]


class IndexFileTask(NamedTuple):
    """One file to check. ``is_unfinished``: it is the last file, and the store was not closed."""

    path: str
    likely: tuple[Geometry, ...]
    log_min_offset: int
    is_unfinished: bool


class IndexFileFacts(NamedTuple):
    """The facts about a usable file that other checks need."""

    path: str
    geometry: Geometry
    last_entry: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    lowest_offset: int
    highest_offset: int
    deleted: int
    is_sorted: bool
    """Whether the offsets never decrease, as in a broker's files."""


class IndexFileChecked(Struct):
    """The facts about a file (None if it is empty or unusable), and its findings."""

    facts: IndexFileFacts | None = None
    findings: StoreFindings = field(default_factory=StoreFindings)
    notes: list[str] = field(default_factory=list)


def check_file(task: IndexFileTask) -> IndexFileChecked:
    checked = IndexFileChecked()

    def report(kind: FindingKind, detail: str) -> None:
        if task.is_unfinished:
            checked.notes.append(f"{task.path}, which was being written: {detail}")
        else:
            checked.findings.add(Finding(kind, detail, file=task.path))

    try:
        file = IndexFile(Path(task.path), task.likely)
    except IndexFileError as error:
        checked.findings.add(Finding(FindingKind.INDEX_FILE, str(error), file=task.path))
        return checked
    header, geometry = file.header, file.geometry
    if geometry is None:
        file.close()
        return checked
    chains = compiled_chain_check(file)
    if not chains.is_good:
        where = (
            f"first at entry {chains.first_bad_entry}"
            if chains.bad_entry_count
            else f"first at slot {chains.first_bad_slot}"
        )
        wrong = f"{chains.bad_entry_count} links and {chains.bad_slot_count} slots are wrong"
        report(FindingKind.INDEX_CHAIN, f"{wrong}, {where}")
    elif chains.used_slot_count != header.used_slot_count:
        used = f"it has {chains.used_slot_count} slots in use"
        report(FindingKind.INDEX_HEADER, f"{used}, and its header counts {header.used_slot_count}")
    offsets = file.entry_columns()["physical_offset"][1:].astype("int64")
    file.close()
    checked.facts = IndexFileFacts(
        task.path,
        geometry,
        header.last_entry,
        header.begin_timestamp_ms,
        header.end_timestamp_ms,
        int(offsets.min()),
        int(offsets.max()),
        int((offsets < task.log_min_offset).sum()),
        bool((offsets[1:] >= offsets[:-1]).all()),
    )
    if not checked.facts.is_sorted:
        report(FindingKind.INDEX_CHAIN, "its entries are not in the order of the log")
    return checked


def column(mapped: fs.MappedFile, geometry: Geometry, name: str, start: int, stop: int) -> Numbers:
    start_at = geometry.entry_position(start)
    entries: Any = np.ndarray(stop - start, ENTRY_LAYOUT.dtype, mapped.view, start_at)
    return np.asarray(entries[name].astype(np.int64))


class Expected(NamedTuple):
    """The index entries that the records of a range should have, in log order.

    ``is_tag``: the entry is for the record's tags, which only RocketMQ 5.5 indexes.
    """

    hashes: Numbers
    offsets: Numbers
    timestamps: Numbers
    is_tag: npt.NDArray[np.bool_]


class IndexCompared(Struct):
    """The comparison of a range's records with the index files."""

    findings: StoreFindings = field(default_factory=StoreFindings)
    unindexed: int = 0
    """Missing entries after the newest entry of all files: perhaps not written yet."""
    duplicates: int = 0
    """Surplus entries of a record's key: a broker indexes the last record again when it starts."""
    first_tag_offset: int | None = None
    """The first record of the range whose tags are in the index."""
    early_tags: StoreFindings = field(default_factory=StoreFindings)
    """Missing tags of earlier records: perhaps an older broker stored these."""
    sound: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)


def compare(
    expected: Expected, low_offset: int, high_offset: int, files: Sequence[IndexFileFacts]
) -> IndexCompared:
    """Compare the entries for ``low_offset .. high_offset - 1`` in all files."""
    compared = IndexCompared()
    slices = list(_slices(files, low_offset, high_offset))
    nothing = np.empty((2, 0), np.int64)
    pairs = np.concatenate([nothing, *((each.offsets, each.hashes) for each in slices)], axis=1)
    is_expected, is_surplus, times, missing = _match(expected, pairs)
    compared.duplicates = int(np.count_nonzero(is_surplus))
    start = 0
    for each in slices:
        own = slice(start, start + len(each.numbers))
        _compare_file(compared, each, is_expected[own], times[own])
        start = own.stop
    newest = max((facts.highest_offset for facts in files), default=-1)
    found_tags = expected.offsets[expected.is_tag & ~missing]
    if len(found_tags):
        compared.first_tag_offset = int(found_tags[0])
    # A file can become full within a record, whose other entries are then in the next file.
    is_late = missing & (expected.offsets >= newest)
    # It is unknown if the broker, which has not indexed these records yet, indexes tags.
    compared.unindexed = int(np.count_nonzero(is_late & ~expected.is_tag))
    first_tag = found_tags[0] if len(found_tags) else high_offset
    is_early_tag = expected.is_tag & (expected.offsets < first_tag)
    for findings, flagged in (
        (compared.findings, missing & ~is_late & ~is_early_tag),
        (compared.early_tags, missing & ~is_late & is_early_tag),
    ):
        for index in np.flatnonzero(flagged).tolist():
            part = "tags" if expected.is_tag[index] else "key"
            detail = f"its {part} of hash {int(expected.hashes[index])} is not in the index"
            offset = int(expected.offsets[index])
            findings.add(Finding(FindingKind.INDEX_MISSING, detail, physical_offset=offset))
    return compared


def _match(expected: Expected, pairs: Numbers) -> tuple[Any, Any, Any, Any]:
    """Pair entries with the expected ones of the same offset and hash, in order.

    ``pairs``: the offsets and the hashes of the entries. Return for each entry whether it is
    expected, whether it is surplus, and its store time; and for each expected one whether it is
    missing.
    """
    both = np.concatenate(((expected.offsets, expected.hashes), pairs), axis=1)
    order = np.lexsort(both[::-1])
    steps = np.diff(both[:, order], prepend=both[:, order[:1]])
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(steps.any(axis=0))
    own, found = np.split(groups, [len(expected.offsets)])
    room, used = (np.bincount(each, minlength=len(order)) for each in (own, found))
    is_expected = room[found] > 0
    times = np.zeros(len(order), np.int64)
    times[own[::-1]] = expected.timestamps[::-1]
    is_surplus = is_expected & (_nth(found) >= room[found])
    return is_expected, is_surplus, times[found], _nth(own) >= used[own]


def _nth(groups: Numbers) -> Numbers:
    """Return for each number how many equal ones precede it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    nth = np.empty(len(groups), np.int64)
    nth[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return nth


class _EntrySlice(NamedTuple):
    """Some entries of a file, by number. ``since_ms``: the end time of the previous file, or 0."""

    facts: IndexFileFacts
    since_ms: int
    numbers: Numbers
    offsets: Numbers
    hashes: Numbers
    seconds: Numbers


def _slices(
    files: Sequence[IndexFileFacts], low_offset: int, high_offset: int
) -> Iterator[_EntrySlice]:
    for number, facts in enumerate(files):
        if facts.highest_offset < low_offset or facts.lowest_offset >= high_offset:
            continue
        since_ms = files[number - 1].end_timestamp_ms if number else 0
        with fs.MappedFile(Path(facts.path)) as mapped:
            numbers = _entries_between(mapped, facts, low_offset, high_offset)
            if len(numbers):
                first, last = int(numbers[0]), int(numbers[-1])
                columns = (
                    column(mapped, facts.geometry, name, first, last + 1)[numbers - first]
                    for name in ("physical_offset", "key_hash", "seconds")
                )
                yield _EntrySlice(facts, since_ms, numbers, *columns)


def _compare_file(
    compared: IndexCompared, taken: _EntrySlice, is_expected: npt.NDArray[np.bool_], times: Numbers
) -> None:
    """Report the entries of a file that belong to no record of the range, or have another time."""
    facts, _, numbers, offsets, hashes, seconds = taken
    due = _seconds(times, facts.begin_timestamp_ms)
    wrong_time = is_expected & (due != seconds)
    if numbers[0] == 1 and wrong_time[0]:
        # A file's first entry counts from the end time of the previous file, or from its own time.
        wrong_time[0] = seconds[0] not in (0, _seconds(times[:1], taken.since_ms)[0])
    compared.seen[facts.path] = len(numbers)
    compared.sound[facts.path] = int(np.count_nonzero(is_expected))
    for flags, kind, detail in (
        (~is_expected, FindingKind.INDEX_EXTRA, "no key of a record there has hash"),
        (wrong_time, FindingKind.INDEX_TIME, "its seconds are not those of its record, hash"),
    ):
        for index in np.flatnonzero(flags).tolist():
            text = f"entry {int(numbers[index])}: {detail} {int(hashes[index])}"
            offset = int(offsets[index])
            compared.findings.add(Finding(kind, text, file=facts.path, physical_offset=offset))


def _seconds(times: Numbers, begin_timestamp_ms: int) -> Numbers:
    if begin_timestamp_ms <= 0:
        return np.zeros(len(times), np.int64)
    return np.clip(times - begin_timestamp_ms, 0, limits.MAX_INT * 1000 + 999) // 1000


def _entries_between(
    mapped: fs.MappedFile, facts: IndexFileFacts, low_offset: int, high_offset: int
) -> Numbers:
    """Return the numbers of the entries for ``low_offset .. high_offset - 1``, ascending."""
    if facts.is_sorted:

        def offset_of(number: int) -> int:
            return index_file.decode_entry(mapped.view, facts.geometry, number).physical_offset

        entries = range(1, facts.last_entry + 1)
        bounds = (bisect_left(entries, each, key=offset_of) for each in (low_offset, high_offset))
        return 1 + np.arange(*bounds)
    offsets = column(mapped, facts.geometry, "physical_offset", 1, facts.last_entry + 1)
    return 1 + np.flatnonzero((offsets >= low_offset) & (offsets < high_offset))

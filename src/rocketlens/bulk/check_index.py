"""Check index files: each by itself, and its entries against the records of a range of the log."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketlens import limits
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.errors import IndexFileError
from rocketlens.formats import index_file
from rocketlens.formats.index_file import ENTRY_LAYOUT, Geometry
from rocketlens.store import fs
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.index.index_check import compiled_chain_check

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


class IndexFileTask(NamedTuple):
    """Check one file by itself. ``is_unfinished``: the store was not closed, and it is the last."""

    path: str
    likely: tuple[Geometry, ...]
    log_min_offset: int
    is_unfinished: bool


class IndexFileFacts(NamedTuple):
    """Facts about a usable file for the other checks."""

    path: str
    geometry: Geometry
    last_entry: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    lowest_offset: int
    highest_offset: int
    deleted: int
    """Entries of records that are no longer in the log."""
    is_sorted: bool
    """The offsets never decrease, as in a broker's files."""


@dataclass(slots=True)
class IndexFileChecked:
    """The facts (None if the file is empty or unusable), and its findings."""

    facts: IndexFileFacts | None = None
    findings: StoreFindings = field(default_factory=StoreFindings)
    notes: list[str] = field(default_factory=list)


def check_file(task: IndexFileTask) -> IndexFileChecked:
    """Check header, slots and chains of one file; runs in an executor."""
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
        report(FindingKind.INDEX_HEADER, f"{used}, its header says {header.used_slot_count}")
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


def column(
    mapped: fs.MappedFile, geometry: Geometry, name: str, start: int, stop: int
) -> "Numbers":
    """Return one field of entries ``start .. stop - 1``."""
    import numpy as np

    start_at = geometry.entry_position(start)
    entries: Any = np.ndarray(stop - start, ENTRY_LAYOUT.dtype, mapped.view, start_at)
    return np.asarray(entries[name].astype(np.int64))


class Expected(NamedTuple):
    """The index entries that a range's records should have, in log order.

    ``is_tag``: the entry is the one for the record's tags, which only RocketMQ 5.5 writes.
    """

    hashes: "Numbers"
    offsets: "Numbers"
    timestamps: "Numbers"
    is_tag: "npt.NDArray[np.bool_]"


@dataclass(slots=True)
class IndexCompared:
    """The comparison of a range's records with the index files."""

    findings: StoreFindings = field(default_factory=StoreFindings)
    unindexed: int = 0
    """Entries missing behind the newest entry of all files: perhaps not written yet."""
    duplicates: int = 0
    """Surplus entries of a record's key: a broker that starts indexes the last record again."""
    first_tag_offset: int | None = None
    """The first record of the range whose tags are in the index."""
    early_tags: StoreFindings = field(default_factory=StoreFindings)
    """Tags before that one that are not in the index: perhaps the broker was older then."""
    sound: dict[str, int] = field(default_factory=dict)
    """Entries that belong to a record, by file."""
    seen: dict[str, int] = field(default_factory=dict)


def compare(
    expected: Expected, low_offset: int, high_offset: int, files: Sequence[IndexFileFacts]
) -> IndexCompared:
    """Compare the entries for ``low_offset .. high_offset - 1`` in all files with the expected."""
    import numpy as np

    compared = IndexCompared()
    unmatched = _Multiset(expected)
    for number, facts in enumerate(files):
        if facts.highest_offset < low_offset or facts.lowest_offset >= high_offset:
            continue
        before = files[number - 1] if number else None
        with fs.MappedFile(Path(facts.path)) as mapped:
            numbers = _entries_between(mapped, facts, low_offset, high_offset)
            if len(numbers):
                since_ms = before.end_timestamp_ms if before else 0
                _compare_file(compared, unmatched, _EntrySlice(facts, mapped, numbers, since_ms))
    newest = max((facts.highest_offset for facts in files), default=-1)
    missing = unmatched.missing()
    found_tags = expected.offsets[expected.is_tag & ~missing]
    if len(found_tags):
        compared.first_tag_offset = int(found_tags[0])
    # A file may fill up within a record, so that its last one has more in the next file.
    is_late = missing & (expected.offsets >= newest)
    # It is unknown whether a broker that has not indexed so far indexes tags.
    compared.unindexed = int(np.count_nonzero(is_late & ~expected.is_tag))
    first_tag = found_tags[0] if len(found_tags) else high_offset
    is_early_tag = expected.is_tag & (expected.offsets < first_tag)
    for findings, flagged in (
        (compared.findings, missing & ~is_late & ~is_early_tag),
        (compared.early_tags, missing & ~is_late & is_early_tag),
    ):
        for index in np.flatnonzero(flagged).tolist():
            what = "tags" if expected.is_tag[index] else "key"
            detail = f"its {what} of hash {int(expected.hashes[index])} is not in the index"
            offset = int(expected.offsets[index])
            findings.add(Finding(FindingKind.INDEX_MISSING, detail, physical_offset=offset))
    return compared


class _Multiset:
    """The expected entries by offset and hash, crossed off one by one."""

    def __init__(self, expected: Expected) -> None:
        import numpy as np

        self._expected = expected
        self._order = np.lexsort((expected.hashes, expected.offsets))
        pair = np.dtype([("offset", np.int64), ("hash", np.int64)])
        pairs = np.empty(len(self._order), pair)
        pairs["offset"] = expected.offsets[self._order]
        pairs["hash"] = expected.hashes[self._order]
        self._pairs = pairs
        is_new = np.ones(len(pairs), np.bool_)
        is_new[1:] = pairs[1:] != pairs[:-1]
        self._starts = np.flatnonzero(is_new)
        self._room = np.diff(np.append(self._starts, len(pairs)))
        self._used = np.zeros(len(self._starts), np.int64)

    def cross_off(self, offsets: "Numbers", hashes: "Numbers") -> "tuple[Any, Any, Any]":
        """Return for each actual entry whether it is expected, whether it is surplus, and its store
        time.
        """
        import numpy as np

        own = self._pairs[self._starts]
        count = len(offsets)
        if not len(own):
            none = np.zeros(count, np.bool_)
            return none, none, np.zeros(count, np.int64)
        # One number for each pair: the rank of its offset among the expected, then its hash.
        ranks = np.searchsorted(own["offset"], offsets)
        has_record = np.zeros(count, np.bool_)
        inside = ranks < len(own)
        has_record[inside] = own["offset"][ranks[inside]] == offsets[inside]
        keys = np.searchsorted(own["offset"], own["offset"]) * (limits.MAX_INT + 1) + own["hash"]
        wanted = ranks * (limits.MAX_INT + 1) + hashes
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        is_expected = has_record & (keys[index] == wanted)
        chosen = index[is_expected]
        # The n-th entry of a pair is surplus if fewer are expected.
        order = np.argsort(chosen, kind="stable")
        ordered = chosen[order]
        first = np.searchsorted(ordered, ordered)
        nth = np.empty(len(chosen), np.int64)
        nth[order] = np.arange(len(chosen)) - first
        too_many = np.zeros(count, np.bool_)
        too_many[is_expected] = nth + self._used[chosen] >= self._room[chosen]
        np.add.at(self._used, chosen, 1)
        times = np.zeros(count, np.int64)
        times[is_expected] = self._expected.timestamps[self._order[self._starts[chosen]]]
        return is_expected, too_many, times

    def missing(self) -> "npt.NDArray[np.bool_]":
        """Return for each expected entry whether it was not crossed off."""
        import numpy as np

        result = np.zeros(len(self._pairs), np.bool_)
        lacking = np.flatnonzero(self._used < self._room)
        for group in lacking.tolist():
            start = self._starts[group] + self._used[group]
            result[self._order[start : self._starts[group] + self._room[group]]] = True
        return result


class _EntrySlice(NamedTuple):
    """Some entries of a file, by number. ``since_ms``: the end of the file before it, or 0."""

    facts: IndexFileFacts
    mapped: fs.MappedFile
    numbers: "Numbers"
    since_ms: int

    def column(self, name: str) -> "Numbers":
        """Return one field of these entries."""
        low, high = int(self.numbers[0]), int(self.numbers[-1]) + 1
        return column(self.mapped, self.facts.geometry, name, low, high)[self.numbers - low]


def _compare_file(compared: IndexCompared, unmatched: _Multiset, taken: _EntrySlice) -> None:
    """Cross off one file's entries for a range, and report surplus ones."""
    import numpy as np

    facts, numbers = taken.facts, taken.numbers
    offsets, hashes, seconds = map(taken.column, ("physical_offset", "key_hash", "seconds"))
    is_expected, too_many, times = unmatched.cross_off(offsets, hashes)
    due = _seconds(times, facts.begin_timestamp_ms)
    wrong_time = is_expected & (due != seconds)
    if numbers[0] == 1 and wrong_time[0]:
        # A file's first entry counts from the end time of the file before it, or from its own.
        wrong_time[0] = seconds[0] not in (0, _seconds(times[:1], taken.since_ms)[0])
    compared.duplicates += int(np.count_nonzero(too_many))
    compared.seen[facts.path] = len(numbers)
    compared.sound[facts.path] = int(np.count_nonzero(is_expected))
    for flags, kind, detail in (
        (~is_expected, FindingKind.INDEX_EXTRA, "no key of a record there has hash"),
        (wrong_time, FindingKind.INDEX_TIME, "its seconds are not its record's, hash"),
    ):
        for index in np.flatnonzero(flags).tolist():
            text = f"entry {int(numbers[index])}: {detail} {int(hashes[index])}"
            offset = int(offsets[index])
            compared.findings.add(Finding(kind, text, file=facts.path, physical_offset=offset))


def _seconds(times: "Numbers", begin_timestamp_ms: int) -> "Numbers":
    import numpy as np

    if begin_timestamp_ms <= 0:
        return np.zeros(len(times), np.int64)
    return np.clip(times - begin_timestamp_ms, 0, limits.MAX_INT * 1000 + 999) // 1000


def _entries_between(
    mapped: fs.MappedFile, facts: IndexFileFacts, low_offset: int, high_offset: int
) -> "Numbers":
    """Return the numbers of the entries for offsets ``low_offset .. high_offset - 1``, rising."""
    import numpy as np

    if facts.is_sorted:
        start = _first_at(mapped, facts, low_offset)
        return np.arange(start, _first_at(mapped, facts, high_offset))
    offsets = column(mapped, facts.geometry, "physical_offset", 1, facts.last_entry + 1)
    return 1 + np.flatnonzero((offsets >= low_offset) & (offsets < high_offset))


def _first_at(mapped: fs.MappedFile, facts: IndexFileFacts, offset: int) -> int:
    """Return the first entry of a sorted file whose offset is ``offset`` or more."""
    low, high = 1, facts.last_entry + 1
    while low < high:
        middle = (low + high) // 2
        entry = index_file.decode_entry(mapped.view, facts.geometry, middle)
        if entry.physical_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low

"""The findings of a comparison of log, queues and index.

Many tasks, perhaps on several machines, find them in ranges of the log. So they are counts and
samples that can be merged. A `rocketlens.query.facts.examination.StoreExamination`, however, reads
one store in bounded time in this process.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from rocketlens import limits


class FindingKind(StrEnum):
    """The kinds of findings, in the order of a report."""

    LOG_DAMAGE = "log damage"
    LOG_TORN = "log torn"
    """Bytes after the last record that are neither a record nor zeros."""
    RECORD_CHECKSUM = "record checksum"
    QUEUE_MISSING = "queue entry missing"
    QUEUE_WRONG = "queue entry wrong"
    """An entry at the record's queue offset with other content."""
    QUEUE_EXTRA = "queue entry extra"
    """An entry that no record of the log belongs to."""
    QUEUE_FILE = "queue file"
    INDEX_FILE = "index file"
    INDEX_HEADER = "index header"
    """A header field that the file's own entries contradict."""
    INDEX_CHAIN = "index chain"
    """Slots or links that lead to the wrong entry, or away from one."""
    INDEX_MISSING = "index entry missing"
    """A key of a record that is not in the index."""
    INDEX_EXTRA = "index entry extra"
    """An entry that belongs to no key of the record at its offset."""
    INDEX_TIME = "index entry time"
    """An entry whose seconds are not those of its record."""
    CHECKPOINT = "checkpoint"


_MAX_LISTED: Final = limits.MAX_DAMAGE_REPORTS // len(FindingKind)


class Finding(Struct, frozen=True):
    """One finding: its kind and its location. Fields that do not apply are None."""

    kind: FindingKind
    detail: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None

    def __str__(self) -> str:
        where = []
        if self.topic is not None:
            queue = "" if self.queue_id is None else f"/{self.queue_id}/{self.queue_offset}"
            where.append(f"{self.topic}{queue}")
        if self.physical_offset is not None:
            where.append(f"physical offset {self.physical_offset}")
        if self.file is not None:
            where.append(self.file)
        return f"{self.kind}: {self.detail} ({', '.join(where)})" if where else str(self.detail)


class StoreFindings(Struct):
    """Counts of findings by kind, and a list of the first findings of each kind."""

    counts: Counter[FindingKind] = field(default_factory=Counter)
    listed: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding, count: int = 1) -> None:
        """Count a finding ``count`` times, and list it if its kind is not full."""
        if self.counts[finding.kind] < _MAX_LISTED:
            self.listed.append(finding)
        self.counts[finding.kind] += count

    def merge(self, other: "StoreFindings") -> None:
        listed = Counter(finding.kind for finding in self.listed)
        for finding in other.listed:
            if listed[finding.kind] < _MAX_LISTED:
                self.listed.append(finding)
                listed[finding.kind] += 1
        self.counts.update(other.counts)

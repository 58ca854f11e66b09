"""Finds the logs in tiered storage that RocketMQ 5's local provider writes, one for each queue.

=======================================================  ===========================================
path                                                     content
=======================================================  ===========================================
``config/tieredStoreMetadata.json`` of the store         start and size of each file below
``HASH_CLUSTER/BROKER/TOPIC/QUEUE/COMMIT_LOG/NAME``      records, with physical offsets of this log
``HASH_CLUSTER/BROKER/TOPIC/QUEUE/CONSUME_QUEUE/NAME``   entries as in consume queues; that of queue
                                                         offset N is at byte 20 N
``HASH_CLUSTER/BROKER/rmq_sys_INDEX/0/INDEX/NAME``       its index, which is not read here
=======================================================  ===========================================

``HASH_CLUSTER`` is in the ``tieredStoreFilePath`` of the ``broker.conf``. ``HASH`` is the first 8
digits of an MD5 digest. ``NAME`` is the hash of the file's start offset, and that in 20 digits.

A broker writes the log before the queue. If it is killed between them, it writes the same messages
again at the next start, so a log can have a message twice. Source:
``PosixFileSegment``, ``FlatMessageFile``, ``MessageStoreDispatcherImpl``, ``DefaultMetadataStore``.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, decode
from rocketlens.store import fs
from rocketlens.store.layout import QUEUE_LOG, StoreLayout
from rocketlens.store.read.config_tables import read_table

_LOGS: Final = "commitLogFileSegmentTable"
_QUEUE: Final = "CONSUME_QUEUE"
_DIGITS: Final = 20
_END: Final = 16
"""A message has a nonzero byte among its last 16."""
_NEAR: Final = ("*_*", "*/*_*")


class QueueLog(NamedTuple):
    """The log of one queue; ``sizes`` has the sizes of its files by start offset."""

    topic: str
    queue_id: int
    path: Path
    sizes: Mapping[int, int]

    def lost(self) -> Iterator[str]:
        """Yield a description of each file that is missing, incomplete or unreadable."""
        for begin, size in self.sizes.items():
            file = self.path / _file_name(begin)
            try:
                length = fs.file_size(file)
                is_zero = not any(fs.read_part(file, max(size - _END, 0), _END))
            except OSError as error:
                yield f"{file} of tiered storage cannot be read: {error.strerror}"
                continue
            if length is None:
                yield f"{file} of tiered storage is missing"
            elif length < size:
                yield f"{file} of tiered storage has {length} of {size} bytes"
            elif is_zero:
                yield f"{file} of tiered storage ends with zeros, which no message does"

    @property
    def end_offset(self) -> int:
        """The end of the log, according to the broker's table."""
        return max((begin + size for begin, size in self.sizes.items()), default=0)

    def physical_offset(self, queue_offset: int) -> int | None:
        """Return a message's physical offset from the queue beside this log; None without it."""
        position = queue_offset * ENTRY_BYTES
        queue = self.path.with_name(_QUEUE)
        try:
            begins = sorted((int(each.name[-_DIGITS:]), each.path) for each in fs.entries(queue))
            begin, path = next(each for each in reversed(begins) if each[0] <= position)
            content = fs.read_part(path, position - begin, ENTRY_BYTES)
        except (OSError, ValueError, StopIteration):
            return None
        return decode(content).physical_offset if len(content) == ENTRY_BYTES else None


class Tiers(NamedTuple):
    """The logs in tiered storage. ``problem``: the reason why some can be missing here."""

    logs: tuple[QueueLog, ...] = ()
    problem: str | None = None


def read_tiers(layout: StoreLayout) -> Tiers:
    table = read_table(layout.root, str(layout.tiers.relative_to(layout.root)), _LOGS)
    problem = None
    if table.problem:
        problem = f"{layout.tiers}: {table.problem}: some logs in tiered storage may be unknown"
    sizes = {path: _sizes(files) for path, files in table.entries.items() if path.count("/") == 2}
    written = {path: each for path, each in sizes.items() if each}
    root = next(filter(lambda each: _has_one(each, written), _candidates(layout)), None)
    if root is None and written:
        named = "near the store" if layout.tiered is None else f"in {layout.tiered}"
        return Tiers(
            problem=f"{len(written)} logs of queues in tiered storage are not {named}: give the "
            "broker.conf whose tieredStoreFilePath has them on this machine"
        )
    logs = []
    for path, files in sorted(written.items()):
        _, topic, queue_id = path.split("/")
        if root is not None and queue_id.isdecimal():
            logs.append(QueueLog(topic, int(queue_id), root / path / QUEUE_LOG, files))
    return Tiers(tuple(logs), problem)


def _sizes(files: Any) -> dict[int, int]:
    values = files.values() if isinstance(files, dict) else ()
    numbers = ((each.get("baseOffset"), each.get("size")) for each in values if type(each) is dict)
    return {
        begin: size
        for begin, size in numbers
        if type(begin) is int and type(size) is int and begin >= 0 and size > 0
    }


def _candidates(layout: StoreLayout) -> Iterator[Path]:
    """Yield possible directories of tiered storage: that of ``broker.conf``, and some near it."""
    if layout.tiered is not None:
        yield layout.tiered
    near = (base.glob(each) for base in (layout.root, layout.root.parent) for each in _NEAR)
    with suppress(OSError):
        yield from islice(chain.from_iterable(near), limits.MAX_LOOKED_AT_ENTRIES)


def _has_one(root: Path, paths: Mapping[str, Any]) -> bool:
    return any((root / path / QUEUE_LOG).is_dir() for path in paths)


def _file_name(begin: int) -> str:
    digest = hashlib.md5(str(begin).encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}{begin:0{_DIGITS}}"

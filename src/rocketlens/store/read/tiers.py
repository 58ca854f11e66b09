"""Tiered storage of RocketMQ 5 as its local provider writes it: each queue has a log of its own.

=======================================================  ===========================================
path                                                     content
=======================================================  ===========================================
``config/tieredStoreMetadata.json`` of the store         each file below: begin and size
``HASH_CLUSTER/BROKER/TOPIC/QUEUE/COMMIT_LOG/NAME``      records, with physical offsets of this log
``HASH_CLUSTER/BROKER/TOPIC/QUEUE/CONSUME_QUEUE/NAME``   entries, as consume queues have them; the
                                                         one of queue offset N is at byte 20 N
``HASH_CLUSTER/BROKER/rmq_sys_INDEX/0/INDEX/NAME``       its index, which is not read here
=======================================================  ===========================================

``HASH_CLUSTER`` is in the ``tieredStoreFilePath`` of the ``broker.conf``. A hash is the begin of an
MD5 digest; ``NAME`` is that of the begin of the file, and the begin in 20 digits.

A broker writes the log before the queue. One that was killed between the two writes the same
messages once more when it runs again, so a log can have a message twice. Source:
``PosixFileSegment``, ``FlatMessageFile``, ``MessageStoreDispatcherImpl``, ``DefaultMetadataStore``.
"""

import hashlib
from collections.abc import Iterator, Mapping
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
"""Bytes at the end of a message that are not all zero."""
_NEAR: Final = ("*_*", "*/*_*")
"""Where HASH_CLUSTER can be in a store, or beside it."""


class QueueLog(NamedTuple):
    """The log of one queue; ``sizes`` are those of its files, by their begins."""

    topic: str
    queue_id: int
    path: Path
    sizes: Mapping[int, int]

    def lost(self) -> Iterator[str]:
        """Yield each file that is not there, or is shorter than the broker wrote it."""
        for begin, size in self.sizes.items():
            file = self.path / _file_name(begin)
            try:
                length = fs.file_size(file)
                is_zero = not any(fs.read_part(file, max(size - _END, 0), _END))
            except OSError as error:
                yield f"{file} of tiered storage cannot be looked at: {error.strerror}"
                continue
            if length is None:
                yield f"{file} of tiered storage is not there"
            elif length < size:
                yield f"{file} of tiered storage has {length} of {size} bytes"
            elif is_zero:
                yield f"{file} of tiered storage ends with zeros, which no message does"

    @property
    def end_offset(self) -> int:
        """Where the broker wrote it to, as far as its table tells."""
        return max((begin + size for begin, size in self.sizes.items()), default=0)

    def physical_offset(self, queue_offset: int) -> int | None:
        """Return where the queue beside this log says that a message is; None if it does not."""
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
    """What the broker has in tiered storage. ``problem`` is why more may be there."""

    logs: tuple[QueueLog, ...] = ()
    problem: str | None = None


def read_tiers(layout: StoreLayout) -> Tiers:
    """Return the logs of a store's tiered storage."""
    table = read_table(layout.root, str(layout.tiers.relative_to(layout.root)), _LOGS)
    problem = None
    if table.problem:
        problem = f"{layout.tiers}: {table.problem}: not all that is in tiered storage is known"
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
    """Return the sizes of files to which something was written, by their begins."""
    values = files.values() if isinstance(files, dict) else ()
    numbers = ((each.get("baseOffset"), each.get("size")) for each in values if type(each) is dict)
    return {
        begin: size
        for begin, size in numbers
        if type(begin) is int and type(size) is int and begin >= 0 and size > 0
    }


def _candidates(layout: StoreLayout) -> Iterator[Path]:
    """Yield where tiered storage can be: where the ``broker.conf`` says, or near the store."""
    if layout.tiered is not None:
        yield layout.tiered
    near = (base.glob(each) for base in (layout.root, layout.root.parent) for each in _NEAR)
    try:
        yield from islice(chain.from_iterable(near), limits.MAX_LOOKED_AT_ENTRIES)
    except OSError:
        return


def _has_one(root: Path, paths: Mapping[str, Any]) -> bool:
    return any((root / path / QUEUE_LOG).is_dir() for path in paths)


def _file_name(begin: int) -> str:
    digest = hashlib.md5(str(begin).encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}{begin:0{_DIGITS}}"

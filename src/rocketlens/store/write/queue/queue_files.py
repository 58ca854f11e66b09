"""Lists the consume queue files of a store, and checks their sizes and entries.

As in RocketMQ, all queue files of a store have one size, and their names are multiples of it. A
file that a crash left too short gets its size back. A longer file, or files of another size, are
refused with the key to set; they are never cut.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES, ENTRY_LAYOUT, FILLER_SIZE
from rocketlens.late import np, npt
from rocketlens.store import fs
from rocketlens.store.read.consumequeue import ConsumeQueues

_FIRST_ENTRIES: Final = 200
"""Entries of a queue that are checked without numpy. Most queues have no more."""
_MORE_BYTES: Final = 50_000 * ENTRY_BYTES


class StoredQueueFile(NamedTuple):
    """A listed queue file: its first byte offset in the queue, and its size."""

    base: int
    size: int
    name: str
    """The path as a string: a Path for each of thousands of files would be slow."""

    @property
    def path(self) -> Path:
        return Path(self.name)


QueueFiles = Mapping[tuple[str, int], list[StoredQueueFile]]
"""All queue files of a store by topic and queue id, in the order of the queue."""


def list_queue_files(directory: Path) -> QueueFiles:
    return {
        (name.topic, name.queue_id): list(_files(Path(f"{directory}/{name.topic}/{name.queue_id}")))
        for name in ConsumeQueues(directory).names()
    }


def _files(directory: Path) -> Iterator[StoredQueueFile]:
    for entry in fs.entries(directory):
        if len(entry.name) == 20 and entry.name.isascii() and entry.name.isdigit():
            yield StoredQueueFile(int(entry.name), fs.size_of(entry), entry.path)


def check_file_sizes(files: QueueFiles, file_bytes: int, known_bytes: int | None) -> None:
    """Check that queue files can belong to a store whose queue files have ``file_bytes``.

    ``known_bytes``: their size from the store's state, or None.

    :raises BadInput: if they have another size, which the message names.
    """
    listed = [file for queue in files.values() for file in queue]
    sizes = Counter(file.size for file in listed if file.size)
    if known_bytes is not None and sizes and known_bytes != file_bytes:
        raise _other_size(listed[0].path.parents[2], known_bytes, file_bytes)
    for file in listed:
        if file.size > file_bytes or file.base % file_bytes:
            actual_bytes = _likely_size(files, sizes) or file.size
            if actual_bytes == file_bytes:
                raise BadInput(
                    f"{file.path} has {file.size} bytes, and all other consume queue files "
                    f"{file_bytes}: move it away, its entries are written again from the log"
                )
            raise _other_size(file.path, actual_bytes, file_bytes)
    likely = _likely_size(files, sizes)
    if known_bytes is None and likely not in (None, file_bytes) and file_bytes not in sizes:
        raise _other_size(listed[0].path.parents[2], likely or 0, file_bytes)


def _likely_size(files: QueueFiles, sizes: Counter[int]) -> int | None:
    """Return the likely configured size of the files, or None.

    This is the least distance between two files of a queue, or else the most frequent size.
    """
    distances = [
        after.base - before.base for queue in files.values() for before, after in pairwise(queue)
    ]
    whole = [size for size, _ in sizes.most_common() if size % ENTRY_BYTES == 0]
    smallest = min(distances, default=None)
    return smallest if smallest in sizes else next(iter(whole), None)


def _other_size(path: Path, file_bytes: int, expected: int) -> BadInput:
    return BadInput(
        f"{path}: consume queue files of this store have {file_bytes} bytes: "
        f"mappedFileSizeConsumeQueue must be {file_bytes}, not {expected}"
    )


def first_physical_offset(files: list[StoredQueueFile]) -> int | None:
    for file in files:
        position = 0
        while position < file.size:
            content = fs.read_part(file.name, position, _FIRST_ENTRIES * ENTRY_BYTES)
            whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
            for offset, size, _ in ENTRY.iter_unpack(content[:whole]):
                if size > 0 and size != FILLER_SIZE:
                    return int(offset)
            if not whole or size <= 0:
                break
            position += whole
    return None


def good_end(files: list[StoredQueueFile], from_offset: int, below: int) -> int:
    """Return the queue offset up to which entries are in ascending log order.

    Entries before queue offset ``from_offset`` are skipped if a file has that offset. The queue
    ends at the first entry that is unwritten, not after the entry before it in the log, or for a
    record at physical offset ``below`` or later. Later entries are not read.
    """
    end, log_end = 0, 0
    for file in files:
        first = file.base // ENTRY_BYTES
        if first + file.size // ENTRY_BYTES <= from_offset:
            continue
        if end and first != end:
            return end
        start = max(from_offset - first, 0)
        count, log_end, is_whole = _good_entries(file, start, log_end, below)
        end = first + start + count
        if not is_whole:
            return end
    return end


def _good_entries(
    file: StoredQueueFile, start: int, log_end: int, below: int
) -> tuple[int, int, bool]:
    """Count the good entries of a file from its entry ``start`` on.

    ``log_end``: the end of the record of the previous entry, or 0 to skip that check. Return also
    the end of the record of the last good entry, and whether all entries of the file are good.
    """
    total = file.size // ENTRY_BYTES
    position = start
    content = fs.read_part(file.name, position * ENTRY_BYTES, _FIRST_ENTRIES * ENTRY_BYTES)
    whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
    for offset, size, _ in ENTRY.iter_unpack(content[:whole]):
        is_filler = offset == 0 and size == FILLER_SIZE
        if size <= 0 or offset >= below or (offset < log_end and not is_filler):
            return position - start, log_end, False
        log_end = 0 if is_filler else offset + size
        position += 1
    while position < total:
        content = fs.read_part(file.name, position * ENTRY_BYTES, _MORE_BYTES)
        count, log_end, is_good = _good_rows(content, log_end, below)
        position += count
        if not is_good or not count:
            return position - start, log_end, False
    return position - start, log_end, True


def _good_rows(content: bytes, log_end: int, below: int) -> tuple[int, int, bool]:
    """Do `_good_entries` for the entries in ``content``, with numpy."""
    whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
    rows: npt.NDArray[np.void] = np.frombuffer(content[:whole], dtype=ENTRY_LAYOUT.dtype)
    if not len(rows):
        return 0, log_end, False
    offsets = rows["physical_offset"].astype(np.int64)
    is_filler = (offsets == 0) & (rows["store_size"] == FILLER_SIZE)
    good = (rows["store_size"] > 0) & (offsets < below)
    ends = offsets + rows["store_size"]
    good[1:] &= (offsets[1:] >= ends[:-1]) | is_filler[1:] | is_filler[:-1]
    good[0] &= bool(offsets[0] >= log_end or is_filler[0])
    count = len(good) if good.all() else int(np.argmin(good))
    if count:
        log_end = 0 if is_filler[count - 1] else int(ends[count - 1])
    return count, log_end, count == len(good)

"""Reads entries of a queue in any thread, while another thread appends to it."""

from typing import TYPE_CHECKING

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, ENTRY_LAYOUT
from rocketlens.store import fs
from rocketlens.store.write.queue.queue_append import QueueWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def read_entries(queue: QueueWriter, start: int, stop: int) -> "npt.NDArray[np.void]":
    """Return the entries from ``start`` to below ``stop``, which must be of one file.

    The array has the fields of
    :class:`rocketlens.formats.consumequeue_entry.QueueEntry` as columns. It is shorter when the
    file is. :meth:`QueueWriter.read` is for the thread that appends.

    :raises OSError: when the file cannot be read.
    """
    import numpy as np

    first_byte = start * ENTRY_BYTES
    base = first_byte - first_byte % queue.file_bytes
    with fs.MappedFile(queue.directory / f"{base:020}") as mapped:
        content = bytes(mapped.view[first_byte - base : stop * ENTRY_BYTES - base])
    return np.frombuffer(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_LAYOUT.dtype)

"""Fixed fields of many records at once, as numpy columns.

For records of which only the offsets are known: an index file's, a queue's. Whether a record is at
such an offset is for the caller to check; nothing outside the buffer is read.
"""

from typing import TYPE_CHECKING, Any

from rocketlens.formats.commitlog_record import HEADS
from rocketlens.model.rocketmq import SYS_FLAG_BORN_HOST_V6

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[np.int64]


def column(content: "Bytes", positions: "Numbers", name: str) -> "Numbers":
    """Return one field of :data:`HEADS` of the records at ``positions`` of ``content``.

    Of a field behind a host: as if both hosts were IPv4.

    :raises IndexError: when the field of one of them ends outside.
    """
    import numpy as np

    kind = np.dtype(HEADS[0].dtype_of(name))
    # A row for every byte of the content: rows overlap, and only those asked for are read.
    count = max(len(content) - kind.itemsize + 1, 0)
    rows: Any = np.ndarray(count, kind, content, strides=(1,)) if count else np.empty(0, kind)
    return np.asarray(rows[name][positions].astype(np.int64))


def store_timestamps(content: "Bytes", positions: "Numbers") -> "Numbers":
    """Return the store times of the records at ``positions``.

    :raises IndexError: as :func:`column`.
    """
    is_v6 = column(content, positions, "sys_flag") & SYS_FLAG_BORN_HOST_V6 != 0
    return column(content, positions + is_v6 * _MORE_BYTES, "store_timestamp_ms")


_MORE_BYTES = HEADS[1].size - HEADS[0].size

"""Records of pulls as rows: whole records one after another, from anywhere in the log.

A pull's body has the bytes of the log, so its records have all columns that they have there. But
the kernels look for a record where its physical offset says that it is. So :func:`scan_pulled`
returns rows whose offsets are positions in the bytes at hand (``base_offset`` is 0 for all that
takes them), and the physical offsets beside them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rocketlens import limits
from rocketlens.formats.commitlog_record import HEADS, MIN_RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HEAD = HEADS[0]


class PulledRows(NamedTuple):
    """Rows of pulled records; see the module for their offsets."""

    content: "npt.NDArray[np.uint8]"
    rows: "npt.NDArray[np.void]"
    physical_offsets: "npt.NDArray[np.int64]"

    def of(self, chosen: "npt.NDArray[np.bool_]") -> "PulledRows":
        """Return the rows for which ``chosen`` is true."""
        if chosen.all():
            return self
        return PulledRows(self.content, self.rows[chosen], self.physical_offsets[chosen])


def scan_pulled(bodies: Sequence[bytes], most: int) -> PulledRows:
    """Return the records of pulls in their order, ``most`` of them at most.

    A body is read up to the first bytes that are not a record. Checksums are not read. Takes the
    memory of the bodies once more, and 150 bytes for each of ``most``. O(records), and quick where
    they follow one another in the log, too.
    """
    import numpy as np

    from rocketlens.formats.compiled import kernels

    content = np.frombuffer(b"".join(bodies), np.uint8)
    most = min(most, len(content) // MIN_RECORD_BYTES)
    rows = np.empty(most, kernels.RECORD_DTYPE)
    physical_offsets = np.empty(most, np.int64)
    count = position = end = 0
    for body in bodies:
        position, end = end, end + len(body)
        while end - position >= MIN_RECORD_BYTES and count < most:
            field = position + _HEAD.offsets["physical_offset"]
            base = int.from_bytes(content[field : field + 8].tobytes(), "big")
            if base > limits.MAX_PHYSICAL_OFFSET:
                break
            rest = content[position:end]
            scanned = kernels.scan_records(rest, base, 0, len(rest), rows[count:])
            if not scanned.count:
                break
            stop = count + scanned.count
            physical_offsets[count:stop] = rows["physical_offset"][count:stop]
            rows["physical_offset"][count:stop] += position - base
            count, position = stop, position + scanned.next_position
    return PulledRows(content, rows[:count], physical_offsets[:count])

"""Distinguishes a record torn by a power failure from one that only looks odd.

A machine that loses power may leave any of the sectors of a record that were not synced, and the
others as they were before: zeros, for a log is written into zeros. A record whose size and magic
are there can then lack

* a part of its head or one of its lengths: then its lengths do not add up to its size;
* a part of its body: then that has not its checksum;
* a part of its topic or its properties, which no checksum covers: then those end in zeros where a
  sector ends, and nothing is written after them in that sector. Whatever else their text may be
  (bytes that are not UTF-8, names without a value, nothing between two separators), a client sent
  it: RocketMQ stores what it is given.

So the last is what :func:`lacks_a_sector` looks for. Properties may truly have zero bytes there,
in which case the bytes alone cannot tell. A broker of this project therefore syncs ``synced``,
too, before it acknowledges a message with a zero byte in its properties: what was acknowledged is
never after the synced position, where this question is asked.

Apart from `recovery`, which asks it: bytes in, an answer out, and a page of reasons.
"""

from typing import Final

SECTOR_BYTES: Final = 512
"""Bytes that a disk writes whole or not at all; it may be a multiple."""


def lacks_a_sector(segment: memoryview, start: int, stop: int) -> bool:
    """Return whether bytes ``start .. stop - 1`` of a segment may lack a sector.

    They do when they end in a zero byte in one of their sectors, and the rest of it is zeros, too.
    """
    position = start
    while position < stop:
        sector_end = position - position % SECTOR_BYTES + SECTOR_BYTES
        part_end = min(stop, sector_end)
        if not segment[part_end - 1] and not any(segment[part_end:sector_end]):
            return True
        position = sector_end
    return False

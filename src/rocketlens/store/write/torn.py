"""Detects records that a power failure has torn.

A power failure can lose any sectors of a record that were not synced. They are zeros then, because
a log is written into zeros. A record with a size and a magic can lack

* a part of its head or one of its lengths: its lengths do not add up to its size;
* a part of its body: the checksum is wrong;
* a part of its topic or properties, which have no checksum: they end in zeros at the end of a
  sector, and nothing is written after them in that sector. Any other odd text (bytes that are not
  UTF-8, names without a value, empty properties) comes from a client: RocketMQ stores it as it is.

:func:`lacks_a_sector` detects the third case. But properties can really have zero bytes there. So a
RocketLens broker syncs the file ``synced``, too, before it acknowledges a message with a zero byte
in its properties. Recovery checks only records after the synced position, so it never takes an
acknowledged message for a torn one.
"""

from typing import Final

SECTOR_BYTES: Final = 512
"""Bytes that a disk writes atomically. Some disks write a multiple."""


def lacks_a_sector(segment: memoryview, start: int, stop: int) -> bool:
    """Return whether bytes ``start .. stop - 1`` of a segment may lack a sector.

    They may if their last byte in a sector is zero, and so are all bytes after it in that sector.
    """
    position = start
    while position < stop:
        sector_end = position - position % SECTOR_BYTES + SECTOR_BYTES
        part_end = min(stop, sector_end)
        if not segment[part_end - 1] and not any(segment[part_end:sector_end]):
            return True
        position = sector_end
    return False

"""The checkpoint file: the store times and offsets up to which a store was flushed.

4096 bytes, the fields first, zeros after. All integers are big-endian and signed; 0 if never set.

======  =====  ========================  ======================================================
offset  type   field                     notes
======  =====  ========================  ======================================================
0       i64    physic_msg_timestamp_ms   store time of the last flushed commit log record
8       i64    logics_msg_timestamp_ms   the same for the consume queues
16      i64    index_msg_timestamp_ms    end of the last full index file
24      i64    master_flushed_offset     RocketMQ 5
32      i64    confirm_physical_offset   RocketMQ 5
40      i64    logics_physical_offset    RocketMQ 5
======  =====  ========================  ======================================================

Source: ``StoreCheckpoint``.
"""

from typing import Final, NamedTuple

from rocketlens.errors import CheckpointError
from rocketlens.formats.layout import Layout
from rocketlens.model.message import I64

CHECKPOINT_BYTES: Final = 4096


class Checkpoint(NamedTuple):
    """The fields in file order; times in epoch milliseconds."""

    physic_msg_timestamp_ms: I64 = 0
    logics_msg_timestamp_ms: I64 = 0
    index_msg_timestamp_ms: I64 = 0
    master_flushed_offset: I64 = 0
    confirm_physical_offset: I64 = 0
    logics_physical_offset: I64 = 0

    def encode(self) -> bytes:
        return FIELDS.pack(*self).ljust(CHECKPOINT_BYTES, b"\0")


FIELDS: Final = Layout.of(Checkpoint).struct


def decode(content: bytes | memoryview) -> Checkpoint:
    """Read the fields; raise CheckpointError if there are too few bytes."""
    if len(content) < FIELDS.size:
        raise CheckpointError(f"checkpoint has {len(content)} bytes, its fields need {FIELDS.size}")
    return Checkpoint(*FIELDS.unpack_from(content))

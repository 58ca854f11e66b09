"""Constants of records, index files and consume queues for kernels; C gets them as literals.

``packaging/kernels.py`` writes them to a ``.pxd``: names in capitals that are numbers, bytes or
tuples of numbers, and each tuple of fields as a struct.
"""

from typing import Final

from rocketlens.formats.commitlog_record import (
    CRC_PROPERTY_BYTES,
    HEADS,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT as _QUEUE_ENTRY
from rocketlens.formats.consumequeue_entry import LOWEST_TAGS_CODE
from rocketlens.formats.dledger import BLANK_MAGIC, ENTRY_HEADER_BYTES, ENTRY_MAGIC
from rocketlens.formats.dledger import ENTRY_FIELDS as _DLEDGER_ENTRY
from rocketlens.formats.index_file import ENTRY_LAYOUT as _INDEX_ENTRY
from rocketlens.formats.index_file import SLOT_BYTES
from rocketlens.limits import MAX_INT, MAX_RECORD_BYTES
from rocketlens.model.rocketmq import (
    CRC_MASK,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.model.text.java import DECIMAL_ZEROS, NOT_AN_INTEGER, REPLACEMENT

ROW_FIELDS: Final = (
    ("physical_offset", "int64"),
    ("queue_offset", "int64"),
    ("store_timestamp_ms", "int64"),
    ("born_timestamp_ms", "int64"),
    ("prepared_transaction_offset", "int64"),
    ("topic_hash", "uint64"),
    ("store_size", "int32"),
    ("body_crc", "int32"),
    ("queue_id", "int32"),
    ("flag", "int32"),
    ("sys_flag", "int32"),
    ("reconsume_times", "int32"),
    ("body_start", "int32"),
    ("body_length", "int32"),
    ("topic_start", "int32"),
    ("topic_length", "int32"),
    ("properties_start", "int32"),
    ("properties_length", "int32"),
    ("unique_key_start", "int32"),
    ("unique_key_length", "int32"),
    ("keys_start", "int32"),
    ("keys_length", "int32"),
    ("tags_start", "int32"),
    ("tags_length", "int32"),
    ("tags_hash", "int32"),
    ("delay_level", "int32"),
    ("key_seed", "uint32"),
    ("store_host_start", "int32"),
)
"""A row of a scan: :data:`rocketlens.formats.compiled.rows.RECORD_DTYPE`, and ``Row`` in C."""

# Reasons for the end of a walk.
STOP: Final = 0
FULL: Final = 1
BLANK: Final = 2
END: Final = 3
BAD: Final = 4

# Offsets in a record with IPv4 hosts.
_HEAD: Final = HEADS[0]
HEAD_BYTES: Final = _HEAD.size
MAGIC: Final = _HEAD.offsets["magic"]
BODY_CRC: Final = _HEAD.offsets["body_crc"]
QUEUE_ID: Final = _HEAD.offsets["queue_id"]
FLAG: Final = _HEAD.offsets["flag"]
QUEUE_OFFSET: Final = _HEAD.offsets["queue_offset"]
PHYSICAL_OFFSET: Final = _HEAD.offsets["physical_offset"]
SYS_FLAG: Final = _HEAD.offsets["sys_flag"]
BORN_TIMESTAMP: Final = _HEAD.offsets["born_timestamp_ms"]
BORN_PORT: Final = _HEAD.offsets["born_port"]
STORE_TIMESTAMP: Final = _HEAD.offsets["store_timestamp_ms"]
STORE_HOST: Final = _HEAD.offsets["store_host"]
STORE_PORT: Final = _HEAD.offsets["store_port"]
RECONSUME_TIMES: Final = _HEAD.offsets["reconsume_times"]
PREPARED_OFFSET: Final = _HEAD.offsets["prepared_transaction_offset"]
BODY_LENGTH: Final = _HEAD.offsets["body_length"]
MORE_HOST_BYTES: Final = HOST_BYTES_V6 - HOST_BYTES_V4
LENGTH_BYTES: Final = 2
"""The size of the length of properties, and of a V2 topic's length."""

DLEDGER_SIZE: Final = _DLEDGER_ENTRY.offsets["size"]
DLEDGER_POSITION: Final = _DLEDGER_ENTRY.offsets["position"]
DLEDGER_BODY_LENGTH: Final = _DLEDGER_ENTRY.offsets["body_length"]

INDEX_ENTRY_BYTES: Final = _INDEX_ENTRY.size
INDEX_KEY_HASH: Final = _INDEX_ENTRY.offsets["key_hash"]
INDEX_OFFSET: Final = _INDEX_ENTRY.offsets["physical_offset"]
INDEX_SECONDS: Final = _INDEX_ENTRY.offsets["seconds"]
INDEX_PREVIOUS: Final = _INDEX_ENTRY.offsets["previous_entry"]
QUEUE_ENTRY_BYTES: Final = _QUEUE_ENTRY.size
QUEUE_ENTRY_OFFSET: Final = _QUEUE_ENTRY.offsets["physical_offset"]
QUEUE_ENTRY_SIZE: Final = _QUEUE_ENTRY.offsets["store_size"]
QUEUE_ENTRY_TAGS: Final = _QUEUE_ENTRY.offsets["tags_code"]

NAME_BYTE: Final = 0x01
PROPERTY_BYTE: Final = 0x02
SPACE: Final = 0x20
HASH_SIGN: Final = 0x23
ZERO_DIGIT: Final = 0x30
KEYS: Final = int.from_bytes(b"KEYS", "big")
TAGS: Final = int.from_bytes(b"TAGS", "big")
DELA: Final = int.from_bytes(b"DELA", "big")
UNIQ_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")
CRC_NAME: Final = int.from_bytes(b"__CRC32#", "little")


def _crc_tables() -> tuple[int, ...]:
    """Return the eight tables of "slicing by eight", flat: CRC of byte b followed by t zeros."""
    import zlib

    # zlib inverts before and after; the XOR gives the plain remainder.
    tables = [zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)]
    for before in range(7 * 256):
        tables.append(tables[before] >> 8 ^ tables[tables[before] & 0xFF])
    return tuple(tables)


CRC_TABLES: Final = _crc_tables()
POWERS_OF_31: Final = tuple(31**power for power in range(9))

NAME_SLOTS: Final = 32768
"""The size of the table of names of one record: properties have at most 32767 bytes, a property at
least 4 with its separators, so it is never more than a quarter full."""

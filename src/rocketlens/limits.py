"""Every bound of this package: value, unit, why, and RocketMQ's own value.

A number that comes from outside (a file, a frame, a user) is compared with one of these before it
is used to allocate, loop or recurse.
"""

from typing import Final

MAX_TIMESTAMP_MS: Final = 2**63 - 1
"""End of a time range that has none, in milliseconds. RocketMQ: Long.MAX_VALUE."""

RECORD_BYTES: Final = 512 * 1024 * 1024
"""Largest record that is believed, in bytes.

A size word above it is damage, not a message. RocketMQ: maxMessageSize (default 4 MiB) + 64 KiB,
but brokers are configured far above that, and the segment's own end bounds it again.
"""

BODY_BYTES: Final = 512 * 1024 * 1024
"""Largest body after decompression, in bytes; more is an error, not memory.

RocketMQ does not bound it (zlib alone expands 1,028 times).
"""

PROPERTIES_BYTES: Final = 32_767
"""Largest property string of a record, in bytes: its length is a signed 16-bit field."""

KEY_BYTES: Final = PROPERTIES_BYTES
"""Longest key that a record can hold, in UTF-8 bytes."""

TOPIC_CHARACTERS: Final = 255
"""Longest topic name. RocketMQ: 127, and 255 for retry and dead-letter topics."""

DEFAULT_QUERY_MESSAGES: Final = 64
"""Messages returned by ``query_message`` unless asked otherwise. RocketMQ: at most 64."""

ANSWER_BYTES: Final = 1024 * 1024 * 1024
"""Bodies held by one answer, in bytes; the newest messages are kept and the answer says so."""

INDEX_CHECK_BYTES: Final = 48 * 1024 * 1024
"""Index files of at most this many used bytes together are checked whole before they are used.

Checking costs about 10 ms per MiB. Larger ones are checked along each path that a look-up walks.
RocketMQ checks nothing.
"""

CHAIN_WITNESSES: Final = 16
"""Entries of other keys on a chain that are compared with the log on a look-up, at most."""

DAMAGE_REPORTS: Final = 1_000
"""Damaged places named one by one in an answer or report; the rest are counted."""

UNWRITTEN_SEARCH_BYTES: Final = 8 * 1024 * 1024
"""How far behind unwritten bytes a lost record is looked for, in bytes.

Twice RocketMQ's largest record; farther only where the file system knows of written bytes.
"""

INTERPRETED_SCAN_BYTES: Final = 256 * 1024
"""Log up to this long is walked without the compiled kernels, which take 0.3 s to load."""

TAIL_ENTRIES: Final = 32_000_000
"""Index entries that are kept in memory for log that no index file covers (12 bytes each).

What is beyond is read again by each query. RocketMQ answers nothing for such log.
"""

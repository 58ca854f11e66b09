"""Constants of the requests that kernels read and answer; C gets them as literals.

See :mod:`rocketlens.formats.compiled.record_constants`. A request's header is read into scratch:
start and length of each field, then its numbers. The protocol's names are passed as cells of
`NAME_BYTES`, whose first byte is the length.
"""

from typing import Final

from rocketlens.formats.batch_body import BODY_LENGTH_AT as MEMBER_BODY_LENGTH_AT
from rocketlens.formats.batch_body import FLAG_AT as MEMBER_FLAG_AT
from rocketlens.formats.batch_body import HEAD_BYTES as MEMBER_HEAD_BYTES
from rocketlens.formats.batch_body import MIN_MEMBER_BYTES, PROPERTIES_LENGTH_BYTES
from rocketlens.formats.commitlog_record import HEADS, HOST_BITS, HOST_BYTES_V4, MAX_TOPIC_BYTES_V1
from rocketlens.limits import (
    MAX_FRAME_BYTES,
    MAX_INT,
    MAX_PROPERTIES_BYTES,
    MAX_REQUEST_HEADER_BYTES,
    MAX_RUN_KEY_BYTES,
    MAX_RUN_MESSAGES,
    MAX_RUN_PROPERTIES,
)

NAME_BYTES: Final = 32
# Members of a JSON header, the fields of a send (short and long), and properties, in `names`.
CODE, EXT_FIELDS, FLAGS, LANGUAGE, OPAQUES, REMARK, SERIALIZE_TYPE, VERSION, MEMBER_COUNT = range(9)
FIELD_COUNT: Final = 16
F_TOPIC, F_QUEUE_ID, F_SYS_FLAG, F_BORN, F_FLAG, F_PROPERTIES, F_RECONSUMED = 1, 4, 5, 6, 7, 8, 9
F_BATCH, F_USER, F_SIGNATURE = 11, 14, 15
"""User and signature of access control are the last fields."""

# Settings of a broker; the last ones are the fields of a short and of a long send in the order in
# which their values are signed.
MAX_HEADER, MAX_FRAME, MAX_BODY, SHORT_CODE, LONG_CODE, OWN_BYTES, SPECIAL_COUNT = range(7)
IS_SIGNED, IS_WAITED_FOR, SHORT_ORDER = 7, 8, 9
SIGNED_COUNT: Final = FIELD_COUNT - 1
LONG_ORDER: Final = SHORT_ORDER + SIGNED_COUNT
ANY_TEXTS: Final = LONG_ORDER + SIGNED_COUNT
"""A bit for each field that can be any text in JSON, and `OTHER_FIELDS` if there can be others."""
OTHER_FIELDS: Final = 1 << FIELD_COUNT
SETTING_COUNT: Final = ANY_TEXTS + 1
SHORT_NAMES: Final = MEMBER_COUNT
LONG_NAMES: Final = SHORT_NAMES + FIELD_COUNT
SPECIAL_NAMES: Final = LONG_NAMES + FIELD_COUNT
"""UNIQ_KEY, TAGS, WAIT, and properties that make a message not plain."""

# Scratch.
NUMBERS: Final = 2 * FIELD_COUNT
IS_ESCAPED: Final = NUMBERS + MEMBER_COUNT
FIELDS_START, OTHER_COUNT, OTHER_NAMES = range(IS_ESCAPED + 1, IS_ESCAPED + 4)
MAX_OTHER_NAMES: Final = 16
HEADER_SCRATCH: Final = OTHER_NAMES + 2 * MAX_OTHER_NAMES
UNIQUE_START, UNIQUE_BYTES, SENT_TAGS_CODE, SENT_BYTES = range(HEADER_SCRATCH, HEADER_SCRATCH + 4)
CUTS: Final = HEADER_SCRATCH + 4
CUT_NUMBERS: Final = 4
"""For each property: start, length, length of its name, bucket of Java's ``HashMap``."""
SCRATCH_COUNT: Final = CUTS + CUT_NUMBERS * MAX_RUN_PROPERTIES

NONE: Final = -1
NOT_KNOWN: Final = -2
IS_NULL: Final = -2
"""The length of a field that is null in JSON: it counts as absent, and must not be repeated."""
NO_NUMBER: Final = -(2**63)

# Columns of the messages of a run: column c of message n is columns[c * MAX_RUN_MESSAGES + n].
OPAQUE, IS_ONE_WAY, ROW, SYS_FLAG, BORN, FLAG, RECONSUMED, TEXT, TEXT_BYTES = range(9)
KEY, KEY_BYTES, TAGS_CODE, BODY, BODY_BYTES, RECORD, RECORD_BYTES = range(9, 16)
# Only if access control checks requests.
SEND_CODE, USER, USER_BYTES, SIGNATURE, SIGNATURE_BYTES, SIGNED, SIGNED_BYTES = range(16, 23)
COLUMN_COUNT: Final = 23

# Numbers of a known queue: rows[row * ROW_NUMBERS + n].
TOPIC, TOPIC_BYTES, QUEUE_ID, MORE_FLAGS, NEXT_OFFSET, ROOM, COUNT, AT, ROW_NUMBERS = range(9)

# Reasons for the end of a run.
LIMIT, INCOMPLETE, NOT_PLAIN, UNKNOWN = range(4)

LENGTH_BYTES: Final = 4
PREFIX_BYTES: Final = 8
BINARY_HEAD: Final = 21
ONE_WAY: Final = 2
FORBIDDEN_FLAGS: Final = 0xC
"""Transactions: their messages are not plain."""
SPACE, LAST_PRINTABLE, QUOTE, BACKSLASH, SLASH = 0x20, 0x7E, 0x22, 0x5C, 0x2F
ZERO_DIGIT, NINE_DIGIT, LAST_ASCII = 0x30, 0x39, 0x7F
LOWER_A, LOWER_E, LOWER_N, LOWER_U = 0x61, 0x65, 0x6E, 0x75
BLANKS: Final = 1 << 0x20 | 1 << 0x09 | 1 << 0x0A | 1 << 0x0D
"""A bit for each byte that is allowed between the parts of JSON."""
ESCAPES: Final = b"bfnrt"
ESCAPED: Final = b"\b\f\n\r\t"
ESCAPE_COUNT: Final = len(ESCAPES)
MAX_PLAIN_DIGITS: Final = 18
COMMA, COLON, OPEN, CLOSE, MINUS, PLUS, POINT = 0x2C, 0x3A, 0x7B, 0x7D, 0x2D, 0x2B, 0x2E
OPEN_LIST, MAX_JSON_DEPTH = 0x5B, 64
NAME_END, PROPERTY_END = 1, 2
TRUE, NULL_WORD, FALSE_WORD = (int.from_bytes(word, "big") for word in (b"true", b"null", b"fals"))
TAGS: Final = int.from_bytes(b"TAGS", "big")
DELAY_START: Final = ord("D")
DELAY_REST: Final = int.from_bytes(b"ELAY", "big")
DELAY_BYTES: Final = 5

REPLY_BYTES: Final = 1024
"""Room for one reply."""
HOSTLESS_HEAD_BYTES: Final = HEADS[0].size - 2 * HOST_BYTES_V4
"""Fixed fields of a record without the two hosts."""
BORN_HOST_AT: Final = HEADS[0].offsets["born_host"]
NO_HOST_BITS: Final = ~HOST_BITS

"""Constants of the look-ups that kernels answer; C gets them as literals: see
``record_constants``.
"""

from typing import Final

from rocketlens.formats.compiled.request_constants import (
    CODE,
    HEADER_SCRATCH,
    LONG_CODE,
    NUMBERS,
    OPAQUES,
)
from rocketlens.formats.index_file import HEADER_BYTES, HEADER_LAYOUT
from rocketlens.limits import (
    MAX_KEY_BYTES,
    MAX_LOOP_CANDIDATES,
    MAX_LOOP_NEW_BYTES,
    MAX_TOPIC_CHARACTERS,
)

# Numbers of an index file.
SLOT_COUNT, ENTRY_COUNT, LAST_ENTRY, NEXT_ENTRY, BEGIN_OFFSET, END_OFFSET, ARE_COUNTED = range(7)
"""``ARE_COUNTED``: 1 if its slots were counted."""
FILE_NUMBERS: Final = 7
NEXT_ENTRY_AT: Final = HEADER_LAYOUT.offsets["next_entry"]
PAGE_BYTES: Final = 4096

CANDIDATE_ROOM: Final = 4 * MAX_LOOP_CANDIDATES
"""Room for offsets; after them is room for as many sizes."""

# Fields of a query, and of a view, in the order of their names.
Q_TOPIC, Q_KEY, Q_MAX_NUM, Q_BEGIN, Q_END, Q_IS_UNIQUE, Q_TYPE, Q_LAST_KEY = range(8)
V_OFFSET, V_TOPIC = range(2)

# Numbers of a request, after those of its header.
OPAQUE: Final = NUMBERS + OPAQUES
REQUEST_CODE: Final = NUMBERS + CODE
HASH, MAX_NUM, BEGIN, END, IS_UNIQUE_QUERY, IS_UNIQUE, OFFSET = range(
    HEADER_SCRATCH, HEADER_SCRATCH + 7
)
QUEUE_ID, QUEUE_OFFSET, TOPIC_START, TOPIC_BYTES = range(OFFSET + 1, OFFSET + 5)
"""Of the viewed record; ``TOPIC_START`` is relative to its start."""
REQUEST_NUMBERS: Final = TOPIC_BYTES + 1

OTHER_TIME: Final = -1
SPARE: Final = 8
"""Candidates beyond the wanted number: an offset can come from memory and from a file."""

# The sources of a look-up: see `answer`.
RUN_TOTAL, FILE_TOTAL, SEGMENT_TOTAL, INDEXED_TO, FIRST_ROW = range(5)
ROW_NUMBERS: Final = 4
ADDRESS, LENGTH, IS_SORTED, WINDOW_BEGIN = range(ROW_NUMBERS)
FILE_NUMBERS_AT, SEGMENT_BEGIN = WINDOW_BEGIN, WINDOW_BEGIN

# Settings after those of a header: the maximum number of messages of a query by unique key, and of
# any query, and the lengths of the parts of replies' headers. Between the parts for a query are
# time and offset of the last record, and the opaque; between those for a view the opaque.
UNIQUE_NUM, QUERY_NUM = LONG_CODE + 1, LONG_CODE + 2
QUERY_PARTS, QUERY_PART_COUNT = QUERY_NUM + 1, 4
VIEW_PARTS, VIEW_PART_COUNT = QUERY_PARTS + QUERY_PART_COUNT, 2
# Further numbers of a request: the end of its frame, the length of its reply, and the numbers in
# the reply's header.
FRAME_END, REPLY_LENGTH = REQUEST_NUMBERS, REQUEST_NUMBERS + 1
HEAD_NUMBERS: Final = REPLY_LENGTH + 1
ANSWER_NUMBERS: Final = HEAD_NUMBERS + QUERY_PART_COUNT - 1

# Outcomes of a request.
NOT_PLAIN, ANSWERED, UNPROVEN, UNUSUAL, BEHIND = 0, 1, 2, -1, -2
"""`UNPROVEN`: the reply was written, but a queue entry must confirm the record. `BEHIND`: the
sources lack too much of the log. `UNUSUAL`: the definition in Python must answer."""

KEYS_NAME: Final = b"KEYS\x01"
UNIQUE_KEY_NAME: Final = b"UNIQ_KEY\x01"
TRUE_TEXT: Final = b"true"
FALSE_TEXT: Final = b"false"
KEY_TYPE, UNIQUE_TYPE = ord("K"), ord("U")

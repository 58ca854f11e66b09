"""Constants of the pulls that kernels read; C gets them as literals: see ``record_constants``."""

from typing import Final

from rocketlens.formats.compiled.request_constants import (
    F_PROPERTIES,
    HEADER_SCRATCH,
    NUMBERS,
    OPAQUES,
)
from rocketlens.limits import MAX_INT

# Fields of a pull, in the order of their names: numbers, then texts, then fields that are ignored.
QUEUE_ID, QUEUE_OFFSET, MAX_NUMS, SYS_FLAG, COMMIT_OFFSET, SUSPEND_MS = range(6)
SUB_VERSION, MAX_BYTES, NUMBER_COUNT = range(6, 9)
NO_FIELD: Final = F_PROPERTIES
"""The only field that can have escapes in JSON; a pull has no field of this number."""
GROUP, TOPIC, SUBSCRIPTION, EXPRESSION_TYPE, TEXT_STOP = range(NO_FIELD + 1, NO_FIELD + 6)

OPAQUE: Final = NUMBERS + OPAQUES
VALUES: Final = HEADER_SCRATCH
"""The position of the values of the first fields in the numbers of a request. Start and length of
each text follow them."""
SLICES: Final = VALUES + NUMBER_COUNT
REQUEST_NUMBERS: Final = SLICES + 2 * (TEXT_STOP - GROUP)

LAST_NEEDED: Final = SYS_FLAG
LONG_FIELDS: Final = 1 << QUEUE_OFFSET | 1 << COMMIT_OFFSET | 1 << SUSPEND_MS | 1 << SUB_VERSION

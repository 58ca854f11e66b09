"""The compiled reading of a pull's request, in either header.

What is not written as RocketMQ's clients write it is left to :mod:`rocketlens.wire`, which is the
definition.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    device,
    kernel,
    raw,
)
from rocketlens.formats.compiled.kernels_look_up import is_printable, long_in
from rocketlens.formats.compiled.kernels_send_header import (
    F_PROPERTIES,
    FLAGS,
    HEADER_SCRATCH,
    NO_NUMBER,
    NUMBERS,
    OPAQUES,
    Numbers,
    read_header,
)
from rocketlens.formats.compiled.kernels_send_parse import frame_at
from rocketlens.limits import MAX_INT

INLINED: Final = "60761d4ced0227f4"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

# Fields of a pull, in the order of their names: numbers, then texts, then what is not read.
QUEUE_ID, QUEUE_OFFSET, MAX_NUMS, SYS_FLAG, COMMIT_OFFSET, SUSPEND_MS = range(6)
SUB_VERSION, MAX_BYTES, NUMBER_COUNT = range(6, 9)
NO_FIELD: Final = F_PROPERTIES
"""The only field that may have escapes in JSON; a pull has none of this number."""
GROUP, TOPIC, SUBSCRIPTION, EXPRESSION_TYPE, TEXT_STOP = range(NO_FIELD + 1, NO_FIELD + 6)

OPAQUE: Final = NUMBERS + OPAQUES
VALUES: Final = HEADER_SCRATCH
"""Where the values of the first fields begin, in the numbers of a request. Start and length of each
text follow them.
"""
SLICES: Final = VALUES + NUMBER_COUNT
REQUEST_NUMBERS: Final = SLICES + 2 * (TEXT_STOP - GROUP)

_PREFIX_BYTES: Final = 8
_LAST_NEEDED: Final = SYS_FLAG
_IS_LONG: Final = 1 << QUEUE_OFFSET | 1 << COMMIT_OFFSET | 1 << SUSPEND_MS | 1 << SUB_VERSION


@device
def read_fields(buffer: ByteArray, numbers: Numbers) -> bool:
    """Read the numbers of a pull, and check its texts; return False if it is not plain."""
    for field in range(NUMBER_COUNT):
        length = numbers[2 * field + 1]
        value = 0
        if length >= 0 or field <= _LAST_NEEDED:
            value = long_in(buffer, numbers[2 * field], length)
        is_short = _IS_LONG >> field & 1 == 0
        if value == NO_NUMBER or (is_short and (value > MAX_INT or value < -MAX_INT - 1)):
            return False
        numbers[VALUES + field] = value
    for field in range(GROUP, TEXT_STOP):
        length = numbers[2 * field + 1]
        if field <= TOPIC and length < 1:
            return False
        if not is_printable(buffer, numbers[2 * field], length):
            return False
        numbers[SLICES + 2 * (field - GROUP)] = numbers[2 * field]
        numbers[SLICES + 2 * (field - GROUP) + 1] = length
    return True


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, NUMBER, BYTES, INT64S, INT64S)
def read_request(
    frames: ByteArray,
    position: int,
    length: int,
    names: ByteArray,
    settings: Numbers,
    numbers: Numbers,
) -> int:
    """Read the pull at ``position`` of the first ``length`` bytes of ``frames``.

    Returns where its frame ends, 0 if it is not plain. ``settings`` are those of a header's, with
    the two codes of pulls.
    """
    if length > len(frames):
        return 0
    buffer, cells, bounds, out = raw(frames), raw(names), raw(settings), raw(numbers)
    codec, header_end, end = frame_at(buffer, position, length, bounds)
    if codec < 0:
        return 0
    if not read_header(buffer, codec, position + _PREFIX_BYTES, header_end, cells, bounds, out):
        return 0
    if out[NUMBERS + FLAGS] != 0 or not read_fields(buffer, out):
        return 0
    return end

"""CBOR, by the library cbor2 (extra ``decode``)."""

import io
import re
from typing import Any, Final

from rocketlens import limits
from rocketlens.decode.tree import Tree, tree_of
from rocketlens.errors import BodyError
from rocketlens.model.installation import install_command

MAGIC: Final = b"\xd9\xd9\xf7"
TAG: Final = "@tag"


def read_cbor(body: bytes) -> Tree:
    """Return the value of a body; a tag without a meaning as ``{"@tag": number, "value": ...}``.

    :raises BodyError: when it is not CBOR to its last byte, is larger than the bounds, or the
        library is not installed.
    """
    try:
        import cbor2
    except ImportError as error:
        raise BodyError(f"CBOR needs a package: {install_command('decode')}") from error

    def other(value: Any) -> Tree:
        if isinstance(value, cbor2.CBORTag):
            return {TAG: value.tag, "value": value.value}
        if isinstance(value, cbor2.CBORSimpleValue):
            return {"@simple": value.value}
        if value is cbor2.undefined:
            return None
        return value.pattern if isinstance(value, re.Pattern) else str(value)

    stream = io.BytesIO(body)
    try:
        value = cbor2.CBORDecoder(stream, max_depth=limits.MAX_DECODED_LEVELS).decode()
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        raise BodyError(f"it is not CBOR: {error}") from error
    if rest := len(body) - stream.tell():
        raise BodyError(f"{rest} bytes are left behind its end")
    return tree_of(value, other)


def may_be_cbor(body: bytes) -> bool:
    """Return whether the first byte is that of a map or an array, or the magic of CBOR is there."""
    return body.startswith(MAGIC) or (
        bool(body)
        and (0x80 <= body[0] <= 0x9B or 0xA0 <= body[0] <= 0xBB or body[0] in b"\x9f\xbf")
    )

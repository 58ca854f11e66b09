"""MessagePack, by the library msgpack (extra ``decode``)."""

from typing import Any, Final

from rocketlens import limits
from rocketlens.decode.tree import Tree, tree_of
from rocketlens.errors import BodyError
from rocketlens.model.installation import install_command

EXTENSION: Final = "@ext"


def read_messagepack(body: bytes) -> Tree:
    """Return the value of a body; an extension type as ``{"@ext": its number, "data": bytes}``.

    :raises BodyError: when it is not MessagePack to its last byte, is larger than the bounds, or
        the library is not installed.
    """
    try:
        import msgpack
    except ImportError as error:
        raise BodyError(f"MessagePack needs a package: {install_command('decode')}") from error

    def other(value: Any) -> Tree:
        if isinstance(value, msgpack.ExtType):
            return {EXTENSION: value.code, "data": value.data}
        return str(value)

    try:
        value = msgpack.unpackb(
            body,
            strict_map_key=False,
            timestamp=3,
            unicode_errors="surrogateescape",
            # Arrays are made as long as they say they are, before their first element is read.
            max_array_len=limits.MAX_DECODED_VALUES,
            max_map_len=limits.MAX_DECODED_VALUES,
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise BodyError(f"it is not MessagePack: {error!r:.100}") from error
    return tree_of(value, other)


def may_be_messagepack(body: bytes) -> bool:
    """Return whether the first byte is that of a map or an array."""
    return bool(body) and (0x80 <= body[0] < 0xA0 or 0xDC <= body[0] < 0xE0)

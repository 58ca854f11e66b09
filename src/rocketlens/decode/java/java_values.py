"""Values of Java, as Hessian and Java's own serialization both have them."""

from datetime import UTC, datetime, timedelta
from typing import Final

from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def java_text(units: bytes) -> str:
    """Return text whose surrogates are stored one by one, each as three bytes.

    One without its other stays alone.

    :raises BodyError: when the bytes are not such text.
    """
    try:
        text = units.decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BodyError(f"text that is not UTF-8: {error}") from error


def java_date(epoch_ms: int) -> Tree:
    """Return a time of Java; as milliseconds where Python has no such year."""
    try:
        return EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return epoch_ms

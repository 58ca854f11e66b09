"""A command as a whole: its code and the headers of its request and response."""

from typing import Any, Final, Generic, TypeVar

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import HeaderCodec, declare

Q = TypeVar("Q")
A = TypeVar("A")


@declare()
class NoFields:
    """The header of a command that has none."""


class Command(Generic[Q, A]):
    """One request code with the codecs of its headers.

    ``since`` is the first release that knows it, as a version number, 0 for all. What its bodies
    are is said beside its headers.
    """

    __slots__ = ("code", "request", "response", "since")

    def __init__(
        self,
        code: RequestCode,
        request: type[Q],
        response: type[A],
        *,
        short: bool = False,
        since: int = 0,
    ) -> None:
        self.code: Final = code
        self.request: Final = HeaderCodec(request, short=short)
        self.response: Final = HeaderCodec(response)
        self.since: Final = since

    def __repr__(self) -> str:
        return f"Command({self.code.name})"


AnyCommand = Command[Any, Any]

"""One command of the protocol, as both header codecs read and write it."""

from typing import Final, NamedTuple

from rocketlens.wire.codes import V5_5_0, LanguageCode

RESPONSE_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2

NO_EXT_FIELDS: Final[dict[str, str]] = {}
"""Shared by all commands without fields; must not be changed."""

OUR_LANGUAGE: Final = LanguageCode.PYTHON
OUR_VERSION: Final = V5_5_0


class RemotingCommand(NamedTuple):
    """A request or a response.

    A named tuple, because a broker builds two for each message, and a frozen dataclass of this size
    takes five times as long to build.

    ``code`` is a request code or a response code (an int, since it can be unknown). The requesting
    end chooses ``opaque``, unique among its waiting requests, and the answer repeats it.
    ``ext_fields`` is the command's own header, as text (shared: change it only where you created
    it). ``body`` can be empty.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = NO_EXT_FIELDS
    body: bytes = b""
    language: LanguageCode = OUR_LANGUAGE
    version: int = OUR_VERSION

    @property
    def is_one_way(self) -> bool:
        """True for a request that must not be answered."""
        return self.flag & ONE_WAY_FLAG != 0

"""The two identifiers that RocketMQ calls a message id.

Offset message id, made by the broker: where the record is.

======  ====  ==================================================
offset  size  field (all big endian, the whole in upper-case hex)
======  ====  ==================================================
0       4/16  store host address, IPv4 or IPv6
4/16    4     store host port
8/20    8     physical offset
======  ====  ==================================================

Unique key, made by the producer (property ``UNIQ_KEY``): who sent it and when. It stays the same
when a send is retried or a message is sent again, so several records can carry it.

======  ====  ==================================================
offset  size  field (all big endian, the whole in upper-case hex)
======  ====  ==================================================
0       4/16  producer host address, IPv4 or IPv6
4/16    2     low 16 bits of the process id
6/18    4     hash of the class loader, or any number per client
10/22   4     milliseconds since the month began, unsigned
14/26   2     counter
======  ====  ==================================================

Both are 32 characters with IPv4 and 56 with IPv6, so the text alone does not tell which it is.
Source: ``MessageDecoder.createMessageId``, ``MessageClientIDSetter``.
"""

import binascii
import struct
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, Self

from msgspec import Struct

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host

NOT_IN_LOG: Final = -1
"""The physical offset of a record if where it is in the commit log is not known."""
_OFFSET_TAIL = struct.Struct(">iq")
_UNIQUE_TAIL = struct.Struct(">HIIH")
_ADDRESS_BYTES = {32: 4, 56: 16}
_LIKE_DIGITS: Final = {"O": "0", "o": "0", "l": "1", "I": "1", "i": "1"}
"""Letters that are typed for digits which look like them."""
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_HEX_LETTERS: Final = frozenset("abcdefABCDEF")
_CLOCK_SET_BACK_MS = 1_000_000
"""How far a producer's clock may fall behind the month it counts from, and count as its start."""


@lru_cache(maxsize=1024)
def pack_address(address: str) -> bytes:
    """Return the 4 or 16 bytes of an IPv4 or IPv6 address.

    Kept for the addresses seen last: a store has few, and each message has two.

    :raises BadInput: when it is neither.
    """
    from ipaddress import ip_address

    try:
        return ip_address(address).packed
    except ValueError as error:
        message = f"{address!r} is not an IPv4 or IPv6 address"
        raise BadInput(message) from error


@lru_cache(maxsize=1024)
def address_text(packed: bytes) -> str:
    """Return the usual text of 4 or 16 address bytes. Kept as above."""
    if len(packed) == 4:
        return "{}.{}.{}.{}".format(*packed)
    from ipaddress import IPv6Address

    return str(IPv6Address(packed))


def _unhex(text: str, what: str) -> tuple[bytes, int]:
    """Return the bytes of an id and the length of its address part."""
    length = _ADDRESS_BYTES.get(len(text))
    if length is None:
        message = f"{text[:60]!r} is not {what}: it has 32 hex digits (IPv4) or 56 (IPv6)"
        raise BadInput(message)
    try:
        return binascii.unhexlify(text), length
    except (binascii.Error, ValueError) as error:
        message = f"{text!r} is not {what}: it has characters that are no hex digits"
        raise BadInput(message) from error


class OffsetMessageId(Struct, frozen=True):
    """A broker's store host and a physical offset in its commit log."""

    store_host: Host
    physical_offset: int

    def encode(self) -> str:
        """Return the upper-case hex form, 32 or 56 characters.

        :raises BadInput: when a part does not fit its field: what :meth:`decode` would refuse.
        """
        return _offset_msg_id(self.store_host, self.physical_offset)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read the hex form, either case.

        :raises BadInput: unless it is 32 or 56 hex digits, with a port of at most 65535 and an
            offset that is not negative. A unique key read this way nearly always has a port that
            is too large.
        """
        raw, address_length = _unhex(text, "an offset message id")
        port, physical_offset = _OFFSET_TAIL.unpack_from(raw, address_length)
        if not 0 <= port <= limits.MAX_PORT:
            message = f"{text!r} is not an offset message id: its port would be {port}"
            raise BadInput(message)
        if physical_offset < 0:
            message = f"{text!r} is not an offset message id: its offset would be negative"
            raise BadInput(message)
        return cls(Host(address_text(raw[:address_length]), port), physical_offset)


def offset_msg_id_of(store_host: Host, physical_offset: int) -> str:
    """Return the hex form of an offset message id; empty for `NOT_IN_LOG`.

    :raises BadInput: as `OffsetMessageId.encode`.
    """
    return "" if physical_offset == NOT_IN_LOG else _offset_msg_id(store_host, physical_offset)


def _offset_msg_id(store_host: Host, physical_offset: int) -> str:
    address, port = store_host
    if not 0 <= port <= limits.MAX_PORT:
        message = f"{port} is no port: it is 0 .. {limits.MAX_PORT}"
        raise BadInput(message)
    if not 0 <= physical_offset <= limits.MAX_LONG:
        message = f"{physical_offset} is no physical offset: it is 0 .. {limits.MAX_LONG}"
        raise BadInput(message)
    return (pack_address(address) + _OFFSET_TAIL.pack(port, physical_offset)).hex().upper()


class UniqueKey(Struct, frozen=True):
    """The parts of a producer-made unique key.

    ``month_millis`` counts from the first day of the producer's month in the producer's zone,
    modulo 2**32 (a month is shorter than that).
    """

    address: str
    process_number: int
    client_hash: int
    month_millis: int
    counter: int

    @classmethod
    def at(
        cls,
        now_ms: int,
        address: str,
        *,
        process_id: int,
        client_hash: int,
        counter: int,
        zone: tzinfo = UTC,
        counted_from_ms: int | None = None,
    ) -> Self:
        """Return the key that a producer at ``address`` creates at ``now_ms`` (epoch milliseconds).

        Of ``process_id`` and ``counter`` the low 16 bits count, of ``client_hash`` the low 32. A
        running producer gives as ``counted_from_ms`` the :func:`month_start_ms` of ``zone`` that
        it took when the month changed, and goes on with it when its clock is set back: up to
        1,000 seconds before it then count as 0.
        """
        start_ms = month_start_ms(now_ms, zone) if counted_from_ms is None else counted_from_ms
        month_millis = (now_ms - start_ms) & 0xFFFFFFFF
        if month_millis > 2**32 - _CLOCK_SET_BACK_MS:
            month_millis = 0
        return cls(
            address, process_id & 0xFFFF, client_hash & 0xFFFFFFFF, month_millis, counter & 0xFFFF
        )

    def encode(self) -> str:
        """Return the upper-case hex form, 32 or 56 characters.

        :raises BadInput: when a part does not fit its field.
        """
        try:
            tail = _UNIQUE_TAIL.pack(
                self.process_number, self.client_hash, self.month_millis, self.counter
            )
        except struct.error as error:
            message = f"{self} is no unique key: a part does not fit its field"
            raise BadInput(message) from error
        return (pack_address(self.address) + tail).hex().upper()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read the hex form, either case.

        Any 32 or 56 hex digits are one; producers of other languages fill the parts differently.

        :raises BadInput: for any other text.
        """
        raw, address_length = _unhex(text, "a unique key")
        return cls(
            address_text(raw[:address_length]), *_UNIQUE_TAIL.unpack_from(raw, address_length)
        )

    def nearly_time_ms(self, now_ms: int, zone: tzinfo | None = UTC) -> int:
        """Guess when the key was made, in epoch milliseconds, as RocketMQ does.

        ``zone`` None is this machine's, with its changes of clocks.

        The key counts from the start of a month without saying which, so this is the latest such
        time before ``now_ms`` in months of ``zone``. It is wrong for keys more than a month old,
        producers in another zone, and producers whose clock is ahead: it is shown to people, and
        never narrows a search.
        """
        month = _month_of(now_ms, zone)
        guess = _epoch_ms(month) + self.month_millis
        if guess >= now_ms:
            last_month = (month - timedelta(days=1)).replace(day=1)
            guess = _epoch_ms(last_month) + self.month_millis
        return guess


class NearlyMessageId(NamedTuple):
    """How a text differs from a message id."""

    digit_count: int
    """Characters of the text."""
    expected_count: int
    """Characters of the id: 32 or 56."""
    letters: tuple[tuple[str, str], ...] = ()
    """Letters of the text, each with the digit that it looks like."""
    meant: str | None = None
    """The id, if it has just these digits in place of the letters."""


def nearly_message_id(text: str) -> NearlyMessageId | None:
    """Return how a text differs from a message id, if a small mistake can have made it of one.

    That is a digit too few or too many, or letters that look like digits. Decimal numbers are not
    taken for ids: every address of a host of RocketMQ in practice has a hex letter in its id.
    """
    count = len(text)
    expected = next((each for each in _ADDRESS_BYTES if abs(count - each) <= 1), None)
    if expected is None or _HEX_LETTERS.isdisjoint(text):
        return None
    mistaken = [each for each in dict.fromkeys(text) if each in _LIKE_DIGITS]
    meant = "".join(_LIKE_DIGITS.get(each, each) for each in text)
    if not _HEX_DIGITS.issuperset(meant) or bool(mistaken) != (count == expected):
        return None
    letters = tuple((each, _LIKE_DIGITS[each]) for each in mistaken)
    return NearlyMessageId(count, expected, letters, meant if mistaken else None)


def month_start_ms(now_ms: int, zone: tzinfo | None = UTC) -> int:
    """Return when the month of ``now_ms`` began in ``zone``; both in epoch milliseconds.

    ``zone`` None is this machine's.
    """
    return _epoch_ms(_month_of(now_ms, zone))


def _month_of(now_ms: int, zone: tzinfo | None) -> datetime:
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

"""The two identifiers that RocketMQ calls message id.

Offset message id, created by the broker: the location of the record.

======  ====  ==================================================
offset  size  field (all big endian, the whole in upper-case hex)
======  ====  ==================================================
0       4/16  store host address, IPv4 or IPv6
4/16    4     store host port
8/20    8     physical offset
======  ====  ==================================================

Unique key, created by the producer (property ``UNIQ_KEY``): the producer and the time. Retries and
resends keep it, so several records can have the same one.

======  ====  ==================================================
offset  size  field (all big endian, the whole in upper-case hex)
======  ====  ==================================================
0       4/16  producer host address, IPv4 or IPv6
4/16    2     low 16 bits of the process id
6/18    4     hash of the class loader, or any number per client
10/22   4     milliseconds since the month began, unsigned
14/26   2     counter
======  ====  ==================================================

Both have 32 characters with IPv4 and 56 with IPv6, so the text does not reveal the kind.
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
"""The physical offset of a record whose location in the commit log is unknown."""
_OFFSET_TAIL = struct.Struct(">iq")
_UNIQUE_TAIL = struct.Struct(">HIIH")
_ADDRESS_BYTES = {32: 4, 56: 16}
_LIKE_DIGITS: Final = {"O": "0", "o": "0", "l": "1", "I": "1", "i": "1"}
"""Letters that people type instead of similar digits."""
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_HEX_LETTERS: Final = frozenset("abcdefABCDEF")
_CLOCK_SET_BACK_MS = 1_000_000
"""Clock differences before the start of the counted month up to this count as 0."""


@lru_cache(maxsize=1024)
def pack_address(address: str) -> bytes:
    """Return the 4 or 16 bytes of an IPv4 or IPv6 address.

    Cached: a store has few addresses, and each message has two.

    :raises BadInput: if it is not an IP address.
    """
    from ipaddress import ip_address

    try:
        return ip_address(address).packed
    except ValueError as error:
        raise BadInput(f"{address!r} is not an IPv4 or IPv6 address") from error


@lru_cache(maxsize=1024)
def address_text(packed: bytes) -> str:
    """Return the usual text of 4 or 16 address bytes."""
    if len(packed) == 4:
        return "{}.{}.{}.{}".format(*packed)
    from ipaddress import IPv6Address

    return str(IPv6Address(packed))


def _unhex(text: str, what: str) -> tuple[bytes, int]:
    """Return the bytes of an id and the length of its address part."""
    length = _ADDRESS_BYTES.get(len(text))
    if length is None:
        raise BadInput(f"{text[:60]!r} is not {what}: expected 32 hex digits (IPv4) or 56 (IPv6)")
    try:
        return binascii.unhexlify(text), length
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{text!r} is not {what}: expected hex digits only") from error


class OffsetMessageId(Struct, frozen=True):
    """A broker's store host and a physical offset in its commit log."""

    store_host: Host
    physical_offset: int

    def encode(self) -> str:
        """Return 32 or 56 upper-case hex digits.

        :raises BadInput: if a part does not fit its field.
        """
        return _offset_msg_id(self.store_host, self.physical_offset)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse hex digits of either case.

        :raises BadInput: unless the text is 32 or 56 hex digits, the port is at most 65535, and the
            offset is not negative. For most unique keys, the port is too large.
        """
        raw, address_length = _unhex(text, "an offset message id")
        port, physical_offset = _OFFSET_TAIL.unpack_from(raw, address_length)
        if not 0 <= port <= limits.MAX_PORT:
            raise BadInput(f"{text!r} is not an offset message id: its port would be {port}")
        if physical_offset < 0:
            raise BadInput(f"{text!r} is not an offset message id: its offset would be negative")
        return cls(Host(address_text(raw[:address_length]), port), physical_offset)


def offset_msg_id_of(store_host: Host, physical_offset: int) -> str:
    """Return an offset message id as hex digits; empty for `NOT_IN_LOG`.

    :raises BadInput: if a part does not fit its field.
    """
    return "" if physical_offset == NOT_IN_LOG else _offset_msg_id(store_host, physical_offset)


def _offset_msg_id(store_host: Host, physical_offset: int) -> str:
    address, port = store_host
    if not 0 <= port <= limits.MAX_PORT:
        raise BadInput(f"invalid port {port}: expected 0 to {limits.MAX_PORT}")
    if not 0 <= physical_offset <= limits.MAX_LONG:
        raise BadInput(
            f"invalid physical offset {physical_offset}: expected 0 to {limits.MAX_LONG}"
        )
    return (pack_address(address) + _OFFSET_TAIL.pack(port, physical_offset)).hex().upper()


class UniqueKey(Struct, frozen=True):
    """The parts of a unique key.

    ``month_millis`` counts from the start of the producer's month in the producer's time zone.
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

        The key has the low 16 bits of ``process_id`` and ``counter``, and the low 32 bits of
        ``client_hash``. A running producer passes as ``counted_from_ms`` the :func:`month_start_ms`
        of its ``zone``, which it updates when the month changes. If its clock is set back, up to
        1,000 seconds before ``counted_from_ms`` count as 0.
        """
        start_ms = month_start_ms(now_ms, zone) if counted_from_ms is None else counted_from_ms
        month_millis = (now_ms - start_ms) & 0xFFFFFFFF
        if month_millis > 2**32 - _CLOCK_SET_BACK_MS:
            month_millis = 0
        return cls(
            address, process_id & 0xFFFF, client_hash & 0xFFFFFFFF, month_millis, counter & 0xFFFF
        )

    def encode(self) -> str:
        """Return 32 or 56 upper-case hex digits.

        :raises BadInput: if a part does not fit its field.
        """
        try:
            tail = _UNIQUE_TAIL.pack(
                self.process_number, self.client_hash, self.month_millis, self.counter
            )
        except struct.error as error:
            raise BadInput(f"{self} is not a unique key: a part does not fit its field") from error
        return (pack_address(self.address) + tail).hex().upper()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse hex digits of either case.

        Any 32 or 56 hex digits are valid: clients in other languages fill the parts differently.

        :raises BadInput: if the text is not of this form.
        """
        raw, address_length = _unhex(text, "a unique key")
        return cls(
            address_text(raw[:address_length]), *_UNIQUE_TAIL.unpack_from(raw, address_length)
        )

    def nearly_time_ms(self, now_ms: int, zone: tzinfo | None = UTC) -> int:
        """Guess the creation time in epoch milliseconds, as RocketMQ does. Only for display.

        The key counts from the start of an unknown month, so this is the latest possible time
        before ``now_ms``. It is wrong for keys older than a month, for producers in another time
        zone than ``zone`` (None: the local one), and for producers whose clock is ahead.
        """
        month = _month_of(now_ms, zone)
        guess = _epoch_ms(month) + self.month_millis
        if guess >= now_ms:
            last_month = (month - timedelta(days=1)).replace(day=1)
            guess = _epoch_ms(last_month) + self.month_millis
        return guess


class NearlyMessageId(NamedTuple):
    """The difference between a text and a message id."""

    digit_count: int
    """The number of characters of the text."""
    expected_count: int
    """The number of characters of an id: 32 or 56."""
    letters: tuple[tuple[str, str], ...] = ()
    """Letters of the text, each with the digit that it resembles."""
    meant: str | None = None
    """The id with digits instead of these letters."""


def nearly_message_id(text: str) -> NearlyMessageId | None:
    """Return how a text differs from a message id, if a typo can explain it, else None.

    A typo is one digit too few or too many, or letters that resemble digits. Decimal numbers are
    not taken for ids: the host address in a real id has a hex letter.
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
    """Return the start of the month in ``zone`` (None: local). Times are epoch milliseconds."""
    return _epoch_ms(_month_of(now_ms, zone))


def _month_of(now_ms: int, zone: tzinfo | None) -> datetime:
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

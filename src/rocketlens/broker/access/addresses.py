"""Parses patterns of client addresses: those of plain_acl.yml, and the ranges of RocketMQ 5.

A pattern of plain_acl.yml:

=======================================  ==========================================================
pattern                                  matches
=======================================  ==========================================================
nothing                                  no address
``*``, ``*.*.*.*``, ``*:*:*:*:*:*:*:*``  every address
``192.168.0.7``, ``2001:db8::7``         that address
``10.0.0.1,10.0.0.2``                    each of them
``10.0.0.{1,2}``, ``2001:db8::{1,2}``    each of them
``192.168.*.*``, ``192.168.1-5.*``       addresses whose numbers are in these ranges; the first
                                         number is not a range
``2001:db8:*``, ``2001:db8:1-20:*``      the same for IPv6; ``*`` stands only at the end, for all
                                         groups that follow; ``::*`` is ``:0:*``
=======================================  ==========================================================

RocketMQ compares only the first range of an IPv4 pattern: its ``192.168.1-5.7`` also matches
``192.168.3.99``. Here every number must match. A range directly after ``::`` is refused: RocketMQ
applies it to another group than the pattern means. Source: ``RemoteAddressStrategyFactory``,
``IPAddressUtils``.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from rocketlens.errors import BadInput

Address = IPv4Address | IPv6Address
AddressPattern = Callable[[Address], bool]

_EVERY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_GROUPS: Final = 8
_MAX_SHOWN: Final = 100


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """Parse an address without the zone of IPv6; return None if it is invalid."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def parse_pattern(text: str | None) -> AddressPattern | None:
    """Return the predicate of a pattern of plain_acl.yml; None if it is blank and matches nothing.

    :raises BadInput: if it has none of the forms above.
    """
    if text is None or not text.strip():
        return None
    if text in _EVERY:
        return lambda _: True
    if text.endswith("}"):
        before, _, members = text[:-1].partition("{")
        if not before.endswith((":", ".")) or "{" in members:
            raise _bad(text)
        return _one_of(text, [before + each for each in members.split(",") if each])
    if "," in text:
        return _one_of(text, [each for each in text.split(",") if each])
    if "*" in text or "-" in text:
        return _range_6(text) if ":" in text else _range_4(text)
    return _one_of(text, [text])


def parse_source(text: str) -> AddressPattern:
    """:raises BadInput: if it is neither an address nor a range like ``10.0.0.0/8``."""
    try:
        if "/" not in text:
            single = ip_address(text)
            return lambda address: address == single
        network = ip_network(text, strict=False)
    except ValueError:
        raise BadInput("The source ip is invalid.") from None
    return lambda address: address in network


def _bad(text: str) -> BadInput:
    return BadInput(f"{text[:_MAX_SHOWN]!r} is not an address or a pattern of addresses")


def _one_of(text: str, alternatives: Iterable[str]) -> AddressPattern:
    members = set()
    for word in alternatives:
        address = None if "%" in word else parse_address(word)
        if address is None:
            raise _bad(text)
        members.add(address)
    return members.__contains__


def _range_4(text: str) -> AddressPattern:
    parts = [word.strip() for word in text.split(".")]
    if len(parts) != 4 or "*" in parts[0] or "-" in parts[0]:
        raise _bad(text)
    ranges = [_range(text, word, 255, 10) for word in parts]
    return lambda address: (
        address.version == 4 and all(map(range.__contains__, ranges, address.packed))
    )


def _range_6(text: str) -> AddressPattern:
    parts = text.split(":")
    is_open = parts[-1] == "*"
    if is_open:
        parts.pop()
    first = next((n for n, word in enumerate(parts) if "-" in word), len(parts))
    # Only "*" can follow a range.
    if any("*" in word for word in parts) or first < len(parts) - 1:
        raise _bad(text)
    head, ranged = parts[:first], parts[first:]
    if head[:2] == ["", ""]:
        # "::b:*" is split into "", "", "b".
        head.pop(0)
    if len(head) > 1 and is_open and not ranged and not head[-1]:
        # "2001:db8::*" is 2001:db8:0:* in RocketMQ.
        head[-1] = "0"
    if "" in head[:-1]:
        # "a::b:1-20" is split into "a", "", "b".
        gap = head.index("")
        zeros = _GROUPS - len(ranged) - is_open - (len(head) - 1)
        head[gap : gap + 1] = ["0"] * max(zeros, 1)
    count = len(head) + len(ranged)
    if not head or count > _GROUPS - is_open or not (is_open or count == _GROUPS):
        raise _bad(text)
    ranges = [_range(text, word, 0xFFFF, 16) for word in (*head, *ranged)]

    def matches(address: Address) -> bool:
        packed = address.packed
        return address.version == 6 and all(
            int.from_bytes(packed[2 * n : 2 * n + 2], "big") in each
            for n, each in enumerate(ranges)
        )

    return matches


def _range(text: str, word: str, maximum: int, base: int) -> range:
    if word == "*":
        return range(maximum + 1)
    low, dash, high = word.partition("-")
    try:
        numbers = range(int(low, base), int(high if dash else low, base) + 1)
    except ValueError:
        raise _bad(text) from None
    if not numbers or numbers[0] < 0 or numbers[-1] > maximum or len(word) > 9:
        raise _bad(text)
    return numbers

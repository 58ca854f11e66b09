"""Creates unique keys from an address, the process and a counter.

:mod:`rocketlens.model.message_id` has the layout. The address is chosen as in RocketMQ's clients:
the first that is neither private nor local, IPv6 included; otherwise the last loopback or the first
private IPv4 address. It makes keys unique and shows their origin; nothing connects to it. Source:
``MessageClientIDSetter``, ``UtilAll.getIP``.
"""

import itertools
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from rocketlens.model.message_id import UniqueKey

SITE_LOCAL: Final = IPv6Network("fec0::/10")

_RTM_GETADDR: Final = 22
_RTM_NEWADDR: Final = 20
_NLMSG_DONE: Final = 3
_NLM_F_REQUEST_DUMP: Final = 0x301
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_NETLINK_HEAD: Final = struct.Struct("=IHHII")
_ADDRESS_HEAD: Final = struct.Struct("=BBBBI")
_ATTRIBUTE_HEAD: Final = struct.Struct("=HH")


def choose_address(addresses: Iterable[str]) -> str | None:
    """Return the address that RocketMQ would use for its ids; None if there is none.

    ``addresses`` are in the order of :func:`in_java_order`.
    """
    fallback: str | None = None
    for text in addresses:
        address = ip_address(text)
        if isinstance(address, IPv4Address):
            if not _is_usable(address):
                continue
            if not _is_internal(address):
                return text
            if fallback is None or ip_address(fallback).is_loopback:
                fallback = text
        elif not _is_internal_v6(address):
            return text
    return fallback


def _is_usable(address: IPv4Address) -> bool:
    """Return True if an address is a host's, of class A, B or C."""
    first, *_, last = address.packed
    return 1 <= first <= 223 and last not in {0, 255}


def _is_internal(address: IPv4Address) -> bool:
    first, second, *_ = address.packed
    return (
        first in {10, 127}
        or (first == 172 and 16 <= second <= 31)
        or (first == 192 and second == 168)
    )


def _is_internal_v6(address: IPv6Address) -> bool:
    """Return True for addresses that Java calls local; unique-local ones (fd00::/8) are not."""
    return (
        address.is_unspecified
        or address.is_link_local
        or address.is_loopback
        or address in SITE_LOCAL
    )


def local_addresses() -> list[str]:
    """Return the addresses of this machine, in Java's order if it is known."""
    if sys.platform == "linux":
        with suppress(OSError):
            return in_java_order(_netlink_addresses())
    with suppress(OSError):
        addresses = socket.getaddrinfo(socket.gethostname(), None)
        return list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in addresses))
    return []


def in_java_order(addresses: Iterable[tuple[int, str]]) -> list[str]:
    """Return addresses, each with its interface number, in the order of ``NetworkInterface``.

    The kernel lists IPv4 before IPv6. The JDK inserts each interface, and each address of one, at
    the front. So IPv6 addresses come before IPv4 ones of the same interface.
    """
    of_interface: dict[int, list[str]] = {}
    for number, address in addresses:
        of_interface.setdefault(number, []).append(address)
    return [
        address
        for addresses_there in reversed(of_interface.values())
        for address in reversed(addresses_there)
    ]


def _netlink_addresses() -> Iterator[tuple[int, str]]:
    """Ask the kernel for addresses; nothing is sent over the network.

    Importing ifaddr instead would start a process (`ldconfig`, to find libc) and take 40 ms at each
    start of `rocketlens send`.
    """
    request = _ADDRESS_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    size = _NETLINK_HEAD.size + len(request)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(1)
        kernel.send(_NETLINK_HEAD.pack(size, _RTM_GETADDR, _NLM_F_REQUEST_DUMP, 1, 0) + request)
        while True:
            received = kernel.recv(1 << 16)
            position = 0
            while position + _NETLINK_HEAD.size <= len(received):
                size, kind, *_ = _NETLINK_HEAD.unpack_from(received, position)
                if kind == _NLMSG_DONE or size < _NETLINK_HEAD.size:
                    return
                if kind == _RTM_NEWADDR:
                    start = position + _NETLINK_HEAD.size
                    yield from _address_in(received[start : position + size])
                position += (size + 3) & ~3


def _address_in(content: bytes) -> Iterator[tuple[int, str]]:
    family, _, _, _, interface = _ADDRESS_HEAD.unpack_from(content)
    attributes: dict[int, bytes] = {}
    position = _ADDRESS_HEAD.size
    while position + _ATTRIBUTE_HEAD.size <= len(content):
        size, kind = _ATTRIBUTE_HEAD.unpack_from(content, position)
        if size < _ATTRIBUTE_HEAD.size:
            return
        attributes[kind] = content[position + _ATTRIBUTE_HEAD.size : position + size]
        position += (size + 3) & ~3
    # On a point-to-point interface ADDRESS is that of the other end.
    packed = attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS))
    if packed and family in {socket.AF_INET, socket.AF_INET6}:
        yield interface, socket.inet_ntop(family, packed)


@cache
def own_address() -> str:
    """Return this machine's address for ids; one made from the clock if it has none."""
    chosen = choose_address(local_addresses())
    if chosen is None:
        return str(IPv4Address(time.time_ns() // 1_000_000 & 0xFFFFFFFF))
    return chosen


class UniqueKeys:
    """Creates the unique keys of one process; ``now_ms`` returns epoch milliseconds."""

    def __init__(
        self,
        *,
        address: str | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._address: Final = own_address() if address is None else address
        self._now_ms: Final = now_ms
        self._client_hash: Final = secrets.randbits(32)
        # Wraps at 65,536, as the field does.
        self._counter: Final = itertools.count()
        self._month_start_ms = 0
        self._next_month_ms = 0

    def make(self) -> str:
        """Return the next key; keys repeat only if 65,536 are made in one millisecond."""
        now_ms = self._now_ms()
        if now_ms >= self._next_month_ms:
            self._month_start_ms, self._next_month_ms = _month_of(now_ms)
        return UniqueKey.at(
            now_ms,
            self._address,
            # Read each time: after a fork the child is another process.
            process_id=os.getpid(),
            client_hash=self._client_hash,
            counter=next(self._counter),
            counted_from_ms=self._month_start_ms,
        ).encode()


def _month_of(now_ms: int) -> tuple[int, int]:
    """Return the begin of the local month of a time, and of the next month."""
    now = time.localtime(now_ms / 1000)
    begins = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    ends = time.mktime((now.tm_year, now.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(begins) * 1000, int(ends) * 1000


@cache
def _keys() -> UniqueKeys:
    return UniqueKeys()


def new_unique_key() -> str:
    return _keys().make()

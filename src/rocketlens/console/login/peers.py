"""Which addresses count as one client, and which proxies are believed about theirs."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable

ProxyNetwork = IPv4Network | IPv6Network
_IPV6_BITS: Final = 64
"""Of an IPv6 address, what a provider gives to one customer at least: the rest is free to choose.
"""


def client_of(address: str) -> str:
    """Return what addresses of one client have in common: of IPv6 the first 64 bits.

    A text that is no address is returned as it is.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, _IPV6_BITS), strict=False))
    return str(parsed)


def parse_proxy(text: str) -> ProxyNetwork:
    """Return the address of a proxy, or a range of them such as ``10.0.0.0/8``.

    :raises BadInput: if it is neither.
    """
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise BadInput(f"{printable(text)[:60]} is not an address or a range of them") from None


def is_proxy(address: str, proxies: Sequence[ProxyNetwork]) -> bool:
    """Return whether an address is that of a trusted proxy."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return any(parsed in each or parsed.ipv4_mapped in each for each in proxies)
    return any(parsed in each for each in proxies)

"""Which addresses are one client, and which proxies are believed."""

import pytest

from rocketlens.console.login.peers import client_of, is_proxy, parse_proxy
from rocketlens.errors import BadInput


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1:2:3", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_client(address, client):
    assert client_of(address) == client


def test_proxies_are_addresses_and_ranges():
    proxies = [parse_proxy(each) for each in ("127.0.0.1", "10.1.0.0/16", "2001:db8::/32")]
    for address in ("127.0.0.1", "10.1.2.3", "2001:db8::9", "::ffff:10.1.2.3"):
        assert is_proxy(address, proxies)
    for address in ("127.0.0.2", "10.2.0.1", "::1", "", "unknown"):
        assert not is_proxy(address, proxies)


@pytest.mark.parametrize("text", ["", "*", "proxy.example", "10.0.0.0/33", "10.0.0.1:80"])
def test_what_is_no_address_is_no_proxy(text):
    with pytest.raises(BadInput, match="not an address"):
        parse_proxy(text)

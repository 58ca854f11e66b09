"""Patterns of addresses, as the real classes read them but where they read too much."""

import contextlib
from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from rocketlens.broker.access.addresses import parse_address, parse_pattern, parse_source
from rocketlens.errors import BadInput
from tests.unit.broker.access.address_vectors import ADDRESSES, PATTERNS, SOURCES, vectors

# RocketMQ looks at the first range only, and not at what follows it.
NARROWER = {"192.168.1-5.7", "10.1-2.3-4.5-6", "192.168.100-200.10-20", "172.16.*.9"}
# RocketMQ cannot match anything with them, and here they mean what they say.
BROKEN_THERE = {"192.168.0-0.5", "1.2.3.0-0"}
# RocketMQ takes them, and here they are refused.
REFUSED = {"1:2:3:4:5:6:7:8:9-a", "::/64", "fe80::1%eth0", "2001:db8::1-20", "2001:db8::1-20:*"}


def verdict(pattern, address):
    """As in the vectors: true, false, or error for a pattern that is not taken."""
    try:
        matches = parse_pattern(pattern)
    except BadInput:
        return "error"
    parsed = parse_address(address)
    return "true" if matches is not None and parsed is not None and matches(parsed) else "false"


def test_a_pattern_matches_what_the_real_one_does_or_less():
    differs = set()
    for pattern, address, theirs in vectors("pattern"):
        ours = verdict(pattern, address)
        if ours != theirs:
            # Nothing is let through that RocketMQ would refuse, but by a pattern broken there.
            assert theirs == "error" if pattern in BROKEN_THERE else ours in {"error", "false"}
            differs.add(pattern)
    assert differs == BROKEN_THERE | NARROWER | REFUSED


def test_a_source_of_rocketmq_5_matches_what_the_real_one_does():
    for source, address, theirs in vectors("source"):
        try:
            matches = parse_source(source)
        except BadInput:
            # Java takes 10.0.0 for an address.
            assert theirs == "error" or source == "10.0.0/8", source
        else:
            ours = "true" if matches(parse_address(address)) else "false"
            # RocketMQ compares numbers: its 0.0.0.0/0 has ::1, and its ::/0 every address.
            is_other_kind = (":" in source) != (":" in address)
            assert ours == ("false" if is_other_kind else theirs), source


def test_the_vectors_are_of_every_pattern_and_address():
    asked = {(pattern, address) for pattern in PATTERNS for address in ADDRESSES}
    assert {words[:2] for words in vectors("pattern")} == asked
    asked = {(source, address) for source in SOURCES for address in ADDRESSES}
    assert {words[:2] for words in vectors("source")} == asked
    assert len({words[2] for words in vectors("pattern")}) == 3


def test_every_number_of_a_pattern_must_fit():
    assert verdict("192.168.1-5.7", "192.168.3.7") == "true"
    assert verdict("192.168.1-5.7", "192.168.3.99") == "false"
    assert verdict("2001:db8:1-20:*", "2001:db8:f::1") == "true"
    assert verdict("2001:db8:1-20:*", "2001:db8:21::1") == "false"


def test_a_blank_pattern_matches_nothing():
    assert parse_pattern(None) is None
    assert parse_pattern(" ") is None


@given(st.ip_addresses(v=4), st.integers(0, 255), st.integers(0, 255))
def test_a_range_matches_the_numbers_in_it(address, one, other):
    low, high = sorted((one, other))
    words = str(address).split(".")
    pattern = ".".join([*words[:3], f"{low}-{high}"])
    assert verdict(pattern, str(address)) == ("true" if low <= int(words[3]) <= high else "false")


@given(st.ip_addresses(), st.ip_addresses())
def test_an_address_matches_itself_in_any_form_and_no_other(address, other):
    for form in (str(address), address.exploded, str(address).upper()):
        assert verdict(form, str(address)) == "true"
        assert verdict(form, str(other)) == ("true" if address == other else "false")


@given(st.ip_addresses(), st.integers(0, 128), st.ip_addresses())
def test_a_network_matches_its_addresses(address, bits, other):
    bits = min(bits, address.max_prefixlen)
    matches = parse_source(f"{address}/{bits}")
    assert matches(address)
    assert matches(other) == (other in ip_network(f"{address}/{bits}", strict=False))


@given(st.text(max_size=30) | st.text("0123456789.:*-{}, ", max_size=30))
def test_whatever_the_text_it_is_a_pattern_or_bad_input(text):
    for address in ("10.0.0.1", "2001:db8::1"):
        assert verdict(text, address) in {"true", "false", "error"}
    with contextlib.suppress(BadInput):
        parse_source(text)(ip_address("10.0.0.1"))

"""Unique keys are made as Java's clients make them."""

import os

import pytest

from rocketlens.client.send import unique_key
from rocketlens.client.send.unique_key import (
    UniqueKeys,
    choose_address,
    in_java_order,
    local_addresses,
    new_unique_key,
    own_address,
)
from rocketlens.model.message_id import UniqueKey, pack_address
from tests.support.patched import change_for

# 2026-11-15 12:00 UTC, far from any month's end in any zone.
NOW_MS = 1_794_744_000_000


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "10.0.0.5", "192.168.1.2"], "10.0.0.5"),
        (["10.0.0.5", "8.8.4.4"], "8.8.4.4"),
        (["10.0.0.5", "fd00::1"], "fd00::1"),
        (["fe80::1", "::1", "fec0::1", "172.16.0.9"], "172.16.0.9"),
        (["172.32.0.9", "2001:db8::1"], "172.32.0.9"),
        (["127.0.0.1"], "127.0.0.1"),
        (["0.0.0.0", "224.0.0.1", "10.0.0.255"], None),
        ([], None),
    ],
)
def test_the_address_is_the_one_that_java_takes(addresses, chosen):
    assert choose_address(addresses) == chosen


def test_interfaces_and_addresses_are_in_javas_order():
    kernel = [(1, "127.0.0.1"), (2, "10.0.0.1"), (2, "10.0.0.2"), (1, "::1"), (2, "fd00::1")]
    assert in_java_order(kernel) == ["fd00::1", "10.0.0.2", "10.0.0.1", "::1", "127.0.0.1"]


def test_this_machine_has_an_address():
    assert local_addresses()
    assert len(pack_address(own_address())) in {4, 16}


def test_keys_of_one_process_differ_in_the_counter_which_wraps():
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: NOW_MS)
    made = [UniqueKey.decode(keys.make()) for _ in range(65_537)]
    assert [key.counter for key in made] == [*range(65_536), 0]
    assert {key.process_number for key in made} == {os.getpid() & 0xFFFF}
    assert len({(key.address, key.client_hash, key.month_millis) for key in made}) == 1


def test_time_counts_from_the_local_month_and_a_clock_set_back_is_borne():
    now = [NOW_MS]
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: now[0])
    mid_month = UniqueKey.decode(keys.make()).month_millis
    assert 13 * 86_400_000 < mid_month < 16 * 86_400_000
    now[0] -= 1000
    assert UniqueKey.decode(keys.make()).month_millis == mid_month - 1000
    now[0] = NOW_MS - mid_month - 5
    assert UniqueKey.decode(keys.make()).month_millis == 0
    now[0] = NOW_MS + 20 * 86_400_000
    assert UniqueKey.decode(keys.make()).month_millis < 6 * 86_400_000


def test_an_ipv6_address_makes_keys_of_56_digits():
    assert len(UniqueKeys(address="fd00::2", now_ms=lambda: NOW_MS).make()) == 56
    assert new_unique_key() != new_unique_key()


def test_a_forked_process_makes_other_keys(monkeypatch):
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: NOW_MS)
    before = UniqueKey.decode(keys.make())
    change_for(monkeypatch, unique_key, "os", getpid=lambda: before.process_number + 1)
    assert UniqueKey.decode(keys.make()).process_number != before.process_number

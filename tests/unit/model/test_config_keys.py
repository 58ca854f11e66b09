"""The tables of configuration keys."""

import re
from dataclasses import dataclass, replace

import pytest

from rocketlens.broker.config import BrokerConfig
from rocketlens.errors import BadInput
from rocketlens.model.config_keys import (
    IP_ADDRESS,
    OURS,
    Configuration,
    key,
    keys_of,
    markdown_rows,
)
from rocketlens.model.rocketmq_config_keys import ROCKETMQ_KEYS, check_unknown_keys
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.net.tls import TlsConfig
from rocketlens.store.write.config import StoreConfig

TABLES = (BrokerConfig, StoreConfig, NameServerConfig, TlsConfig)


@dataclass(frozen=True, slots=True)
class Sample(Configuration):
    """A table with a key of each kind."""

    count: int = key(8, "Queues.", unit="queues", allowed=range(1, 17))
    isOn: bool = key(False, "Whether it is on.")  # noqa: N815
    mode: str = key("a|b", "Which way.", allowed=("a|b", "c"), since="5")
    address: str = key("", "Where.", allowed=IP_ADDRESS, since=OURS, name="the.address")
    not_a_key: int = 3


@pytest.mark.parametrize("table", TABLES)
def test_each_key_is_rocketmqs_or_said_to_be_ours(table):
    for row in keys_of(table):
        is_rocketmqs = row.name in ROCKETMQ_KEYS or row.name.startswith("tls.")
        assert row.since == OURS or is_rocketmqs, row.name
        assert row.meaning.endswith("."), row.name


@pytest.mark.parametrize("table", TABLES)
def test_a_table_written_and_read_again_is_the_same(table):
    values = {name: text for name, text in table().properties().items() if text}
    config, others = table.from_properties(values)
    assert (config, others) == (table(), {})


def test_no_key_is_in_two_tables_that_are_read_from_one_file():
    for tables in ((BrokerConfig, StoreConfig, TlsConfig), (NameServerConfig, TlsConfig)):
        names = [row.name for table in tables for row in keys_of(table)]
        assert len(names) == len(set(names))


def test_values_are_read_by_type_and_other_entries_given_back():
    config, others = Sample.from_properties(
        {"count": " 9 ", "isOn": "TRUE", "mode": "c", "the.address": "::1", "more": "1"}
    )
    assert config == Sample(9, True, "c", "::1")  # noqa: FBT003
    assert others == {"more": "1"}
    assert config.properties() == {
        "count": "9",
        "isOn": "true",
        "mode": "c",
        "the.address": "::1",
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("count", "17", "count 17: give 1 to 16"),
        ("count", "1" * 20, "count '11111111111111111111' is not a whole number"),
        ("count", "\u0661", "count '\u0661' is not a whole number"),
        ("isOn", "yes", "isOn 'yes' is neither true nor false"),
        ("mode", "d", "mode 'd': give a|b or c"),
        ("mode", "a\0b", "mode has a zero character in it"),
        ("the.address", "localhost", "the.address 'localhost': give an IPv4 or IPv6 address"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_the_name_of_its_key(name, text, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        Sample.from_properties({name: text})


def test_a_value_is_checked_however_the_configuration_is_made():
    with pytest.raises(BadInput, match="count 0"):
        Sample(count=0)
    with pytest.raises(BadInput, match="count 0"):
        replace(Sample(), count=0)


def test_a_table_prints_itself_as_markdown():
    assert list(markdown_rows(Sample)) == [
        "| Key | Type | Unit | Allowed | Default | RocketMQ | Meaning |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| `count` | integer | queues | 1 to 16 | `8` | 4.9, 5 | Queues. |",
        "| `isOn` | boolean |  |  | `false` | 4.9, 5 | Whether it is on. |",
        "| `mode` | text |  | a\\|b or c | `a\\|b` | 5 | Which way. |",
        "| `the.address` | text |  | an IPv4 or IPv6 address |  | no | Where. |",
    ]


@pytest.mark.parametrize("table", TABLES)
def test_each_key_has_one_row_of_seven_cells(table):
    rows = list(markdown_rows(table))[2:]
    assert len(rows) == len(keys_of(table))
    for row in rows:
        assert len(re.split(r"(?<!\\)\|", row)) == 9, row


def test_a_key_in_no_table_is_refused_when_it_looks_like_one():
    with pytest.raises(
        BadInput, match=r"x\.conf: counts is not a key of RocketMQ; did you mean count"
    ):
        check_unknown_keys({"counts": "1"}, ["count"], "x.conf")
    assert check_unknown_keys({"zzz": "1", "aclEnable": "false"}, ["count"], "x.conf") == (
        "aclEnable",
        "zzz",
    )

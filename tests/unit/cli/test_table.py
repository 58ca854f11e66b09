"""Rows for people, in a terminal of any width."""

import re

import pytest

from rocketlens import open_store
from rocketlens.cli import table
from rocketlens.model.escape import printable


@pytest.fixture
def messages(golden):
    with open_store(golden("5.5.0").store) as store:
        return store.find("Aa").messages


@pytest.mark.parametrize("columns", [72, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(messages, columns):
    lines = list(table.terminal_lines(messages, columns))
    assert max(map(table.cells, lines)) <= columns


@pytest.mark.parametrize("columns", [20, 72, 200])
def test_ids_and_positions_are_never_cut(messages, columns):
    text = "\n".join(table.terminal_lines(messages, columns))
    for message in messages:
        assert message.msg_id in text
        assert re.search(rf"\b{message.queue_id}/{message.queue_offset}\b", text)


def test_a_wide_terminal_has_one_line_a_message(messages):
    assert len(list(table.terminal_lines(messages, 220))) == len(messages) + 1


def test_chinese_characters_take_two_columns():
    assert table.cells("支付A") == 5
    assert table.fit("支付A", 4) == "支… "
    assert table.cells("e\u0301") == 1


def test_the_zone_stands_in_the_head_or_with_each_time_when_clocks_changed(zone, write_store):
    zone("Europe/Berlin")
    summer, winter = 1_790_000_000_000, 1_795_000_000_000
    store = write_store({"store_timestamp_ms": summer}, {"store_timestamp_ms": winter})
    with open_store(store) as opened:
        first, second = opened.find(topic="T").messages
    assert "TIME (+02:00)" in next(iter(table.terminal_lines([first], 100)))
    head, _, *rows = table.terminal_lines([first, second], 100)
    assert "TIME " in head
    assert "+02:00" in rows[0]
    assert "+01:00" in rows[2]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"two\nlines", "two\\nlines"),
        ("支付".encode() * 100, "支付" * 40),
        (b"x" + "支付".encode() * 100, "x" + "支付" * 39 + "支"),
        (b"\xff\xfe binary", "0xfffe2062696e617279"),
    ],
)
def test_the_start_of_a_body_is_text_or_hex_on_one_line(body, shown):
    assert table.preview(body) == shown


def test_sizes_take_at_most_six_characters():
    sizes = [0, 999, 1000, 1024, 123_456, 1 << 20, 999 << 20, 512 << 20, 4 << 30]
    assert [table.size_text(size) for size in sizes] == [
        *("0", "999", "1.0K", "1.0K", "120.6K", "1.0M", "999.0M", "512.0M", "4.0G"),
    ]


def test_printable_text_has_no_character_that_a_terminal_obeys():
    everything = "".join(map(chr, range(0x3000))) + "\ud800"
    shown = printable(everything)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800]", shown)
    assert printable("支付 ünï ok") == "支付 ünï ok"

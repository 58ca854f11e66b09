"""Rows for people, in a terminal of any width."""

import io
import re

import pytest

from rocketlens import open_store
from rocketlens.cli import printing as table
from rocketlens.model.text.escape import printable


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
        assert re.search(rf"(?<!\S){message.position}(?!\S)", text)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_key_that_was_found_is_shown_whole_and_stands_out(write_store, monkeypatch, columns):
    found = "order-20261120-0042"
    keys = f"customer-of-some-long-name {found} and-one-more-key"
    with open_store(write_store({"properties": {"KEYS": keys, "UNIQ_KEY": "A" * 32}})) as store:
        messages = store.find(found).messages
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    text = "\n".join(table.terminal_lines(messages, columns, found))
    assert f"\x1b[{table.MATCH}m{found}\x1b[0m" in text
    assert f"\x1b[{table.MATCH}m{'A' * 32}" in "".join(
        table.terminal_lines(messages, columns, "a" * 32)
    )


def test_a_wide_terminal_has_one_line_a_message(messages):
    assert len(list(table.terminal_lines(messages, 220))) == len(messages) + 1


def printed_rows(monkeypatch, columns, titles, rows):
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("NO_COLOR", "1")
        patch.setattr("sys.stdout", terminal)
        table.print_rows(titles, rows)
    return terminal.getvalue().splitlines()


TOPIC_TITLES = ("topic", "queues", "oldest", "newest")
TOPIC_ROWS = [
    ("order-paid-of-a-long-name", 4, table.Moment(1_700_000_000_123), table.Moment(0)),
    ("b", None, None, ""),
]


def test_rows_that_fit_have_one_line_each(monkeypatch):
    assert printed_rows(monkeypatch, 120, ("topic", "queues"), [("a", 10), ("b", None)]) == [
        "TOPIC  QUEUES",
        "a          10",
        "b           ?",
    ]
    assert len(printed_rows(monkeypatch, 80, TOPIC_TITLES, TOPIC_ROWS)) == 3


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 120])
def test_columns_that_do_not_fit_follow_uncut_on_indented_lines(zone, monkeypatch, columns):
    zone("UTC")
    lines = printed_rows(monkeypatch, columns, TOPIC_TITLES, TOPIC_ROWS)
    assert max(map(table.cells, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == (
        "TOPIC QUEUES OLDEST (+00:00) NEWEST (+00:00) "
        "order-paid-of-a-long-name 4 2023-11-14 22:13:20 1970-01-01 00:00:00 b ? ?"
    )
    begins = [line for line in lines if not line.startswith("  ")]
    assert [line.split()[0] for line in begins] == ["TOPIC", "order-paid-of-a-long-name", "b"]


def test_a_column_that_no_line_has_room_for_is_shown_whole(monkeypatch):
    lines = printed_rows(monkeypatch, 20, ("n", "body", "m"), [(1, "x" * 50, 2)])
    assert lines[3:] == ["1", "  " + "x" * 50, "  2"]


def test_times_of_several_zones_have_each_its_own(zone, monkeypatch):
    zone("Europe/Berlin")
    rows = [(table.Moment(1_700_000_000_123),), (table.Moment(1_690_000_000_000),)]
    assert printed_rows(monkeypatch, 80, ("oldest",), rows) == [
        "OLDEST",
        "2023-11-14 23:13:20 +01:00",
        "2023-07-22 06:26:40 +02:00",
    ]


def test_in_a_pipe_a_time_has_milliseconds_and_zone(zone, capsys):
    zone("UTC")
    table.print_rows(TOPIC_TITLES, TOPIC_ROWS)
    assert capsys.readouterr().out.splitlines()[1].split("\t")[2] == "2023-11-14T22:13:20.123+00:00"


def test_chinese_characters_take_two_columns():
    assert table.cells("支付A") == 5
    assert table.fit("支付A", 4) == "支… "
    assert table.cells("e\u0301") == 1


def test_emoji_of_several_characters_take_the_columns_that_a_terminal_shows():
    assert table.cells("👍🏽") == 2
    assert table.cut("👍🏽👍🏽", 3) == "👍🏽…"
    # What is not seen is shown, so a sequence is its parts: no terminal joins them.
    assert printable("👨\u200d👩") == r"👨\u200d👩"
    assert table.cells(printable("👨\u200d👩")) == 2 + 6 + 2
    assert table.cells(printable("❤\ufe0f")) == 1 + 6


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

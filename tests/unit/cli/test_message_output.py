"""How `find`, `show` and `tail` print messages, and tables in a terminal of any width.

Which messages a command passes on; `test_export` has what it reads.
"""

import csv
import hashlib
import io
import json
import re
from argparse import ArgumentParser
from base64 import b64decode
from types import SimpleNamespace

import pytest

from rocketlens import open_store
from rocketlens.cli import printing as table
from rocketlens.cli.source import add_selection, selected
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from tests.support.made_stores import make_store, some_messages
from tests.support.written_bodies import body as written_body


@pytest.fixture
def store(write_store):
    return write_store(
        {
            "topic": "Orders",
            "properties": {"KEYS": "K1 K2", "UNIQ_KEY": "A" * 32, "city": "=cmd()"},
            "body": b'{"city": "=1", "n": 1.10}',
        },
        {"topic": "Orders", "properties": {"KEYS": "K1"}, "body": b"two\nlines, \x1b[2J"},
        {"topic": "Orders", "properties": {"KEYS": "K1"}, "body": b"\xff\x00"},
    )


def find(run, store, *options, command=("find", "K1")):
    done = run(*command, "--store", store, *options)
    assert done.code == 0, done.err
    return done.out


def test_csv_has_whole_bodies_and_no_formulas(run, store):
    text = find(run, store, "-o", "csv", "--fields", "position,properties.city,queue_id,body")
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [
        ["position", "properties.city", "queue_id", "body"],
        ["Orders/0/0", "'=cmd()", "0", '{"city": "=1", "n": 1.10}'],
        ["Orders/0/1", "", "0", "two\nlines, \x1b[2J"],
        ["Orders/0/2", "", "0", "0xff00"],
    ]


def test_properties_and_fields_of_the_body_are_fields_in_every_form(run, store):
    names = ("--fields", "prop.city,body.$.n,body.$.city")
    assert find(run, store, *names).splitlines()[:2] == [
        "prop.city\tbody.$.n\tbody.$.city",
        "=cmd()\t1.10\t=1",
    ]
    assert find(run, store, *names, "-o", "csv").splitlines()[1] == "'=cmd(),1.10,'=1"
    lines = find(run, store, *names, "-o", "jsonl").splitlines()
    assert json.loads(lines[0]) == {"prop.city": "=cmd()", "body.$.n": "1.10", "body.$.city": "=1"}
    assert set(json.loads(lines[1]).values()) == {None}
    assert find(run, store, "--format", "{prop.city} {body.$.n}").splitlines()[0] == "=cmd() 1.10"
    quoted = "{properties['city']} {body.$['n']}"
    assert find(run, store, "--format", quoted).splitlines()[0] == "=cmd() 1.10"


def test_a_header_can_be_left_out(run, store):
    for output in ("csv", "table"):
        with_header = find(run, store, "-o", output)
        assert with_header.startswith("time")
        without = find(run, store, "-o", output, "--no-header")
        assert without == with_header.partition("\n")[2]


def test_fields_of_a_table_in_a_pipe_are_one_line_each(run, store):
    assert find(run, store, "--fields", "position,keys,body") == (
        "position\tkeys\tbody\n"
        'Orders/0/0\tK1 K2\t{"city": "=1", "n": 1.10}\n'
        "Orders/0/1\tK1\ttwo\\nlines, \\x1b[2J\n"
        "Orders/0/2\tK1\t0xff00\n"
    )


def test_a_position_can_be_pasted_back(run, store):
    for position in find(run, store, "--format", "{position}").split():
        assert find(run, store, "--format", "{position}", command=("find", position)).split() == [
            position
        ]


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_body_in_json_is_one_member_and_another_names_its_encoding(run, store, output):
    def members(*options):
        text = find(run, store, "-o", output, "--fields", "body", *options)
        return (
            json.loads(text)["messages"]
            if output == "json"
            else list(map(json.loads, text.splitlines()))
        )

    first = {"body": '{"city": "=1", "n": 1.10}', "body_encoding": "text"}
    second = {"body": "two\nlines, \x1b[2J", "body_encoding": "text"}
    third = {"body": "/wA=", "body_encoding": "base64"}
    assert members() == members("--body", "text") == [first, second, third]
    first = {"body": {"city": "=1", "n": 1.1}, "body_encoding": "json"}
    assert members("--body", "json") == [first, second, third]
    in_base64 = members("--body", "base64")
    assert {one["body_encoding"] for one in in_base64} == {"base64"}
    assert b64decode(in_base64[0]["body"]) == b'{"city": "=1", "n": 1.10}'


def test_json_has_the_fields_that_are_asked_for_in_their_order(run, store):
    line = find(run, store, "-o", "jsonl", "--fields", "position,size,keys").splitlines()[0]
    assert list(json.loads(line).items()) == [
        ("position", "Orders/0/0"),
        ("size", 25),
        ("keys", ["K1", "K2"]),
    ]


def test_a_topic_is_streamed_in_every_form_but_one(run, store):
    for options in (("-o", "csv"), ("-o", "jsonl"), ("--format", "{topic}"), ()):
        whole = find(run, store, *options, command=("find", "K1"))
        assert find(run, store, *options, command=("find", "-t", "Orders")) == whole


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fields", "nme"), "no value 'nme'"),
        (("--format", "{topic"), "--format"),
        (("--format", "{topic}", "-o", "csv"), "--format"),
        (("--no-header", "-o", "json"), "--no-header"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_one_line(run, store, options, said):
    done = run("find", "K1", "--store", store, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_tail_prints_as_find_does(run, store):
    options = ("--fields", "position,body", "--body", "base64")
    assert find(run, store, *options, command=("tail", "-t", "Orders")) == find(
        run, store, *options
    )
    csv_text = find(run, store, "-o", "csv", "--no-header", command=("tail", "-t", "Orders"))
    assert csv_text == find(run, store, "-o", "csv", "--no-header")


def test_show_prints_all_that_match_as_json(run, store):
    shown = json.loads(find(run, store, "-o", "json", "--body", "json", command=("show", "K1")))
    assert shown["complete"] is True
    assert [one["queue_offset"] for one in shown["messages"]] == [0, 1, 2]
    done = run("show", "K1", "--store", store, "-o", "json", "--body", "hex")
    assert (done.code, done.out) == (2, "")


def test_show_tells_other_hits_apart(run, store):
    done = run("show", "K1", "--store", store)
    _, first, second = done.err.splitlines()
    assert first.split()[0] == "Orders/0/1"
    assert "another body, 15 bytes, id " in first
    assert "another body, 2 bytes, id " in second


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    from rocketlens.main import main

    def on_terminal(*words):
        out = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", out)
            patch.setenv("TERM", "xterm")
            assert main([*map(str, words)]) == 0
        return out.getvalue()

    return on_terminal


def test_a_json_body_is_indented_on_a_terminal_and_coloured_if_it_may_be(
    on_terminal, store, monkeypatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    plain = '{\n  "city": "=1",\n  "n": 1.10\n}\n'
    words = ("show", "Orders/0/0", "--store", store)
    assert on_terminal(*words).endswith(plain)
    coloured = on_terminal(*words, "--color", "always")
    assert '\x1b[36m"city"\x1b[0m: \x1b[32m"=1"\x1b[0m' in coloured
    monkeypatch.delenv("NO_COLOR")
    assert '\x1b[36m"city"' in on_terminal(*words)
    assert "\x1b" not in on_terminal(*words, "--color", "never")
    assert on_terminal(*words, "--body", "text", "--color", "never").endswith(
        '{"city": "=1", "n": 1.10}\n'
    )


@pytest.mark.parametrize("output", [("-o", "csv"), ("--format", "{body}"), ("--fields", "body")])
def test_a_terminal_obeys_no_body(on_terminal, store, output):
    shown = on_terminal("find", "K1", "--store", store, "--color", "never", *output)
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


@pytest.fixture
def golden_store(golden):
    return golden("5.5.0")


@pytest.fixture
def sent(golden_store):
    sent = [one for one in golden_store.sent if (one["keys"] or "").startswith("batch-")]
    return SimpleNamespace(**sent[0])


def test_any_id_shows_everything_about_the_message(run, golden_store, sent):
    position = f"{sent.topic}/{sent.queue_id}/{sent.queue_offset}"
    for text in (sent.offset_msg_id, sent.msg_id, position, sent.keys):
        done = run("show", text, "--store", golden_store.store)
        assert done.code == 0, done.err
        for word in (sent.topic, sent.keys, sent.msg_id, sent.offset_msg_id, position):
            assert word in done.out


@pytest.mark.parametrize("command", ["find", "show", "story"])
def test_a_position_in_a_topic_that_is_not_there_names_the_one_probably_meant(
    run, golden_store, command
):
    done = run(command, "PayTopc/1/0", "--store", golden_store.store)
    assert (done.code, done.out) == (1, "")
    assert "position: there is no topic 'PayTopc'; did you mean PayTopic?" in done.err


def test_body_raw_writes_the_bytes_and_nothing_else(golden_store, sent, capfdbinary):
    from rocketlens.main import main

    for one in golden_store.sent[:40]:
        if one["kind"].startswith("tx-ROLLBACK"):
            continue
        arguments = ["show", one["offset_msg_id"], "--store", str(golden_store.store)]
        assert main([*arguments, "--body", "raw"]) == 0
        written = capfdbinary.readouterr()
        assert hashlib.sha256(written.out).hexdigest() == one["body_sha256"]
        assert written.err == b""


def test_body_json_is_indented(run, write_store):
    store = write_store({"body": json.dumps({"金额": [1, "a\x9bb"]}).encode()})
    done = run("show", "T/0/0", "--store", store, "--body", "json")
    assert done.code == 0
    assert done.out.endswith('{\n  "金额": [\n    1,\n    "a\\x9bb"\n  ]\n}\n')


@pytest.mark.parametrize("body", [b"no json", b"\xff", b"[" * 100_000, b""])
def test_a_body_that_is_no_json_gets_one_line(run, write_store, body):
    done = run("show", "T/0/0", "--store", write_store({"body": body}), "--body", "json")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "not JSON" in done.err


def test_body_hex_shows_offsets_bytes_and_text(run, write_store):
    store = write_store({"body": bytes(range(0x20, 0x32))})
    done = run("show", "T/0/0", "--store", store, "--body", "hex")
    assert done.out.splitlines()[-2:] == [
        "00000000  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./",
        "00000010  30 31                                            01",
    ]


def test_a_body_that_is_no_text_is_shown_in_hex_unless_asked_otherwise(run, write_store):
    store = write_store({"body": b"\x00\xff\x1b[31m"})
    assert "00000000  00 ff 1b" in run("show", "T/0/0", "--store", store).out
    done = run("show", "T/0/0", "--store", store, "--body", "text")
    assert done.out.endswith("\\x00\ufffd\\x1b[31m\n")


def test_text_keeps_its_lines_but_no_control_characters(run, write_store):
    store = write_store(
        {"body": b"one\r\ntwo\tthree\x1b[2J", "properties": {"note": "a\nb\x1b]0;x\x07"}}
    )
    done = run("show", "T/0/0", "--store", store)
    assert done.out.endswith("\none\ntwo\tthree\\x1b[2J\n")
    assert "a\\nb\\x1b]0;x\\x07" in done.out
    assert not {"\x1b", "\x07", "\r"} & set(done.out)


def test_copies_that_wait_for_a_transaction_or_a_delay_come_last(run, golden_store):
    committed = next(s for s in golden_store.sent if s["kind"] == "tx-COMMIT_MESSAGE")
    done = run("show", committed["msg_id"], "--store", golden_store.store)
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["Topic", committed["topic"]]
    assert "RMQ_SYS_TRANS_HALF_TOPIC/0/" in done.err


def test_what_is_not_there_gives_code_1(run, golden_store):
    for text in ("nothing", "PayTopic/0/99999", "00" * 16):
        done = run("show", text, "--store", golden_store.store)
        assert (done.code, done.out) == (1, "")
        assert "nothing found" in done.err


def test_what_is_damaged_gives_code_3(run, damaged):
    done = run("show", "T/0/1", "--store", damaged)
    assert (done.code, done.out) == (3, "")
    assert "INCOMPLETE" in done.err
    assert run("show", "T/0/1", "--store", damaged, "--body", "raw").out == ""


def test_flags_are_explained(run, golden_store):
    compressed = next(s for s in golden_store.sent if s["body_len"] > 2000)
    shown = run("show", compressed["offset_msg_id"], "--store", golden_store.store).out
    assert "stored compressed (zlib)" in shown


def test_a_body_of_a_known_format_is_decoded_and_says_what_it_was_taken_for(run, write_store):
    store = write_store({"body": written_body("order.hessian")})
    done = run("show", "T/0/0", "--store", store)
    assert re.search(r"Body decoded as +hessian: its 495 bytes are .* \(a guess\)\n", done.out)
    assert '"buyer": "王小明 😀"' in done.out


def test_text_in_another_charset_is_shown_as_text(run, write_store):
    done = run("show", "T/0/0", "--store", write_store({"body": written_body("text.gbk")}))
    assert done.out.endswith("\n\n订单已支付,等待发货。\n")


def test_plain_text_is_decoded_only_when_asked_for(run, write_store):
    store = write_store({"body": b'{"a": 1}'})
    assert "decoded" not in run("show", "T/0/0", "--store", store).out
    done = run("show", "T/0/0", "--store", store, "--body", "decoded")
    assert re.search(r"Body decoded as +json: it is utf-8, and JSON\n", done.out)


def test_rules_say_how_bodies_are_decoded(run, write_store, tmp_path):
    rules = tmp_path / "bodies.toml"
    rules.write_text('[[body]]\ntopic = "T"\nformat = "thrift"')
    store = write_store({"body": written_body("order.thrift-compact")})
    done = run("show", "T/0/0", "--store", store, "--body-rules", rules)
    assert '"1": "ORDER-20261120-0042"' in done.out
    rules.write_text("[[body]]")
    done = run("show", "T/0/0", "--store", store, "--body-rules", rules)
    assert (done.code, done.out) == (2, "")
    assert "a rule without topic" in done.err


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


class PlainTerminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_key_that_was_found_is_shown_whole_and_stands_out(write_store, monkeypatch, columns):
    found = "order-20261120-0042"
    keys = f"customer-of-some-long-name {found} and-one-more-key"
    with open_store(write_store({"properties": {"KEYS": keys, "UNIQ_KEY": "A" * 32}})) as store:
        messages = store.find(found).messages
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", PlainTerminal())
    text = "\n".join(table.terminal_lines(messages, columns, found))
    assert f"\x1b[{table.MATCH}m{found}\x1b[0m" in text
    assert f"\x1b[{table.MATCH}m{'A' * 32}" in "".join(
        table.terminal_lines(messages, columns, "a" * 32)
    )


def test_a_wide_terminal_has_one_line_a_message(messages):
    assert len(list(table.terminal_lines(messages, 220))) == len(messages) + 1


def printed_rows(monkeypatch, columns, titles, rows):
    terminal = PlainTerminal()
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
        "2023-11-14 23:13:20+01:00",
        "2023-07-22 06:26:40+02:00",
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
        *("0", "999", "1.0K", "1.0K", "120.6K", "1.0M", "999.0M", "512.0M", "4.0G")
    ]


def test_printable_text_has_no_character_that_a_terminal_obeys():
    everything = "".join(map(chr, range(0x3000))) + "\ud800"
    shown = printable(everything)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800]", shown)
    assert printable("支付 ünï ok") == "支付 ünï ok"


def selection(*words):
    parser = ArgumentParser()
    add_selection(parser)
    return selected(parser.parse_args(words))


def test_everything_is_selected_unless_something_is_asked_for():
    assert (selection().text, selection().topics, selection().begin) == (None, (), None)
    request = selection("-t", "A,B", "-t", "C", "-k", "K", "--since", "2026-11-20T00:00Z")
    assert (request.text, request.kind, request.topics) == ("K", "key", ("A", "B", "C"))
    assert (request.begin, request.all_topics) == (1_795_132_800_000, True)


def test_a_filter_is_a_part_of_what_is_asked_for():
    request = selection("--where", "key = 'K' AND body.$.a = 1", "-t", "A")
    assert (request.text, request.topics) == ("K", ("A",))
    assert selection("--grep", "x", "--grep-in", "keys, body").content.grep_in == {"keys", "body"}
    with pytest.raises(BadInput, match="filter, character 2"):
        selection("--where", "(")
    with pytest.raises(BadInput, match="--grep-in needs --grep"):
        selection("--grep-in", "keys")


def test_times_in_the_wrong_order_are_refused():
    with pytest.raises(BadInput, match="--since is after --until"):
        selection("--since", "2026-11-21", "--until", "2026-11-20")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("find", "-o", "jsonl"), id="find"),
        pytest.param(("export", "OUT"), id="export"),
        pytest.param(("sql", "SELECT queue_offset FROM messages"), id="sql"),
    ],
)
def test_a_range_of_times_in_a_long_log_says_what_it_relies_on_unless_all_is_read(
    run, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -1)
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=8192)
    words = [str(tmp_path / "out.csv") if each == "OUT" else each for each in command]
    options = ("--store", made.path, "--since", made.records[150].store_timestamp_ms)
    done = run(*words, *options)
    assert done.code == 0, done.err
    assert "store times" not in done.err
    assert "(-v: 2 notes)" in done.err
    again = ("--overwrite",) if "OUT" in command else ()
    done = run(*words, *options, "-v", *again)
    assert "store times rise along the log" in done.err
    whole = run(*words, *options, "-v", "--exhaustive", *again)
    assert whole.code == 0, whole.err
    assert "store times rise" not in whole.err
    assert whole.out == done.out

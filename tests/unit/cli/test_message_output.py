"""How `find`, `show` and `tail` print messages."""

import csv
import io
import json
from base64 import b64decode

import pytest


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

"""``rocketlens find``."""

import json
import os
import re
import signal
from types import SimpleNamespace

import pytest

from rocketlens import Coverage, open_store
from rocketlens.cli import printing as table
from rocketlens.terminal import as_json
from tests.support.json_messages import body_of

NOON_MS = 1_790_000_000_000


@pytest.fixture
def golden_store(golden):
    return golden("5.5.0")


@pytest.fixture
def sent(golden_store):
    """One that was sent and stored once, with a key that only it has."""
    sent = [one for one in golden_store.sent if (one["keys"] or "").startswith("batch-")]
    return SimpleNamespace(**sent[0])


def found_by(run, store, *arguments):
    done = run("find", *arguments, "--store", store, "-o", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)["messages"]


@pytest.mark.parametrize(
    "case",
    [
        (["k topic:A"], [0, 2]),
        (["topic:A", "k"], [0, 2]),
        (['tag:"x || y"', "topic:*"], [0, 1]),
        (["--tag", "x"], [0]),
        (["topic:A", f"since:{NOON_MS + 1}", "until:2099-01-01"], [2]),
        (["key:k", "tag:y"], [1]),
        (["source:kept", "topic:A"], [0, 2]),
        (["--key", "topic:A"], [3]),
        (["topic:A", "--kind", "key"], [3]),
    ],
)
def test_find_takes_the_words_of_the_search_box(run, write_store, case, monkeypatch, tmp_path):
    arguments, found = case
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    store = write_store(
        {"topic": "A", "properties": {"KEYS": "k", "TAGS": "x"}, "store_timestamp_ms": NOON_MS},
        {"topic": "B", "properties": {"KEYS": "k", "TAGS": "y"}, "store_timestamp_ms": NOON_MS},
        {"topic": "A", "properties": {"KEYS": "k"}, "store_timestamp_ms": NOON_MS + 2},
        {"topic": "B", "properties": {"KEYS": "topic:A"}, "store_timestamp_ms": NOON_MS},
    )
    assert run("context", "add", "kept", "--store", store).code == 0
    where = [] if "source:kept" in arguments else ["--store", store]
    done = run("find", *arguments, *where, "-o", "json")
    assert done.code == 0, done.err
    offsets = sorted(m["physical_offset"] for m in json.loads(done.out)["messages"])
    all_of_store = json.loads(run("find", "--store", store, "--topic", "*", "-o", "json").out)
    known = sorted(m["physical_offset"] for m in all_of_store["messages"])
    assert [known.index(each) for each in offsets] == found


def test_words_that_find_nothing_name_the_option_for_a_key_like_them(run, write_store):
    done = run("find", "topic:A x", "--store", write_store({"topic": "A"}))
    assert "--key 'topic:A x' finds the text" in done.err


def test_max_gives_the_newest_and_says_that_there_are_more(run, write_store):
    store = write_store(*({"properties": {"KEYS": "k"}} for _ in range(5)))
    done = run("find", "k", "--store", store, "--max", 2, "-o", "json")
    answer = json.loads(done.out)
    assert [m["queue_offset"] for m in answer["messages"]] == [3, 4]
    assert answer["truncated"] is True
    assert (
        "(more match: these are the newest)" in run("find", "k", "--store", store, "--max", 2).err
    )


def test_json_has_the_fields_of_the_api(run, golden_store, sent):
    done = run("find", sent.msg_id, "--store", golden_store.store, "-o", "json")
    answer = json.loads(done.out)
    assert list(answer) == ["query", "complete", "truncated", "coverage", "messages"]
    assert (answer["query"], answer["complete"], answer["truncated"]) == (sent.msg_id, True, False)
    fields = set(Coverage.__struct_fields__)
    assert {frozenset(coverage) for coverage in answer["coverage"]} == {frozenset(fields)}
    with open_store(golden_store.store) as store:
        message = store.view_message(sent.msg_id)
    (shown,) = answer["messages"]
    assert body_of(shown) == message.body
    del shown["body"], shown["body_encoding"]
    assert (shown.pop("state"), shown.pop("real_topic")) == ("stored", message.topic)
    for name, value in shown.items():
        expected = getattr(message, name)
        assert value == {
            "keys": list(message.keys),
            "properties": dict(message.properties),
            "born_host": str(message.born_host),
            "store_host": str(message.store_host),
        }.get(name, expected)
    assert {*shown, "body"} == set(message.__slots__)


def test_jsonl_gives_a_message_a_line_and_coverage_on_stderr(run, damaged):
    done = run("find", "k", "--store", damaged, "-o", "jsonl")
    assert [json.loads(line)["queue_offset"] for line in done.out.splitlines()] == [0, 2]
    assert done.code == 3
    assert "INCOMPLETE" in done.err
    assert "failed: commitlog" in done.err


def test_jsonl_of_a_time_range_is_the_same_as_json(run, golden_store):
    arguments = ("--topic", "OrderTopic", "--store", golden_store.store)
    lines = run("find", *arguments, "-o", "jsonl")
    whole = run("find", *arguments, "-o", "json")
    assert [json.loads(line) for line in lines.out.splitlines()] == json.loads(whole.out)[
        "messages"
    ]
    assert lines.code == whole.code == 0
    assert "COMPLETE" in lines.err


def test_exit_code_3_is_incomplete_found_or_not(run, damaged):
    done = run("find", "k", "--store", damaged, "-o", "json")
    answer = json.loads(done.out)
    assert (done.code, answer["complete"], len(answer["messages"])) == (3, False, 2)
    assert [c["error"] for c in answer["coverage"] if c["state"] == "failed"]
    assert run("find", "--topic", "T", "--store", damaged).code == 3
    assert run("find", "--topic", "T", "--store", damaged, "-o", "jsonl").code == 3
    damaged_position = run("find", "T/0/1", "--store", damaged)
    assert (damaged_position.code, damaged_position.out) == (3, "")


def test_a_table_in_a_pipe_is_tab_separated_with_a_head(run, golden_store, sent):
    done = run("find", sent.msg_id, "--store", golden_store.store)
    head, row = done.out.splitlines()
    assert head.split("\t") == [
        *("time", "topic", "tags", "keys", "id", "position", "size", "body")
    ]
    fields = dict(zip(head.split("\t"), row.split("\t"), strict=True))
    assert fields["id"] == sent.msg_id
    assert fields["position"] == f"{sent.topic}/{sent.queue_id}/{sent.queue_offset}"
    assert fields["size"] == str(sent.body_len)


def test_data_goes_to_stdout_and_notes_to_stderr(run, golden_store, sent):
    done = run("find", sent.msg_id, "--store", golden_store.store)
    assert "COMPLETE" in done.err
    assert "COMPLETE" not in done.out
    assert run("find", "nothing", "--store", golden_store.store).out == ""


def test_control_characters_of_a_message_never_reach_a_terminal(run, write_store):
    evil = "\x1b]0;owned\x07\x9b31m\x7f\u202e\r\n"
    store = write_store(
        {"body": evil.encode(), "properties": {"KEYS": "k" + evil.strip(), "TAGS": evil}}
    )
    for output in ("table", "json", "jsonl"):
        done = run("find", "--topic", "T", "--store", store, "-o", output)
        assert done.code == 0
        printed = done.out + done.err
        assert not {"\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\r"} & set(printed)
    answer = json.loads(run("find", "--topic", "T", "--store", store, "-o", "json").out)
    assert answer["messages"][0]["tags"] == evil


def test_the_store_can_come_from_the_environment(run, golden_store, sent, monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", str(golden_store.store))
    assert run("find", sent.msg_id).code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to find"),
        (("",), "key is empty"),
        (("k", "--since", "yesterday-ish"), "--since 'yesterday-ish' is not a time"),
        (("k", "--since", "now", "--until", "2h"), "--since is after --until"),
        (("--kind", "key"), "there is no TEXT"),
        (("k", "--max", "0"), "--max"),
        (("k", "--max", "many"), "--max"),
        (("k", "--max", "9" * 5000), "--max"),
        (("k", "--kind", "guess"), "--kind"),
        (("k", "-o", "xml"), "-o"),
        (("x" * 1_000_000,), "1,000,000 bytes"),
        (("not-an-id", "--kind", "offset-id"), "32 hex digits"),
        (("G" * 32, "--kind", "offset-id"), "expected hex digits only"),
        (("FF" * 16, "--kind", "offset-id"), "port"),
        (("T/0", "--kind", "queue-offset"), "TOPIC/QUEUE/OFFSET"),
        (("T/0/" + "9" * 19, "--kind", "queue-offset"), None),
        (("../../etc/0/0", "--kind", "queue-offset"), "not a valid topic name"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(run, golden_store, arguments, says):
    done = run("find", *arguments, "--store", golden_store.store)
    assert done.code == (2 if says else 1)
    assert "Traceback" not in done.err
    if says:
        assert says in done.err
        assert done.err.count("\n") == 1
        assert len(done.err) < 500
        assert done.out == ""


@pytest.mark.parametrize("text", ["7F", "G" * 32, "00" * 28, "T/0/99999", "a/b/c", "/0/0", "支付"])
def test_an_id_that_is_none_is_not_found_and_no_failure(run, golden_store, text):
    done = run("find", text, "--store", golden_store.store)
    assert (done.code, done.out) == (1, "")


def test_neither_store_nor_name_server_gives_one_line(run):
    done = run("find", "k")
    assert done.code == 2
    assert done.err == (
        "rocketlens: no source is named: give --store DIR, the directory that holds "
        "commitlog/, --namesrv ADDR or --context NAME, or set ROCKETLENS_STORE or NAMESRV_ADDR\n"
    )


def test_a_directory_that_is_no_store_gives_one_line(run, tmp_path):
    done = run("find", "k", "--store", tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    for path in (tmp_path / "missing", __file__, "\0", "x" * 5000):
        done = run("find", "k", "--store", path)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_store_beside_or_inside_is_suggested(run, golden_store):
    for near in (golden_store.path, golden_store.store / "commitlog"):
        done = run("find", "k", "--store", near)
        assert done.code == 2
        assert f"did you mean {golden_store.store}?" in done.err


def test_a_directory_that_may_not_be_read_is_named(run, unreadable):
    done = run("find", "k", "--store", unreadable)
    assert done.code == 2
    assert str(unreadable) in done.err
    assert "Traceback" not in done.err


def test_json_of_an_incomplete_answer_says_on_stderr_what_is_missing(run, damaged):
    done = run("find", "k", "--store", damaged, "-o", "json")
    assert done.code == 3
    assert json.loads(done.out)["complete"] is False
    assert "INCOMPLETE" in done.err
    assert "failed: " in done.err
    assert "checksum" in done.err


def test_json_of_a_complete_answer_says_nothing_on_stderr(run, write_store):
    done = run("find", "k", "--store", write_store({"properties": {"KEYS": "k"}}), "-o", "json")
    assert (done.code, done.err) == (0, "")


def lines_of_offsets(text):
    return [json.loads(line)["physical_offset"] for line in text.splitlines()]


def interrupt_after(monkeypatch, count):
    """Press Ctrl-C when so many messages were printed."""
    seen = []
    write = as_json.write_message

    def write_and_interrupt(message, *arguments, **options):
        write(message, *arguments, **options)
        seen.append(message)
        if len(seen) == count:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(as_json, "write_message", write_and_interrupt)


def test_ctrl_c_shows_what_was_found_so_far_and_says_that_there_may_be_more(
    run, golden, monkeypatch
):
    store = golden("5.5.0").store
    everything = lines_of_offsets(run("find", "--topic", "*", "--store", store, "-o", "jsonl").out)
    interrupt_after(monkeypatch, 5)
    done = run("find", "--topic", "*", "--store", store, "-o", "jsonl")
    assert done.code == 130
    found = lines_of_offsets(done.out)
    assert 5 <= len(found) < len(everything)
    assert found == everything[: len(found)]
    assert "INCOMPLETE" in done.err
    assert "were not read" in done.err
    assert "interrupted: this is what was found until then (exit code 130)" in done.err


def test_a_search_that_the_caller_ends_is_incomplete(golden):
    reports = []

    def report(*numbers):
        reports.append(numbers)
        return False

    with open_store(golden("5.5.0").store, on_progress=report) as store:
        answer = store.find(topic="PayTopic")
    assert not answer.complete
    [(read_bytes, total_bytes, messages)] = reports
    assert 0 < read_bytes < total_bytes == 889_173
    assert 0 < len(answer) < messages < 1000


@pytest.mark.parametrize("columns", [80, 200])
def test_a_table_on_a_terminal_is_printed_while_it_is_read(golden, run, monkeypatch, columns):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run("find", "--topic", "*", "--store", golden("5.5.0").store, "--no-pager")
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(table.cells, lines)) <= columns
    with open_store(golden("5.5.0").store) as store:
        messages = list(store.scan())
    for message in messages:
        assert message.msg_id in done.out
    assert len(lines) == (len(messages) + 1 if columns == 200 else 2 * len(messages) + 2)
    assert f"{len(messages):,} messages, COMPLETE" in done.err


@pytest.fixture
def orders(write_store):
    bodies = [b'{"amount": 120}', b'{"amount": 80}', b"amount 300", bytes(range(128, 256))]
    return write_store(
        *(
            {"body": body, "properties": {"KEYS": f"K{number}", "TAGS": f"t{number % 2}"}}
            for number, body in enumerate(bodies)
        )
    )


@pytest.mark.parametrize(
    ("options", "found", "code"),
    [
        (["--where", "tag = 't0' AND key <> 'K2'"], [0], 0),
        (["--where", "key = 'K0' AND body.$.amount > 100"], [0], 0),
        (["--where", "key = 'K0' AND body.$.amount > 200"], [], 1),
        (["--where", "key <> 'K3' AND body.$.amount > 100"], [0], 0),
        (["--where", "body.$.amount > 100"], [0], 3),
        (["--grep", "amount"], [0, 1, 2], 3),
        (["--grep", "^amount [0-9]+$", "--max", "1"], [2], 3),
        (["--grep", "K[12]", "--grep-in", "keys"], [1, 2], 0),
        (["K1", "--grep", "80"], [1], 0),
    ],
)
def test_messages_are_found_by_what_is_in_them(run, orders, options, found, code):
    expected = [f"T/0/{number}" for number in found]
    for output in (
        ["-o", "jsonl", "--fields", "position"],
        ["--fields", "position"],
        ["-o", "json"],
    ):
        done = run("find", "--store", orders, *options, *output)
        assert done.code == code, done.err
        if output[-1] == "json":
            positions = [
                f"T/0/{message['queue_offset']}" for message in json.loads(done.out)["messages"]
            ]
        elif output[0] == "-o":
            positions = [json.loads(line)["position"] for line in done.out.splitlines()]
        else:
            positions = done.out.splitlines()[1:]
        assert positions == expected
        if code == 3:
            assert "failed: filter: 1 message, the first T/0/3: its format is not known" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--where", "tag == 'x'"], "filter, character 6"),
        (["--grep", "("], "missing )"),
        (["--grep-in", "keys"], "--grep-in needs --grep"),
        (["--grep", "x", "--grep-in", "head"], "head is not one of body, keys, properties"),
        (["--grep", "x", "--body-rules", "missing.toml"], "rules for bodies"),
    ],
)
def test_a_filter_that_is_not_well_formed_is_refused_in_one_line(run, orders, options, said):
    done = run("find", "--store", orders, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


@pytest.mark.parametrize("word", [["broker:x"], ["--where", "broker = 'x'"]])
def test_a_store_says_that_it_does_not_name_its_broker(run, orders, word):
    done = run("find", "--store", orders, *word)
    assert (done.code, done.out) == (1, "")
    assert "the broker of these messages is not known: no condition on it holds" in done.err


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--sort", "-size"], [3, 0, 1, 2]),
        (["--sort=-size", "--max", "2"], [3, 2]),
        (["--sort", "body.$.amount"], [1, 0, 2, 3]),
        (["--sort", "-body.$.amount,-keys", "-o", "jsonl"], [0, 1, 3, 2]),
        (["--sort", "tag, -prop.KEYS", "-o", "json"], [2, 0, 3, 1]),
        (["--sort", "time"], [0, 1, 2, 3]),
        (["--sort", "-queue_offset", "--where", "key IN ('K1', 'K2')"], [2, 1]),
    ],
)
def test_what_was_found_is_sorted_by_values(run, orders, options, found):
    done = run("find", "-t", "T", "--store", orders, "--fields", "keys", *options)
    assert done.code == 0, done.err
    assert re.findall(r"K\d", done.out) == [f"K{number}" for number in found]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sort", "-stor_time"], "--sort: messages have no value 'stor_time'; did you mean"),
        (["--sort", ""], "--sort: messages have no value ''"),
        (["--sort", "time", "--cursor", "begin"], "leave out --sort"),
    ],
)
def test_an_order_that_cannot_be_is_refused_in_one_line(run, orders, options, said):
    done = run("find", "-t", "T", "--store", orders, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_the_name_of_a_topic_is_told_to_be_one(run, golden):
    done = run("find", "PayTopic", "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "PayTopic is a topic: rocketlens find --topic PayTopic lists" in done.err


def test_keys_copied_together_are_told_apart(run, golden):
    done = run("find", "u15 order-42", "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "search for one of u15, order-42" in done.err


def test_nothing_is_guessed_where_something_was_found_or_nothing_is_like_it(run, golden):
    store = golden("5.5.0").store
    for text in ("order-42", "no-such-key"):
        done = run("find", text, "--store", store)
        assert "is a topic" not in done.err
        assert "search for one of" not in done.err


@pytest.mark.parametrize("form", ["table", "jsonl", "json"])
def test_a_key_in_another_case_is_looked_up_and_told(run, golden, form):
    done = run("find", "K0", "--store", golden("5.5.0").store, "-o", form)
    assert done.code == 1
    assert "nothing has the key K0; k0 has 3 messages: case matters in keys" in done.err


def test_a_unique_key_in_small_letters_is_told(run, golden):
    sent = golden("5.5.0").sent[0]
    done = run("find", sent["msg_id"].lower(), "--store", golden("5.5.0").store)
    assert f"; {sent['msg_id']} has " in done.err


@pytest.mark.parametrize(
    "arguments",
    [("k0",), ("K0", "-t", "OrderTopic"), ("K0", "--kind", "offset-id"), ("K0 x",), ("12345",)],
)
def test_no_other_case_is_told_where_it_has_nothing_or_is_no_key(run, golden, arguments):
    done = run("find", *arguments, "--store", golden("5.5.0").store)
    assert "case matters" not in done.err


def test_no_other_case_is_looked_up_where_the_answer_is_incomplete(run, copy):
    sorted((copy / "commitlog").iterdir())[1].unlink()
    done = run("find", "K0", "--store", copy)
    assert done.code == 3
    assert "case matters" not in done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-1], "a digit missing ({} of {})"),
        (lambda text: text + "0", "a digit too many ({}, and not {})"),
        (lambda text: text.replace("0", "O"), "letters for digits (O for 0): search for {2}"),
    ],
    ids=["short", "long", "letters"],
)
@pytest.mark.parametrize("kind", ["msg_id", "offset_msg_id"])
def test_an_id_with_a_small_mistake_is_told_to_look_like_one(run, golden, kind, change, said):
    sent = golden("5.5.0").sent[0]
    text = change(sent[kind])
    done = run("find", text, "--store", golden("5.5.0").store)
    assert done.code == 1
    said = said.format(len(text), len(sent[kind]), sent[kind])
    assert f"this looks like a message id with {said}\n" in done.err


def test_a_key_is_not_told_to_look_like_an_id(run, golden):
    nearly = golden("5.5.0").sent[0]["msg_id"][:-1]
    done = run("find", "--key", nearly, "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "looks like" not in done.err

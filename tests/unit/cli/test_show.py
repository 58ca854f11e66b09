"""``rocketlens show``."""

import hashlib
import json
import re
from types import SimpleNamespace

import pytest

from tests.support.written_bodies import body as written_body


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

"""Values of messages, by their names."""

import gzip
import json

import pytest
from msgspec.structs import replace

from rocketlens import open_store
from rocketlens.errors import BadInput
from rocketlens.model.fields import FIELDS
from rocketlens.terminal import message_values as values
from rocketlens.terminal.message_values import BodyView, body_text
from tests.support.written_bodies import body as written_body


@pytest.fixture
def message(write_store):
    store = write_store(
        {"topic": "Orders", "properties": {"KEYS": "K1 订单", "city": "=1+1"}, "body": b'{"a": 1}'}
    )
    with open_store(store) as opened:
        (found,) = opened.find(topic="Orders").messages
    return found


def test_every_value_has_a_text(message):
    texts = {name: values.shown(message, name, BodyView()) for name in FIELDS}
    assert texts["position"] == "Orders/0/0"
    assert texts["keys"] == "K1 订单"
    assert texts["unique_key"] == ""
    assert texts["body"] == '{"a": 1}'
    assert json.loads(texts["properties"])["city"] == "=1+1"
    assert values.shown(message, "properties.city", BodyView()) == "=1+1"
    assert values.shown(message, "properties.none", BodyView()) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tag", ""),
        ("key", "K1 订单"),
        ("id", "msg_id"),
        ("time", "store_time"),
        ("born", "born_time"),
        ("prop.city", "=1+1"),
        ("properties.city", "=1+1"),
        ("body.$.a", "1"),
        ("state", "stored"),
    ],
)
def test_a_value_has_all_names_of_its_field(message, name, text):
    if text in FIELDS:
        text = values.shown(message, text, BodyView())
    values.check_value_name(name, "--fields")
    assert values.shown(message, name, BodyView()) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\r=1", "＝1"])
def test_a_text_that_a_spreadsheet_would_compute_is_defused(text):
    assert values.safe_cell(text) == "'" + text


@pytest.mark.parametrize(("value", "cell"), [(-1, "-1"), ("a=b", "a=b"), (None, ""), ("", "")])
def test_other_cells_stay_as_they_are(value, cell):
    assert values.safe_cell(value) == cell


def test_a_template_is_filled(message):
    template = values.Template(r"{topic}\t{properties.city} {{{body}}}")
    assert template.text(message, BodyView()) == 'Orders\t=1+1 {{"a": 1}}\n'
    assert values.Template(r"{id}\0").text(message, BodyView()).endswith("\0")
    assert values.Template(r"\\n").text(message, BodyView()) == "\\n\n"


@pytest.mark.parametrize("template", ["{topic", "{}", "{topic!r}", "{topic:>9}", "{a.__class__}"])
def test_a_template_that_is_not_well_formed_is_refused(template):
    with pytest.raises(BadInput, match="--format"):
        values.Template(template)


def test_a_name_that_is_not_known_is_refused_with_what_was_meant():
    with pytest.raises(BadInput, match="did you mean position"):
        values.value_names("time,positon")


GBK = "订单已支付,等待发货。"
BINARY = bytes(range(128, 256))
BODIES = {
    "json": b'{"a": 1}',
    "hessian": written_body("order.hessian"),
    "gbk": written_body("text.gbk"),
    "binary": BINARY,
    "gzip": gzip.compress(b'{"b": 2}'),
}


@pytest.fixture
def with_body(write_store):
    with open_store(write_store({})) as opened:
        (found,) = opened.find(topic="T").messages
    return found


@pytest.fixture
def store(write_store):
    return write_store(*({"body": body} for body in BODIES.values()))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"two\nlines", "two\\nlines"),
        ("支付".encode() * 100, "支付" * 40),
        (b"x" + "支付".encode() * 100, "x" + "支付" * 39 + "支"),
        (BINARY, f"0x{BINARY[:60].hex()}"),
        (written_body("text.gbk"), GBK),
        (written_body("json.gzip"), None),
        (GBK.encode("gbk") * 10_000, None),
    ],
)
def test_the_start_of_a_body_is_text_decoded_if_need_be_on_one_line(with_body, body, shown):
    preview = BodyView().preview(replace(with_body, body=body))
    if shown is None:
        assert preview.startswith("0x" if len(body) > 100_000 else "{")
    else:
        assert preview == shown


def test_rules_that_cannot_be_read_are_refused_at_once(tmp_path):
    with pytest.raises(BadInput, match="rules for bodies"):
        BodyView("decoded", str(tmp_path / "missing.toml"))


def test_find_shows_decoded_bodies_in_each_output(run, store):
    options = ("find", "-t", "T", "--store", store, "--body", "decoded")
    lines = [json.loads(line) for line in run(*options, "-o", "jsonl").out.splitlines()]
    assert lines[0]["body"] == {"a": 1}
    assert lines[1]["body"]["buyer"] == "王小明 😀"
    assert lines[2]["body"].rstrip() == GBK
    encodings = [line["body_encoding"] for line in lines]
    assert encodings == ["json", "json", "text", "base64", "json"]
    assert lines[4]["body"] == {"b": 2}
    rows = run(*options, "-o", "csv", "--fields", "position,body").out
    assert 'T/0/0,"{""a"":1}"\n' in rows
    assert f"T/0/3,0x{BINARY.hex()}" in rows
    assert "王小明" in run(*options).out
    assert GBK in run(*options, "--format", "{position} {body}").out
    (answer,) = (json.loads(run(*options, "-o", "json").out),)
    assert answer["messages"][4]["body"] == {"b": 2}
    tail = run("tail", "-t", "T", "--store", store, "--body", "decoded", "-o", "jsonl")
    assert [json.loads(line) for line in tail.out.splitlines()] == lines


def test_a_table_shows_the_start_of_bodies_that_are_not_utf_8(run, store):
    shown = run("find", "-t", "T", "--store", store).out
    assert "王小明" in shown
    assert GBK in shown
    assert '{"b": 2}' in shown


def test_rules_say_how_bodies_are_decoded(run, store, tmp_path):
    rules = tmp_path / "bodies.toml"
    rules.write_text('[[body]]\ntopic = "T"\ncharset = "latin-1"')
    options = ("--body", "decoded", "--body-rules", rules, "--fields", "body", "-o", "jsonl")
    done = run("find", "T/0/3", "--store", store, *options)
    assert json.loads(done.out) == {"body": BINARY.decode("latin-1"), "body_encoding": "text"}
    shown = run("show", "T/0/1", "--store", store, "-o", "json", "--body", "decoded")
    assert json.loads(shown.out)["messages"][0]["body"]["buyer"] == "王小明 😀"


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (b"a\nb", None, "a\nb"),
        (b"\xff", "text", "0xff"),
        (b'{ "n": 1.10 }', "json", '{"n":1.10}'),
        (b"a\nb", "json", '"a\\nb"'),
        (b"\xff", "json", '{"base64": "/w=="}'),
        (b"\xff", "base64", "/w=="),
    ],
)
def test_a_body_has_the_form_that_is_asked_for(body, form, text):
    assert body_text(body, form) == text

"""Values of messages, by their names."""

import json

import pytest

from rocketlens import open_store
from rocketlens.errors import BadInput
from rocketlens.terminal import message_values as values
from rocketlens.terminal.message_values import BodyView


@pytest.fixture
def message(write_store):
    store = write_store(
        {"topic": "Orders", "properties": {"KEYS": "K1 订单", "city": "=1+1"}, "body": b'{"a": 1}'}
    )
    with open_store(store) as opened:
        (found,) = opened.find(topic="Orders").messages
    return found


def test_every_value_has_a_text(message):
    texts = {name: values.text_of(message, name, BodyView()) for name in values.VALUE_NAMES}
    assert texts["position"] == "Orders/0/0"
    assert texts["keys"] == "K1 订单"
    assert texts["unique_key"] == ""
    assert texts["body"] == '{"a": 1}'
    assert json.loads(texts["properties"])["city"] == "=1+1"
    assert values.text_of(message, "properties.city", BodyView()) == "=1+1"
    assert values.text_of(message, "properties.none", BodyView()) == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\r=1", "＝1"])
def test_a_text_that_a_spreadsheet_would_compute_is_defused(text):
    assert values.defused(text) == "'" + text


@pytest.mark.parametrize(("value", "cell"), [(-1, "-1"), ("a=b", "a=b"), (None, ""), ("", "")])
def test_other_cells_stay_as_they_are(value, cell):
    assert values.defused(value) == cell


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

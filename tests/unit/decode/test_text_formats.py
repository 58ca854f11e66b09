"""JSON and XML are read, within bounds, and nothing that XML refers to."""

import json

import pytest

from rocketlens.decode.text_formats import may_be_json, read_json, read_xml
from rocketlens.errors import BodyError, BodyTooLarge


@pytest.mark.parametrize(
    "text", ["{", "", "nope", '{"a":1}x', "[" * 100_000, "[" * 101 + "]" * 101]
)
def test_what_is_not_json_or_too_deep_is_refused(text):
    with pytest.raises(BodyError):
        read_json(text)


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(BodyError, match="not JSON"):
        read_json("1" * 5_000)


def test_only_objects_arrays_and_strings_are_taken_for_json():
    assert all(map(may_be_json, ['{"a":1}', " [1]", '"a"']))
    assert not any(map(may_be_json, ["17", "true", "hello", ""]))


def test_what_has_too_many_values_is_refused_before_they_are_made():
    with pytest.raises(BodyTooLarge, match="more than 200000 values"):
        read_json("[" + "0," * 250_000 + "0]")
    with pytest.raises(BodyTooLarge, match="more than 200000 values"):
        read_json("[" + "[]," * 450_000)
    assert read_json(json.dumps({"csv": "1," * 300_000}))["csv"][-2:] == "1,"


def test_elements_attributes_and_text_are_read():
    text = '<order id="7"><item>A9</item><item n="2">B1</item><note/> tail </order>'
    assert read_xml(text) == {
        "order": {
            "@id": "7",
            "item": ["A9", {"@n": "2", "#text": "B1"}],
            "note": "",
            "#text": " tail ",
        }
    }
    assert read_xml("<?xml version='1.0' encoding='gbk'?><a>王 &amp; &#x41;</a>") == {"a": "王 & A"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<a>", "not well-formed"),
        ("<a></b>", "not well-formed"),
        ("", "not well-formed"),
        ("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "document type"),
        ("<!DOCTYPE a><a/>", "document type"),
        ("<a>&b;</a>", "not well-formed"),
        ("<a>" * 200, "levels deep"),
        ("<a>" + "<b/>" * 200_001 + "</a>", "more than"),
    ],
)
def test_what_is_not_read_of_xml_is_refused(text, says):
    with pytest.raises(BodyError, match=says):
        read_xml(text)

"""XML is read, and nothing that it refers to."""

import pytest

from rocketlens.decode.xml_body import read_xml
from rocketlens.errors import BodyError


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
def test_what_is_not_read_is_refused(text, says):
    with pytest.raises(BodyError, match=says):
        read_xml(text)

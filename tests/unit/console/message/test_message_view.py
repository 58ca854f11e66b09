"""Messages as values: previews, bodies in each form, ids decoded."""

import base64
import json

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.console.message.message_view import (
    BODY_FORMS,
    MAX_PAGE_BODY_CHARACTERS,
    body_of,
    decoded_ids,
    deliveries_after_the_first,
    detail_of,
    row_of,
)
from rocketlens.console.values import MessageRow
from rocketlens.decode.rules import BodyRules
from rocketlens.model.message_id import UniqueKey
from tests.support.made_stores import NOW_MS, Sent, make_store

RULES = BodyRules()


def message_with(tmp_path, body, **others):
    made = make_store(tmp_path / "store", [Sent(keys="k", body=body, **others)])
    with rocketlens.open_store(made.path) as store:
        return store.find("k")[0]


def test_a_row_has_the_address_of_its_page(tmp_path):
    message = message_with(tmp_path, b"{}", topic="%RETRY%g")
    row = row_of(message, "prod", "broker a/b", RULES)
    assert row.path == "/m/prod/%25RETRY%25g/broker%20a%2Fb/0/0"
    assert row.topic_kind == "retry"


@pytest.mark.parametrize(
    ("body", "name", "preview"),
    [
        (b"", "text", ""),
        (b'{"a":\n  1.10}', "json", '{"a": 1.10}'),
        ("订单".encode(), "text", "订单"),
        ("订单编号已经支付".encode("gb18030"), "text", "订单编号已经支付"),
        (b"\x00\xff\xfe", "binary", "0x00fffe"),
        (b"a\x1b[31mb\xe2\x80\xae", "text", "a\\x1b[31mb\\u202e"),
        ("€".encode() * limits.MAX_PREVIEW_BYTES, "text", "€" * 159 + "…"),
    ],
    ids=range(7),
)
def test_a_preview_is_short_and_safe(tmp_path, body, name, preview):
    row = row_of(message_with(tmp_path, body), "s", "b", RULES)
    assert (row.body_format, row.preview) == (name, preview)


@pytest.mark.parametrize("form", BODY_FORMS)
@pytest.mark.parametrize(
    "body",
    [b"", b'{"n": 12345678901234567890.10}', b"\xff\x00\x01", b"plain", b"\x08\x96\x01\x10\x02"],
)
def test_a_body_is_shown_in_every_form(tmp_path, body, form):
    value = body_of(message_with(tmp_path, body), RULES, form)
    assert not value.is_cut
    if form == "base64":
        assert base64.b64decode(value.content) == body
    elif form == "hex":
        digits = [line[10:58] for line in value.content.splitlines()]
        assert bytes.fromhex("".join(digits)) == body
    elif form in {"json", "decoded"} and value.is_json:
        json.loads(value.content)
        assert value.format != "json" or value.content.encode() == body


def test_a_long_body_is_cut_and_says_so(tmp_path):
    message = message_with(tmp_path, b"x" * (MAX_PAGE_BODY_CHARACTERS + 1))
    for form in BODY_FORMS:
        value = body_of(message, RULES, form)
        assert value.is_cut or not value.content
        assert len(value.content) <= MAX_PAGE_BODY_CHARACTERS


def test_ids_are_decoded(tmp_path):
    stored_ms = 1_700_000_000_000
    key = UniqueKey.at(stored_ms, "10.0.0.7", process_id=8, client_hash=9, counter=3).encode()
    message = message_with(tmp_path, b"x", unique_key=key, store_timestamp_ms=stored_ms)
    unique, offset = decoded_ids(message)
    parts = {each.name: each.value for each in unique.parts}
    assert (parts["client_address"], parts["process_number"]) == ("10.0.0.7", "8")
    assert (parts["made_about"], parts["counter"]) == (str(stored_ms), "3")
    assert {each.name: each.value for each in offset.parts} == {
        "store_host": str(message.store_host),
        "physical_offset": "0",
    }


def test_an_id_of_another_form_has_no_parts(tmp_path):
    message = message_with(tmp_path, b"x", unique_key="my-own-id")
    assert decoded_ids(message)[0].parts == []


def test_properties_are_those_of_the_producer_and_of_rocketmq(tmp_path):
    message = message_with(tmp_path, b"x", tags="T", named=(("mine", "1"),))
    row = row_of(message, "s", "b", RULES)
    detail = detail_of(message, row, RULES, "decoded")
    assert detail.properties == {"mine": "1"}
    assert detail.system_properties["TAGS"] == "T"


@pytest.mark.parametrize(
    ("kind", "times", "shown"),
    [("dead_letter", 3, 2), ("dead_letter", 0, 0), ("retry", 2, 2), ("normal", 0, 0)],
)
def test_a_dead_letter_was_delivered_again_as_often_as_its_story_says(kind, times, shown):
    row = MessageRow.model_construct(topic_kind=kind, reconsume_times=times)
    assert deliveries_after_the_first(row) == shown


@pytest.mark.parametrize(
    ("topic", "named", "due_ms"),
    [
        ("SCHEDULE_TOPIC_XXXX", (("DELAY", "18"),), NOW_MS + 7_200_000),
        ("rmq_sys_wheel_timer", (("TIMER_OUT_MS", str(NOW_MS + 5)),), NOW_MS + 5),
        ("Orders", (("DELAY", "18"),), None),
    ],
)
def test_a_message_that_is_kept_for_later_says_when_it_is_due(tmp_path, topic, named, due_ms):
    message = message_with(tmp_path, b"", topic=topic, named=named)
    assert detail_of(message, row_of(message, "s", "b", RULES), RULES, "text").due_ms == due_ms

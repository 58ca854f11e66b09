"""What is masked is masked wherever a message is shown, and cannot be found out by a search."""

import asyncio
import base64
import json

import pytest

from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import LOCAL, Grant, Role, Viewer, seen_by
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.masks import MASK, FieldPath, MaskRule, Masks
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.formats.commitlog_record import message_of
from rocketlens.query.filters.pattern import TextPattern
from tests.support.console_client import console_client, log_in, store_at
from tests.support.console_users import user
from tests.support.made_stores import Sent, make_store, record_of

VIEWER = Viewer("li", (Grant(Role.VIEWER),))
ADMIN = Viewer("root", (Grant(Role.ADMIN, topics=("order",)),))
CARD = "4111111111111111"


def message(body=b"", topic="order", **named):
    sent = Sent(topic=topic, body=body, keys="k1 k2", tags="PAY", named=tuple(named.items()))
    return message_of(record_of(sent, 0, 0)[0])


def rule(*paths, topics=("order",), properties=(), pattern=None):
    made = None if pattern is None else TextPattern(pattern)
    return MaskRule(topics, properties, tuple(map(FieldPath, paths)), made)


SOURCE = ConsoleSource()
SOURCE.name = "s"


def masked(body, *rules, viewer=VIEWER, max_body=1 << 20, **more):
    return Masks(rules).masked(message(body, **more), viewer, SOURCE, BodyRules(), max_body)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("$.a", '{"a":1,"b":2}', '{"a": "***", "b": 2}'),
        ("$.a.b", '{"a":{"b":[1],"c":1.50}}', '{"a": {"b": "***", "c": 1.50}}'),
        ("$.a[1]", '{"a":[1,2]}', '{"a": [1, "***"]}'),
        ("$[*].n", '[{"n":1},{"n":2,"m":3}]', '[{"n": "***"}, {"n": "***", "m": 3}]'),
        ("$.a.*", '{"a":{"x":1,"y":2}}', '{"a": {"x": "***", "y": "***"}}'),
        ("$['a b']", '{"a b":1}', '{"a b": "***"}'),
        ("$..n", '{"n":1,"a":[{"n":{"n":2}}]}', '{"n": "***", "a": [{"n": "***"}]}'),
        ("$..a.b", '{"x":{"a":{"b":1,"c":2}}}', '{"x": {"a": {"b": "***", "c": 2}}}'),
        ("$.a", '{"a":1,"a":2}', '{"a": "***", "a": "***"}'),
        ("$.a", r'{"\u0061":"x","b":true}', '{"a": "***", "b": true}'),
        ("$.none", '{"a":12345678901234567890.10}', '{"a": 12345678901234567890.10}'),
        ("$", '{"a":1}', '"***"'),
    ],
)
def test_a_path_masks_what_is_there_and_leaves_the_rest_as_it_was(path, body, expected):
    assert masked(body.encode(), rule(path)).body.decode() == expected


@pytest.mark.parametrize("text", ["", "a", "$a", "$.", "$[", "$.a[x]", "$.a]", "$...a", "$['']"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(BadInput):
        FieldPath(text)


@pytest.mark.parametrize(
    "body",
    [
        b"card=4111",
        b'"4111"',
        b"\x00\x01\x02\xff",
        b"\x0a\x04\x34\x31\x31\x31",
        b"[" * 100_000,
        b"\xac\xed\x00\x05\x99",
        b'{"card":4111',
    ],
)
def test_a_body_without_fields_or_that_cannot_be_read_for_sure_is_masked_whole(body):
    assert masked(body, rule("$.card")).body == MASK.encode()


def test_a_body_that_is_too_large_to_be_looked_at_is_masked_whole():
    assert masked(b'{"a":1}', rule("$.b"), max_body=6).body == MASK.encode()
    assert masked(b'{"a":1}', rule("$.b"), max_body=7).body == b'{"a": 1}'


def test_a_pattern_masks_bodies_and_properties_however_they_are_written():
    digits = rule(pattern=r"\d{16}")
    assert masked(f"card {CARD}.".encode(), digits).body == b"card ***."
    escaped = "".join(f"\\u{ord(each):04x}" for each in CARD)
    assert masked(f'{{"a":"{escaped}","b":1}}'.encode(), digits).body == b'{"a": "***", "b": 1}'
    found = masked(b"x", digits, note=f"card {CARD}")
    assert found.properties["note"] == "card ***"
    assert masked(b"\x00\x01\xff", digits).body == MASK.encode()


def test_a_text_that_takes_too_long_to_search_is_masked_whole():
    slow = rule(pattern="(a{100}){9}b")
    assert masked(b"a" * 900_000, slow).body == MASK.encode()


def test_properties_are_masked_by_name_but_not_those_that_are_searched_for():
    found = masked(
        b"body", rule(properties=("PHONE", "id_*", "*EYS")), PHONE="1", id_card="2", x="3"
    )
    assert {n: found.properties[n] for n in ("PHONE", "id_card", "x")} == {
        "PHONE": MASK,
        "id_card": MASK,
        "x": "3",
    }
    assert (found.keys, found.tags, found.body) == (("k1", "k2"), "PAY", b"body")


def test_the_checksum_of_a_masked_body_does_not_tell_it():
    whole = message(b'{"pin":"1234"}')
    found = masked(b'{"pin":"1234"}', rule("$.pin"))
    assert whole.body_crc == message(b'{"pin":"1234"}').body_crc
    assert found.body_crc == 0


def test_rules_are_for_their_topics_and_for_copies_and_not_for_administrators():
    secret = rule("$.a", topics=("ord*",))
    body = b'{"a":1}'
    assert b"***" in masked(body, secret).body
    assert masked(body, secret, topic="other").body == body
    assert b"***" in masked(body, secret, topic="%RETRY%g", RETRY_TOPIC="order").body
    assert masked(body, secret, viewer=ADMIN).body == body
    assert masked(body, secret, viewer=LOCAL).body == body
    copies = Viewer("ops", (Grant(Role.ADMIN, topics=("%RETRY%*",)), Grant(Role.VIEWER)))
    assert b"***" in masked(body, secret, viewer=copies, topic="%RETRY%g", RETRY_TOPIC="order").body


@pytest.mark.parametrize(
    ("topic", "given"),
    [
        ("%RETRY%a_b_order", {"ORIGIN_GROUP": "a_b"}),
        ("%RETRY%a_b_order", {}),
        ("%RETRY%a_b+order", {}),
    ],
)
def test_a_retry_of_pop_is_masked_by_the_topic_in_its_name(topic, given):
    body = b'{"a":1}'
    retry = {"1ST_POP_TIME": "1", **given}
    assert b"***" in masked(body, rule("$.a", topics=("ord*",)), topic=topic, **retry).body


def test_what_is_not_masked_is_the_same_message():
    whole = message(b'{"a":1}')
    rules = Masks([rule("$.a", topics=("other",)), rule(properties=("none",))])
    assert rules.masked(whole, VIEWER, SOURCE, BodyRules(), 99) is whole


SECRETS = ("S3CRET", "+86-139")
BODY = json.dumps({"card": {"number": "S3CRET"}, "name": "shown"}).encode()
RULES = [rule("$..number", properties=("PHONE",), topics=("Orders",))]


def encoded(secret):
    """Give the ways in which a secret could stand in an answer."""
    content = secret.encode()
    whole = base64.b64encode(BODY).decode()
    return secret, content.hex(), content.hex(" "), whole, base64.b64encode(content).decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    sent = [Sent(keys=f"k ORDER-{n}", body=BODY, named=(("PHONE", "+86-139"),)) for n in range(3)]
    return store_at(make_store(tmp_path_factory.mktemp("masked") / "store", sent).path, "s")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_pages_api_streams_previews_and_downloads_show_the_mask(store, role):
    at = "s/Orders/-/0/1"
    paths = [
        "/search?q=k",
        "/search/rows?q=k",
        "/search/more?q=k",
        "/api/search?q=k",
        "/api/search/stream?q=k",
        "/api/export?q=k&as=csv",
        "/api/export?q=k&as=jsonl",
        f"/m/{at}/body",
        f"/api/message/{at}/body",
        f"/api/story/{at}",
        *(f"/m/{at}?tab={each}" for each in ("body", "properties", "ids")),
        *(f"/m/{at}?form={each}" for each in ("decoded", "text", "json", "hex", "base64")),
        *(
            f"/api/message/{at}?form={each}"
            for each in ("decoded", "text", "json", "hex", "base64")
        ),
    ]

    async def run():
        known = LocalUsers([user("li", Grant(role))], Masks(RULES))
        async with console_client(store, users=known) as client:
            await log_in(client, "li")
            return [await client.get(path) for path in paths]

    leaking = []
    for path, found in zip(paths, asyncio.run(run()), strict=True):
        assert found.status_code == 200, path
        text = found.text.replace("&#34;", '"')
        if any(each in text for secret in SECRETS for each in encoded(secret)):
            leaking.append(path)
        elif "story" not in path and role is not Role.ADMIN and "hex" not in path:
            assert "***" in text or "KioqIn" in text or "tab=ids" in path, path
    if role is Role.ADMIN:
        assert len(leaking) >= len(paths) - 3
    else:
        assert leaking == []


def test_a_masked_field_cannot_be_searched_out():
    async def check(viewer, **content):
        searches = Searches(Sources([SOURCE]), BodyRules(), masks=Masks(RULES))
        with seen_by(viewer):
            searches.check(Question.read(topic="Orders", **content))

    asyncio.run(check(VIEWER))
    asyncio.run(check(LOCAL, grep="S3C"))
    for content in ({"grep": "S3C"}, {"where": "prop.PHONE = '+86-139'"}):
        with pytest.raises(BadInput, match="masked"):
            asyncio.run(check(VIEWER, **content))


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_a_filter_answers_the_same_whether_a_masked_value_matches_or_not(store, role):
    routes = [
        "/api/search",
        "/api/search/stream",
        "/api/export",
        "/search",
        "/search/rows",
        "/search/more",
    ]
    right = [
        "where=prop.PHONE+%3D+'%2B86-139'",
        "grep=S3CRET",
        "where=body.%24..number+IS+NOT+NULL",
    ]
    wrong = [
        "where=prop.PHONE+%3D+'%2B86-000'",
        "grep=OTHER0",
        "where=body.%24..numbex+IS+NOT+NULL",
    ]

    async def run():
        known = LocalUsers([user("li", Grant(role))], Masks(RULES))
        async with console_client(store, users=known) as client:
            await log_in(client, "li")
            return [
                (await client.get(f"{route}?q=k&{one}"), await client.get(f"{route}?q=k&{other}"))
                for route in routes
                for one, other in zip(right, wrong, strict=True)
            ]

    for one, other in asyncio.run(run()):
        assert one.status_code == other.status_code
        assert one.status_code == 400 or "event: failure" in one.text
        for each in (one, other):
            assert "ORDER-" not in each.text


@pytest.mark.parametrize("name", ["RETRY_TOPIC", "REAL_TOPIC", "DLQ_ORIGIN_TOPIC"])
def test_a_copy_is_masked_by_the_name_of_its_topic_in_the_namespace(name):
    shop = ConsoleSource()
    shop.name, shop.namespace = "s", "shop"
    body = b'{"card":"4111"}'
    rules = Masks([rule("$.card", topics=("order-*",))])
    copy = message(body, topic="%RETRY%shop%readers", **{name: "shop%order-9"})
    own = message(body, topic="shop%order-9")
    admin = Viewer("root", (Grant(Role.ADMIN, topics=("order-*", "%RETRY%*")),))
    for each in (copy, own):
        shown = rules.masked(each, VIEWER, shop, BodyRules(), 1000)
        assert b"4111" not in shown.body
        assert rules.masked(each, admin, shop, BodyRules(), 1000) is each


@pytest.mark.parametrize("topic", ["a%order-9", "%RETRY%a%order-9", "%DLQ%a%order-9"])
def test_a_rule_is_for_topics_of_every_namespace_also_where_the_source_has_none(topic):
    rules = Masks([rule("$.card", topics=("order-*", "%RETRY%order-*", "%DLQ%order-*"))])
    body = b'{"card":"4111"}'
    shown = rules.masked(message(body, topic=topic), VIEWER, SOURCE, BodyRules(), 1000)
    assert b"4111" not in shown.body
    other = message(body, topic="%RETRY%ordinary%9")
    assert rules.masked(other, VIEWER, SOURCE, BodyRules(), 1000) is other

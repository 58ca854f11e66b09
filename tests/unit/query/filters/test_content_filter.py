"""Filters on what is in messages: what they look at, and what they could not."""

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens import limits
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.query.filters import content_filter
from rocketlens.query.lookup import by_time
from rocketlens.query.request import FindRequest
from rocketlens.query.request import content_filter as filter_of
from rocketlens.query.tally import SearchTally
from tests.support.made_stores import Sent, flip, make_store, record_of
from tests.support.written_bodies import body as written

BODIES = {
    "json": json.dumps({"amount": 120.5, "city": "上海"}, ensure_ascii=False).encode(),
    "escaped": json.dumps({"amount": 5, "city": "上海"}).encode(),
    "gzip": gzip.compress(b'{"amount": 130}'),
    "gbk": '{"amount": 140, "city": "上海市的订单已经支付"}'.encode("gbk"),
    "hessian": written("order.hessian"),
    "text": b"[INFO] amount 150",
    "empty": b"",
}
UNREAD = {"binary": bytes(range(128, 256)), "deep": b'{"amount": ' + b"[" * 200 + b"]" * 200 + b"}"}


def sent(name, body, number, sys_flag=0):
    return Sent(
        topic="Orders",
        keys=f"{name} K-{number}",
        tags=name,
        body=body,
        sys_flag=sys_flag,
        store_timestamp_ms=1_000_000 + number,
        named=(("n", str(number)),),
    )


def store_of(path, bodies):
    return make_store(path, [sent(name, bodies[name], n) for n, name in enumerate(bodies)])


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("content") / "store", BODIES)


@pytest.fixture
def store(orders):
    with rocketlens.open_store(orders.path) as opened:
        yield opened


def tags(answer):
    assert answer.complete, answer.failures
    return [message.tags for message in answer]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"where": "body.$.amount > 100"}, ["json", "gzip", "gbk"]),
        ({"where": "body.$.amount > 100", "max_num": 1}, ["gbk"]),
        ({"where": "body.$.city CONTAINS '上海'"}, ["json", "escaped", "gbk"]),
        ({"where": "body.$.amount IS NULL"}, ["text", "empty"]),
        ({"where": "n >= 3 AND body =~ '1[45]0'"}, ["gbk", "text"]),
        ({"where": "tag = 'text' OR key = 'K-0'"}, ["json", "text"]),
        ({"where": "key = 'K-2' AND body.$.amount = 130"}, ["gzip"]),
        ({"where": "key = 'K-2' AND body.$.amount = 131"}, []),
        ({"where": "state = 'stored' AND real_topic = 'Orders' AND tags = 'gzip'"}, ["gzip"]),
        ({"where": "state <> 'stored' OR keys = 'K-0'"}, ["json"]),
        ({"where": "time > 1000004 AND topic = 'Orders'"}, ["text", "empty"]),
        ({"where": "tag IN ('gzip', 'gbk')", "begin": 1_000_003}, ["gbk"]),
        ({"grep": "上海"}, ["json", "escaped", "gbk"]),
        ({"grep": "^.INFO"}, ["text"]),
        ({"grep": "K-[01]$", "grep_in": ("keys",)}, ["json", "escaped"]),
        ({"grep": "gzip", "grep_in": ("properties",)}, ["gzip"]),
        ({"grep": "INFO|gzip", "grep_in": ("properties", "body")}, ["gzip", "text"]),
        ({"grep": "amount", "where": "n < 2"}, ["json", "escaped"]),
        ({"text": "K-2", "where": "body.$.amount = 130"}, ["gzip"]),
        ({"text": "K-2", "where": "body.$.amount = 1"}, []),
        ({"text": "Orders/0/2", "grep": "130"}, ["gzip"]),
        ({"text": "Orders/0/2", "grep": "131"}, []),
    ],
)
def test_messages_are_found_by_their_content(store, options, found):
    assert tags(store.find(**options)) == found
    assert tags(store.find(**options, exhaustive=True)) == found
    if "text" not in options:
        options = {each: options[each] for each in options if each != "max_num"}
        scan = store.scan(**options)
        scanned = [message.tags for message in scan]
        assert scanned[-1:] == found[-1:]
        assert scan.complete
        rows = store.scan(**options).to_arrow()
        assert rows["tags"].to_pylist() == scanned


def test_tail_has_the_same_filters(store):
    assert tags(store.tail("Orders", where="body.$.amount > 100", newest=2)) == ["gzip", "gbk"]
    assert tags(store.tail("Orders", grep="INFO", key="K-5")) == ["text"]


@pytest.mark.parametrize("name", UNREAD)
def test_a_body_that_cannot_be_looked_at_is_told_and_no_match(tmp_path, name, monkeypatch):
    made = store_of(tmp_path / "store", {**BODIES, name: UNREAD[name], "last": UNREAD[name]})
    with rocketlens.open_store(made.path) as store:
        answer = store.find(where="body.$.amount > 100")
        assert [message.tags for message in answer] == ["json", "gzip", "gbk"]
        assert not answer.complete
        (failed,) = answer.failures
        assert (failed.kind, failed.state) == (SourceKind.FILTER, SourceState.FAILED)
        assert "2 messages, the first Orders/0/7: " in failed.error
        scan = store.scan(where="body.$.amount > 100")
        assert len(list(scan)) == 3
        assert not scan.complete
        assert not store.tail("Orders", where="body.$.amount > 100").complete
        # What does not depend on those bodies is complete.
        assert store.find(where="n < 3 AND body.$.amount > 100").complete
        assert store.find(where="n < 90").complete
        # Each search counts for itself.
        assert "2 messages" in store.find(where="body.$.amount > 7").failures[0].error


def test_what_grows_without_bound_is_told(tmp_path):
    made = store_of(tmp_path / "store", {"bomb": gzip.compress(bytes(limits.MAX_BODY_BYTES + 1))})
    with rocketlens.open_store(made.path) as store:
        (failed,) = store.find(grep="x").failures
        assert "grows beyond" in failed.error


def test_a_rule_says_that_bodies_are_binary_or_what_they_are(tmp_path):
    made = store_of(tmp_path / "store", {"binary": UNREAD["binary"], "json": BODIES["json"]})
    rules = tmp_path / "rules.toml"
    rules.write_text('[[body]]\ntopic = "Ord*"\nformat = "binary"\n')
    with rocketlens.open_store(made.path) as store:
        assert not store.find(where="body.$.amount > 1").complete
        assert tags(store.find(where="body.$.amount > 1", body_rules=rules)) == []
        assert tags(store.find(grep="x", body_rules=str(rules))) == []
        rules.write_text('[[body]]\ntopic = "Ord*"\ncharset = "latin-1"\n')
        by_rule = BodyRules.from_file(rules)
        assert tags(store.find(grep="\xe9", body_rules=by_rule)) == ["binary"]
        with pytest.raises(BadInput, match="rules for bodies"):
            store.find(grep="x", body_rules=tmp_path / "missing.toml")


def test_what_cannot_be_decompressed_is_told(tmp_path):
    made = make_store(tmp_path / "store", [sent("zlib", zlib.compress(b"abc"), 0, COMPRESSED)])
    with rocketlens.open_store(made.path) as store:
        assert tags(store.find(grep="abc")) == ["zlib"]
    made = make_store(tmp_path / "other", [sent("zlib", b"no such data", 0, COMPRESSED)])
    with rocketlens.open_store(made.path) as store:
        (failed,) = store.find(grep="abc").failures
        assert "not zlib data" in failed.error


def test_a_damaged_body_may_match(tmp_path, monkeypatch):
    made = store_of(tmp_path / "store", BODIES)
    first = made.records[0]
    at = (made.path / "commitlog").iterdir()
    flip(next(at), first.physical_offset + first.total_size - len(first.properties) - 20)
    with rocketlens.open_store(made.path) as store:
        for options in ({"where": "body.$.amount > 100"}, {"text": "K-0", "grep": "amount"}):
            answer = store.find(**options)
            assert not answer.complete
            assert "json" not in [message.tags for message in answer]
            assert "checksum" in answer.failures[0].error


def test_values_that_cannot_be_compared_are_told_and_the_answer_is_complete(store):
    answer = store.find(where="body.$.city > 5")
    assert answer.complete
    assert not answer.messages
    (told,) = [each for each in answer.coverage if each.kind is SourceKind.FILTER]
    assert told.state is SourceState.SEARCHED
    assert "3 messages, the first Orders/0/0: '上海' is not an integer" in told.note
    scan = store.scan(where="body.$.city > 5")
    assert not list(scan)
    assert scan.complete
    assert told in scan.coverage


def test_no_body_is_decoded_for_a_filter_on_properties(store, monkeypatch):
    def decode(*_):
        raise AssertionError

    monkeypatch.setattr(content_filter, "decompress", decode)
    assert tags(store.find(where="n = 2 OR tag = 'gbk'")) == ["gzip", "gbk"]
    assert tags(store.find(where="body.$.amount > 1 AND n = 99")) == []
    assert tags(store.find(grep="K-2", grep_in=["keys"])) == ["gzip"]


def test_a_key_in_a_filter_is_looked_up_unless_the_search_is_exhaustive():
    request = FindRequest.parse(where="key = 'K' AND body.$.n > 1 AND tag = 't'", topic="T")
    assert (request.text, request.kind, request.tags) == ("K", "key", {"t"})
    assert FindRequest.parse(where="unique_key IN ('U')").kind == "unique-key"
    for text in ("key IN ('a', 'b')", "key = 'a' OR tag = 'b'", "key = 'a b'", "key = ''"):
        assert FindRequest.parse(where=text).text is None
    assert FindRequest.parse(where="key = 'K'", exhaustive=True).text is None
    assert FindRequest.parse("L", where="key = 'K'").text == "L"


def test_topics_times_and_tags_of_a_filter_narrow_a_request():
    request = FindRequest.parse(
        where="topic IN ('A', 'B') AND time >= 1000 AND time < 3000 AND tag IN ('x', 'y')",
        begin=500,
        end=2000,
        tag="y || z",
    )
    assert (request.topics, request.begin, request.end) == (("A", "B"), 1000, 2000)
    assert request.tags == {"y"}
    assert FindRequest.parse(where="topic = 'A*'").topics == ()
    assert FindRequest.parse(where="topic = 'A'", topic="B").topics == ("B",)
    assert FindRequest.parse(grep="a").query == "grep a"


@pytest.mark.parametrize(
    "options", [{"where": "("}, {"grep": "("}, {"grep": "a", "grep_in": ["head"]}, {"grep": ""}]
)
def test_what_is_not_well_formed_is_refused_before_anything_is_read(options):
    with pytest.raises(BadInput):
        FindRequest.parse(**options)
    with pytest.raises(BadInput):
        filter_of(options.get("where"), options.get("grep"), options.get("grep_in", ["body"]))


def test_without_a_filter_there_is_none():
    assert filter_of(None, None) is None


def test_a_scan_that_is_stopped_says_how_far_it_came(orders, monkeypatch):
    monkeypatch.setattr(by_time, "_REPORTED_RECORDS", 2)
    seen = []

    def report(read, total, messages):
        seen.append((read, total, messages))
        return messages < 5

    with rocketlens.open_store(orders.path, on_progress=report) as store:
        scan = store.scan(where="body.$.amount > 0")
        assert [message.tags for message in scan] == ["json", "escaped", "gzip", "gbk", "hessian"]
        assert not scan.complete
        assert scan.end_offset == orders.records[6].physical_offset
    assert [messages for _, _, messages in seen][-1] == 6
    assert [read for read, _, _ in seen] == sorted(read for read, _, _ in seen)


FILTERS = [
    filter_of("body.$.a[*] > 5 OR body.$['1'] = 'x' OR body CONTAINS 'q'", None),
    filter_of(None, "(?i)[a-c]+[0-9]", ["body", "keys", "properties"]),
    filter_of("body =~ 'a.c' AND body.$.* IS NOT NULL", "x"),
]


@given(
    st.sampled_from(FILTERS),
    st.binary(max_size=200)
    | st.sampled_from([*BODIES.values(), *UNREAD.values()]).flatmap(
        lambda body: st.integers(0, len(body)).map(lambda end: body[:end])
    ),
    st.sampled_from([0, COMPRESSED, COMPRESSED | 0x200, COMPRESSED | 0x700]),
)
def test_whatever_a_body_is_a_filter_decides_or_counts_it(content, body, sys_flag):
    record, _ = record_of(sent("any", body, 0, sys_flag), 0, 0)
    tally = SearchTally()
    first = content.passes(record, tally)
    assert content.passes(record, tally) is first
    told = tally.coverage()
    assert not (first and told)
    assert all("1 message, the first Orders/0/0: " in (each.error or each.note) for each in told)


def test_no_more_messages_are_told_apart_than_the_bound(monkeypatch):
    monkeypatch.setattr("rocketlens.query.tally.MAX_FILTER_FAILURES", 1)
    content, tally = filter_of(None, "x"), SearchTally()
    for number in range(3):
        record, _ = record_of(sent("binary", UNREAD["binary"], number), number, number)
        content.passes(record, tally)
    (told,) = tally.coverage()
    assert told.error.startswith("3 messages, the first Orders/0/0: ")


HINT = "no message had a property amount; bodies do: body.$.amount"


def told_by(answer):
    return [each.note for each in answer.coverage if each.kind is SourceKind.FILTER]


def test_a_property_that_no_message_has_and_bodies_do_is_named_with_its_path(store):
    answer = store.find(where="amount > 100")
    assert (len(answer), answer.complete, told_by(answer)) == (0, True, [HINT])
    assert told_by(store.find("K-0", where="amount > 100")) == [HINT]
    scan = store.scan(where="prop.amount > 100")
    assert list(scan) == []
    assert told_by(scan) == [HINT]
    assert told_by(store.find(where="amount > 100 OR n = 0")) == [HINT]


def test_a_property_that_some_message_has_is_no_mistake(tmp_path):
    messages = [
        Sent(body=b'{"amount": 5}', store_timestamp_ms=1),
        Sent(body=b'{"amount": 5}', store_timestamp_ms=2, named=(("amount", "7"),)),
    ]
    with rocketlens.open_store(make_store(tmp_path / "store", messages).path) as store:
        assert told_by(store.find(where="amount > 100")) == []
        assert told_by(store.find(where="sum > 100")) == []
        assert told_by(store.find(where="body.$.amount > 100")) == []


def test_few_bodies_are_looked_at_for_a_hint(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.query.tally.MAX_HINTED_BODIES", 2)
    messages = [Sent(body=b"text")] * 2 + [Sent(body=b'{"amount": 5}')]
    with rocketlens.open_store(make_store(tmp_path / "store", messages).path) as store:
        assert told_by(store.find(where="amount > 100")) == []


def test_the_path_of_a_field_is_written_as_filters_have_it(tmp_path):
    path = make_store(tmp_path / "store", [Sent(body=b'{"a b": {"it\'s": 1}}')]).path
    with rocketlens.open_store(path) as store:
        (told,) = told_by(store.find(where="prop['a b'] = '1'"))
        assert told.endswith("bodies do: body.$['a b']")
        assert len(store.find(where="body.$['a b']['it''s'] = 1")) == 1


@pytest.mark.parametrize("options", [(), ("--max", "5"), ("-o", "jsonl"), ("-t", "Orders")])
def test_find_names_the_field_whether_it_streams_or_not(run, orders, options):
    done = run("find", "--where", "amount > 100", "--store", orders.path, *options)
    assert (done.code, done.out.strip()) in {(1, ""), (1, "[]")}
    assert done.err.count(HINT) == 1
    assert "filter and" not in done.err.split("filter:")[0]

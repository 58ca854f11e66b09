"""Columns rule out only what messages would leave out, too, and nothing that is counted."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.archive.column_filter import ColumnFilter
from rocketlens.archive.rows import record_of
from rocketlens.archive.tables import message_schema
from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from rocketlens.query.filters.content_filter import GREP_IN, ContentFilter
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.query.filters.where import parse_where
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.tally import SearchTally
from tests.support.effort import sized

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
NO_TEXT = {"cluster": "C", "broker": "a", "born_host": "10.0.0.1:1", "store_host": "10.0.0.1:2"}
TEXT_BODIES = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text("ab\\u4eé中x^\n\x00\x7f ", max_size=12).map(str.encode),
    st.binary(max_size=12),
    st.text("ab", max_size=5).map(lambda text: gzip.compress(text.encode())),
    st.text("ab中文", max_size=6).map(lambda text: text.encode("gb18030")),
    st.text("ab", max_size=4).map(lambda text: text.encode("utf-16")),
    st.sampled_from(
        [
            b'{"a": "\\u4e0a"}',
            b'{"n": 5, "a": "b"}',
            b'{"n": "5", "TAGS": "A", "p": 1}',
            b'{"n": true, "a": [1, "b"]}',
            b"<a>b&#99;</a>",
            b"x^abcdefg",
            b"xxabcdefg",
            "\ufeffab".encode(),
            b"",
            b"Obj\x01ab",
        ]
    ),
)
SCALARS = st.one_of(
    st.integers(-9, 9).map(str),
    st.integers(-(2**66), 2**66).map(str),
    st.floats(width=16, allow_nan=True).map(json.dumps),
    st.sampled_from(["5.0", "-0.0", "5e0", "0.5e1", "9007199254740993", "2147483648", "1e400"]),
    st.sampled_from(['"5"', '"b"', '"5 "', '"\\"b"', '"b\\n"', '"中"', '""', "9" * 5000]),
    st.sampled_from(["null", "true", "false", "NaN", "-Infinity", "05", "nul", '"b', "\x0b"]),
)
MEMBERS = st.sampled_from(['"n"', '"n"', '"a"', '"a"', '"\\n"', '"\\u006e"', "n", '" n"'])
BLANKS = st.sampled_from(["", "", " ", "\t\r\n", "\x0c"])


def padded(blanks, text):
    return f"{blanks}{text}{blanks}"


def containers(values):
    inner = st.builds(padded, BLANKS, values)
    members = st.builds(lambda name, value: f"{name}:{value}", MEMBERS, inner)
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.lists(members, max_size=4).map(lambda each: f"{{{','.join(each)}}}"),
    )


DOCUMENTS = st.builds(padded, BLANKS, containers(st.recursive(SCALARS, containers, max_leaves=4)))
PATTERNS = st.sampled_from(["a", "ab", "中", "上", "^$", "a.b", "[^a]b$", "(?i)A", "x", "\\x00"])
BODIES = st.one_of(
    TEXT_BODIES,
    DOCUMENTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    DOCUMENTS.map(lambda text: text.encode("gb18030", "replace")),
    DOCUMENTS.map(lambda text: gzip.compress(text.encode("utf-8", "replace"))),
)
VALUES = st.sampled_from(
    ["a", "b", "5", "5.0", "5 a b", "中", "A", "x\x01y", "+5", "05", "-5", "6", "1e1", "3000000000"]
)
PROPERTIES = st.dictionaries(st.sampled_from(["p", "q", "KEYS", "TAGS", "UNIQ_KEY"]), VALUES)
CONDITIONS = (
    *("p = 'a'", "p > 4", "p BETWEEN 1 AND 9", "p IS NULL", "p = q", "q IN ('a', 'b')", "p = 5"),
    *("tag = 'A'", "tag IN ('A', 'B')", "tag IS NULL", "key = 'a'", "key IS NULL"),
    *("unique_key = 'b'", "topic = 'T'", "topic CONTAINS 'o'", "queue_offset > 2", "queue_id = 0"),
    *(
        "time > 0",
        "reconsume_times = 1",
        "state = 'stored' AND real_topic = 'T'",
        "TRUE",
        "prop['TAGS'] = 'a'",
        "nowhere = 'a'",
        "n > 4",
        "broker = 'broker-a'",
        "p = 'a' AND cluster <> 'x'",
    ),
    *("body =~ 'a'", "body !~ 'b$'", "body = 'ab'", "body.$.n = 5", "body.$.n > 4", "body.$.a = p"),
    *(
        "p > 4.5",
        "p <= 3000000000",
        "p BETWEEN 1 AND 5.0",
        "p BETWEEN 1 AND q",
        "4 < p",
        "TAGS > 4",
    ),
    *("prop.p = 'a'", "queue_offset BETWEEN 1 AND 3", "born_time < 1", "queue_offset = 2.0"),
    *("body.$.n > 4.5", "body.$.n < 3000000000", "body.$.n = 9007199254740993", "body.$.n = '5'"),
    *("body.$.n BETWEEN 1 AND 5.5", "body.$.n BETWEEN p AND 5", "5 >= body.$.n", "body.$.a = 'b'"),
    *("body.$.a IN ('b', 'c')", "body.$.n IN (5, 6)", "body.$.a > 'a'", "body.$.n <> 5"),
    *("body.$[0] = 5", "body.$[-1] = 5", "body.$.a[1].n > 4", "body.$.n.a = 'b'", "body.$.n = p"),
    *("body.$['a'] CONTAINS 'b'", "body.$[1].a = 'b'", "body.$.n IS NOT NULL", "body.$.n = q"),
    *("body CONTAINS 'b'", "body STARTSWITH 'a'", "key IN ('a', '5')", "unique_key > 4"),
    *("body.$.a IS NULL", "body.$.a[*] = 'b'", "body.$ IS NOT NULL", "body CONTAINS 'a'"),
)
WHERE = st.lists(
    st.tuples(st.sampled_from(["", "NOT "]), st.sampled_from(CONDITIONS)), min_size=1, max_size=4
).flatmap(
    lambda parts: st.sampled_from([" AND ", " OR "]).map(
        lambda word: word.join(f"{negation}({condition})" for negation, condition in parts)
    )
)


@st.composite
def message_rows(draw):
    """Rows of ``messages``, as dicts."""
    rows = []
    for number in range(draw(st.integers(0, 8))):
        properties = draw(PROPERTIES)
        has_error = draw(st.integers(0, 9)) == 0
        flags = st.sampled_from([0, COMPRESSED, SYS_FLAG_INNER_BATCH])
        rows.append(
            message_row(
                number,
                draw(BODIES),
                draw(st.sampled_from(["T", "Other", "RMQ_SYS_TRACE_TOPIC"])),
                properties,
                body_error="why" if has_error else None,
                sys_flag=draw(flags) if has_error else 0,
            )
        )
    return rows


def message_row(number, body, topic="T", properties=None, **others):
    """One row of ``messages``."""
    properties = properties or {}
    return {
        **dict.fromkeys(message_schema().names, 0),
        **NO_TEXT,
        "broker": ("broker-a", "broker-b")[number % 2],
        "topic": topic,
        "tags": properties.get(props.TAGS),
        "keys": props.split_keys(properties.get(props.KEYS)),
        "unique_key": properties.get(props.UNIQUE_KEY),
        "queue_offset": number,
        "physical_offset": number,
        "store_timestamp_ms": number,
        "reconsume_times": number % 2,
        "properties": list(properties.items()),
        "body": body,
        "body_error": None,
        **others,
    }


def rows_left(message_filter, rows, pieces=1):
    """The rows that columns leave, of a table that has them in some pieces."""
    columns = ColumnFilter(message_filter)
    if not columns.decides:
        return rows
    # A row before them and one behind: offsets do not begin with 0.
    around = [message_row(0, b"\xffcut", properties={"p": "a", "KEYS": "a"})]
    whole = pa.Table.from_pylist([*around, *rows, *around], schema=message_schema())
    table = whole.slice(1, len(rows))
    cut = len(rows) // pieces
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    kept = columns.may_match(table.select, np.ones(len(rows), np.bool_))
    return [each for each, is_kept in zip(rows, kept.tolist(), strict=True) if is_kept]


def new_filter(text=None, pattern=None, grep_in=frozenset({"body"}), **others):
    """A filter that has counted nothing yet."""
    content = ContentFilter(
        parse_where(text) if text else None,
        TextPattern(pattern) if pattern else None,
        frozenset(grep_in),
    )
    return MessageFilter(content=content, leaves_out=True, tally=SearchTally(), **others)


def outcome(message_filter, rows):
    """The numbers of the messages that match, and what is said of the others."""
    matches = [row["queue_offset"] for row in rows if message_filter.matches(record_of(row))]
    return matches, message_filter.tally.coverage()


@settings(max_examples=sized(100, 2000))
@given(
    message_rows(),
    st.none() | WHERE,
    st.tuples(st.none() | PATTERNS, st.sets(st.sampled_from(GREP_IN), min_size=1)),
    st.sampled_from([{}, {"tags": frozenset({"A"})}, {"topics": frozenset({"T", "Z"})}]),
    st.integers(1, 3),
)
def test_what_columns_leave_has_the_matches_and_the_counts_of_all(rows, text, grep, others, pieces):
    pattern, grep_in = grep
    if text is None and pattern is None:
        pattern = "a"
    by_columns = new_filter(text, pattern, grep_in, **others)
    left = rows_left(by_columns, rows, pieces)
    by_rows = new_filter(text, pattern, grep_in, **others)
    assert outcome(by_columns, left) == outcome(by_rows, rows)


def numbers_left(message_filter, rows):
    return [each["queue_offset"] for each in rows_left(message_filter, rows)]


def test_plain_bodies_without_the_pattern_are_ruled_out():
    bodies = [b"abc", b"a", "中文".encode(), "中b".encode(), b"\x01", b"a\\u0062", b"x^aaaaaa"]
    rows = [message_row(number, body) for number, body in enumerate(bodies)]
    assert numbers_left(new_filter(pattern="b"), rows) == [0, 3, 4, 5, 6]
    assert numbers_left(new_filter(pattern="b$"), rows) == [3, 4, 5, 6]


def test_keys_and_properties_without_the_pattern_are_ruled_out():
    rows = [
        message_row(0, b"", properties={"KEYS": "order-1 order-2"}),
        message_row(1, b"order-2", properties={"p": "order-2"}),
        message_row(2, b"", properties={}),
    ]
    for pattern in ("order-2", "order-[2]$"):
        assert numbers_left(new_filter(pattern=pattern, grep_in={"keys"}), rows) == [0]
        assert numbers_left(new_filter(pattern=pattern, grep_in={"properties"}), rows) == [0, 1]
    assert numbers_left(new_filter(pattern="^o.*1$", grep_in={"keys", "body"}), rows) == [0]


def test_tags_and_topics_rule_out_rows():
    rows = [
        message_row(0, b"", properties={"TAGS": "A"}),
        message_row(1, b"", "Z"),
        message_row(2, b"", "Y", {"TAGS": "A"}),
    ]
    tags = MessageFilter(tags=frozenset({"A"}))
    assert numbers_left(tags, rows) == [0, 2]
    topics = MessageFilter(topics=frozenset({"T", "Z"}))
    assert numbers_left(topics, rows) == [0, 1]
    assert not ColumnFilter(MessageFilter(topic="T")).decides


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("tag = 'A'", [0]),
        ("state = 'stored' AND real_topic = 'T' AND tags = 'A'", [0]),
        ("state IN ('retry', 'dead_letter')", []),
        ("amount > 4", [1]),
        ("amount > 4 AND amount < 6", []),
        ("queue_offset >= 2 AND amount IS NOT NULL", [2]),
        ("amount = '7' OR tag = 'A'", [0, 1]),
        ("body.$.n > 2", [1, 2]),
        ("tag = 'B' AND body.$.n > 5", [2]),
        ("tag = 'B' AND body =~ '3'", [1, 2]),
    ],
)
def test_an_expression_rules_out_the_rows_for_which_it_is_not_true(text, left):
    rows = [
        message_row(0, b'{"n": 1}', properties={"TAGS": "A", "amount": "3"}),
        message_row(1, b'{"n": 3}', properties={"TAGS": "B", "amount": "7"}),
        message_row(2, b"\x01", properties={"TAGS": "B", "amount": "1"}),
    ]
    assert numbers_left(new_filter(text), rows) == left


def test_a_condition_on_two_columns_is_evaluated_for_each_row():
    rows = [message_row(n, b"", properties={"p": "a", "q": "ab"[n % 2]}) for n in range(8)]
    assert numbers_left(new_filter("p = q"), rows) == [0, 2, 4, 6]


def test_a_message_without_a_property_is_looked_at_as_its_body_may_have_it():
    rows = [message_row(number, b'{"amount": 5}') for number in range(2)]
    message_filter = new_filter("amount = '5'")
    assert numbers_left(message_filter, rows) == [0, 1]
    assert outcome(message_filter, rows)[0] == []
    assert numbers_left(message_filter, rows) == []


def test_values_that_cannot_be_compared_are_counted():
    rows = [message_row(number, b'{"n": "a"}', properties={"p": "a"}) for number in range(2)]
    assert numbers_left(new_filter("p = 5"), rows) == [0, 1]
    assert numbers_left(new_filter("body.$.n = 5"), rows) == [0, 1]


def test_a_body_that_could_not_be_decompressed_is_looked_at():
    rows = [message_row(0, b"a", body_error="why"), message_row(1, b"a")]
    assert numbers_left(new_filter(pattern="b"), rows) == [0]


def json_rows(*bodies):
    return [message_row(number, body.encode()) for number, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("body.$.n > 5", [2, 3, 4]),
        ("body.$.n = 5", [1]),
        ("body.$.n BETWEEN 2 AND 5.5", [1, 2]),
        ("body.$.n IS NULL", [5, 6]),
        ("body.$.n IN (5.5, 7)", [2, 3]),
        ("body.$.n <> 7 AND body.$.m[1].t = 'x'", [4]),
        ("body.$.m CONTAINS '\"x\"'", [4]),
    ],
)
def test_a_value_in_bodies_rules_out_rows_as_it_is_compared(text, left):
    rows = json_rows(
        '{"n": 1}',
        '{"n": 7, "n": 5}',
        '{"n": 5.5}',
        ' {"n":\n7, "m": [1, {"t": "y"}]}',
        '{"m": [1, {"t": "x"}], "n": 99999999999999999999}',
        '["n"]',
        "",
    )
    kept = rows_left(new_filter(text), rows)
    assert [each["queue_offset"] for each in kept] == left


def test_bodies_out_of_the_ordinary_are_compared_as_the_messages_have_them():
    rows = json_rows('{"n": 05}', '{"n": NaN}', '{"n": 6, "\\n": 5}', "<n>6</n>", '{"n": "6"}')
    assert numbers_left(new_filter("body.$.n > 5"), rows) == [1, 2, 3, 4]
    assert numbers_left(new_filter("body.$.n IS NULL"), rows) == [0]


def test_keys_and_numbers_rule_out_rows_by_their_columns():
    rows = [message_row(n, b"", properties={"KEYS": "a b" if n % 2 else "ab"}) for n in range(4)]
    assert numbers_left(new_filter("key = 'b'"), rows) == [1, 3]
    assert numbers_left(new_filter("key IN ('ab', 'c')"), rows) == [0, 2]
    assert numbers_left(new_filter("queue_offset >= 2 AND key = 'b'"), rows) == [3]
    assert numbers_left(new_filter("queue_offset < 2.5"), rows) == [0, 1, 2]

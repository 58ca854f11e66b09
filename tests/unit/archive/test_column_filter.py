"""Columns rule out only what messages would leave out, too, and nothing that is counted."""

import gzip
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.archive.column_filter import ColumnFilter
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.message import Host
from rocketlens.query.filters.content_filter import ContentFilter, FilterTally
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.query.filters.where import parse_where
from rocketlens.query.left_out import LeftOutMessages
from rocketlens.query.lookup.message_filter import MessageFilter

pa = pytest.importorskip("pyarrow")
HOST = Host("10.0.0.1", 10911)
BODIES = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text("ab\\u4eé中x\n\x00\x7f ", max_size=12).map(str.encode),
    st.binary(max_size=12),
    st.text("ab", max_size=5).map(lambda text: gzip.compress(text.encode())),
    st.text("ab中文", max_size=6).map(lambda text: text.encode("gb18030")),
    st.text("ab", max_size=4).map(lambda text: text.encode("utf-16")),
    st.sampled_from([b'{"a": "\\u4e0a"}', b"x^abcdefg", "\ufeffab".encode(), b"", b"Obj\x01ab"]),
)
PATTERNS = st.sampled_from(["a", "ab", "中", "上", "^$", "a.b", "[^a]b$", "(?i)A", "x", "\\x00"])


def record(number, body, topic):
    return Record(
        total_size=100,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=number,
        physical_offset=number,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=topic,
        properties=b"",
    )


def by_rows(records, text):
    """The numbers of the messages that match, and what is said of the others."""
    content = ContentFilter(grep=TextPattern(text), tally=FilterTally())
    left_out = LeftOutMessages()
    message_filter = MessageFilter(content=content, left_out=left_out)
    matches = [each.queue_offset for each in records if message_filter.matches(each)]
    return matches, content.tally.coverage(), left_out.coverage()


@given(st.lists(BODIES, max_size=8), PATTERNS, st.integers(0, 2))
def test_what_columns_leave_has_the_matches_and_the_counts_of_all(bodies, text, cut):
    topics = ["T" if number % 3 else "RMQ_SYS_TRACE_TOPIC" for number in range(len(bodies))]
    records = list(map(record, range(len(bodies)), bodies, topics))
    rows = pa.table(
        {
            "body": pa.chunked_array([pa.array([b"\xffcut", *bodies], pa.binary())[1:]]),
            "body_error": pa.array([None] * len(bodies), pa.string()),
            "topic": pa.array(topics, pa.string()),
        }
    ).slice(cut)
    content = ContentFilter(grep=TextPattern(text))
    columns = ColumnFilter(MessageFilter(content=content, left_out=LeftOutMessages()))
    kept = columns.may_match(rows.select(columns.columns)).to_pylist()
    left = [each for each, is_kept in zip(records[cut:], kept, strict=True) if is_kept]
    assert by_rows(left, text) == by_rows(records[cut:], text)


def test_plain_bodies_without_the_pattern_are_ruled_out():
    columns = ColumnFilter(MessageFilter(content=ContentFilter(grep=TextPattern("b"))))
    bodies = [b"abc", b"a", "中文".encode(), "中b".encode(), b"\x01", b"a\\u0062"]
    rows = pa.table({"body": bodies, "body_error": pa.nulls(6, pa.string())})
    assert columns.columns == ["body", "body_error"]
    assert columns.may_match(rows).to_pylist() == [True, False, False, True, True, True]


def test_tags_rule_out_rows_and_filters_that_read_more_do_not():
    columns = ColumnFilter(MessageFilter(tags=frozenset({"A"})))
    rows = pa.table({"tags": pa.array(["A", "B", None])})
    assert columns.may_match(rows).to_pylist() == [True, False, False]
    in_keys = ContentFilter(grep=TextPattern("b"), grep_in=frozenset({"body", "keys"}))
    assert ColumnFilter(MessageFilter(content=in_keys)).columns == []


def test_an_expression_that_begins_with_tags_rules_out_others_and_says_the_same_of_bodies():
    bodies = [b'{"TAGS": "A", "n": 1}', b'{"n": 5}', b"\x01", b'{"n": 7}']
    tags = [None, "B", "B", "A"]
    texts = {None: b"", "A": b"TAGS\x01A", "B": b"TAGS\x01B"}
    records = [
        replace(record(number, body, "T"), properties=texts[tag])
        for number, (body, tag) in enumerate(zip(bodies, tags, strict=True))
    ]
    for text, kept in (
        ("tag = 'A' AND body.$.n > 2", [True, False, False, True]),
        ("body.$.n > 2 AND tag IN ('A', 'C')", [True, False, False, True]),
        ("amount > 2 AND tag = 'A'", None),
        ("body =~ '7' AND tag = 'A'", [True, False, False, True]),
        ("body =~ ': 7.$'", [False, False, True, True]),
        ("tag = 'B' AND body =~ '7'", [True, False, True, False]),
        ("body.$.n > 2 AND body =~ '7' AND tag = 'A'", [True, False, False, True]),
        ("body =~ '7' OR tag = 'A'", None),
        ("body !~ '7' AND queue_id = 0", None),
    ):
        content = ContentFilter(where=parse_where(text), tally=FilterTally())
        columns = ColumnFilter(MessageFilter(content=content))
        assert bool(columns.columns) == (kept is not None)
        rows = pa.table(
            {
                "tags": pa.array(tags, pa.string()),
                "body": bodies,
                "body_error": pa.nulls(4, pa.string()),
            }
        )
        left = columns.may_match(rows).to_pylist() if kept else [True] * 4
        assert left == (kept or left)
        matches = [
            is_left and content.passes(each) for each, is_left in zip(records, left, strict=True)
        ]
        by_rows = ContentFilter(where=parse_where(text), tally=FilterTally())
        assert matches == list(map(by_rows.passes, records))
        assert content.tally.coverage() == by_rows.tally.coverage()


def test_a_body_that_could_not_be_decompressed_is_looked_at():
    columns = ColumnFilter(MessageFilter(content=ContentFilter(grep=TextPattern("b"))))
    rows = pa.table({"body": [b"a"], "body_error": pa.array(["why"])})
    assert columns.may_match(rows).to_pylist() == [True]

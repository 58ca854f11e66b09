"""What a question is taken for, before any source is asked."""

from datetime import UTC, datetime

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, WrongType
from rocketlens.model.sql92 import parse_sql92
from rocketlens.query.options import KINDS
from rocketlens.query.request import FindRequest, QueuePosition, tail_filter
from rocketlens.query.tally import SearchTally

OFFSET_ID = "0A0000010000157C0000000000000007"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("T/0/5", ("T", 0, 5)),
        ("T/2147483647/5", ("T", 2147483647, 5)),
        ("T/0/9223372036854775807", ("T", 0, 2**63 - 1)),
        ("%RETRY%group/3/007", ("%RETRY%group", 3, 7)),
        ("T/00000000001/5", None),
        ("T/0/10000000000000000000000", None),
        ("T/\uff10/\uff15", None),
        ("T/-1/5", None),
        ("T/0/5\n", None),
        ("a b/0/5", None),
        ("a/b/0/5", None),
        ("/0/5", None),
    ],
)
def test_a_queue_position_has_a_topic_and_two_numbers_in_ascii(text, position):
    assert FindRequest.parse(text).queue_position == position
    if position is None:
        with pytest.raises(BadInput, match=r"is not a (queue position|valid topic name)"):
            FindRequest.parse(text, kind="queue-offset")
    else:
        assert FindRequest.parse(text, kind="queue-offset").queue_position == position


def test_a_queue_position_is_written_as_it_is_read():
    assert str(QueuePosition("T", 3, 7)) == "T/3/7"


def test_a_kind_takes_the_text_for_nothing_else():
    taken = {kind: FindRequest(OFFSET_ID, kind=kind) for kind in KINDS}
    for kind, request in taken.items():
        assert (request.offset_msg_id is not None) == (kind in {"auto", "offset-id"})
        assert request.is_key == (kind in {"auto", "key", "unique-key"})
    assert FindRequest("T/0/5", kind="key").queue_position is None


def test_a_filter_has_the_key_as_what_the_kind_says():
    for kind, names in {
        "auto": ("k", "k"),
        "key": ("k", None),
        "unique-key": (None, "k"),
    }.items():
        made = FindRequest.parse("k", kind=kind).filter_of(SearchTally(), ["T"], with_key=True)
        assert (made.key, made.unique_key, made.topic, made.topics) == (*names, "T", None)
        assert made.index_key == "k"
    assert FindRequest.parse("k").filter_of(SearchTally(), ["T", "U"]).topics == {"T", "U"}
    assert FindRequest.parse("k").filter_of(SearchTally()).index_key == ""


def test_times_are_milliseconds_and_none_or_0_is_no_lower_bound():
    assert FindRequest.parse("k").begin is None
    assert FindRequest.parse("k", begin=0).begin is None
    assert FindRequest.parse("k").end == limits.MAX_TIMESTAMP_MS
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    request = FindRequest.parse("k", begin=moment, end=moment)
    assert request.begin == request.end == 1_795_132_800_000


@pytest.mark.parametrize(
    ("tag", "tags"),
    [(None, None), ("*", None), (" * ", None), ("A", {"A"}), ("A || B", {"A", "B"})],
)
def test_tags_are_an_expression_as_consumers_write_it(tag, tags):
    assert FindRequest.parse(topic="T", tag=tag).tags == tags


def test_what_was_asked_is_said_in_one_line():
    assert FindRequest.parse("k", "T,U").query == "k"
    assert FindRequest.parse(topic=["T", "U*"]).query == "T,U*"


def test_times_are_also_words_and_a_day_as_the_end_is_its_last_millisecond(monkeypatch):
    monkeypatch.setattr("rocketlens.query.request.time.time_ns", lambda: 1_795_228_834_563_000_000)
    made = FindRequest.parse(topic="T", begin="2h", end="now")
    assert (made.begin, made.end) == (1_795_228_834_563 - 7_200_000, 1_795_228_834_563)
    day = FindRequest.parse(topic="T", begin="2026-11-20", end="2026-11-20")
    assert day.end - day.begin == 86_400_000 - 1
    with pytest.raises(BadInput, match="begin 'soon' is not a time"):
        FindRequest.parse(topic="T", begin="soon")


def test_conditions_of_tail_are_read():
    asked = tail_filter("T", tags="A || B ||", sql="a > 1", key="k", begin=5)
    assert (asked.topic, asked.tags, asked.begin) == ("T", {"A", "B"}, 5)
    assert (asked.expression, asked.key, asked.unique_key) == (parse_sql92("a > 1"), "k", "k")
    assert not tail_filter("T", tags=" * ").reads_records


@pytest.mark.parametrize("given", [{"tags": ""}, {"tags": "||"}, {"sql": ""}, {"key": ""}])
def test_conditions_of_tail_that_name_nothing_are_refused(given):
    with pytest.raises(BadInput):
        tail_filter("T", **given)


def test_conditions_of_tail_of_a_wrong_type_are_refused():
    with pytest.raises(WrongType, match="tags"):
        tail_filter("T", tags=1)

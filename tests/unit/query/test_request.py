"""What a question is taken for, before any source is asked.

Topics by name, several, patterns, and what a wrong name may have meant.
Texts as people paste them find the message that they are about, and the answer says how.
"""

from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import BadInput, TopicNotFound, WrongType
from rocketlens.model.sql92 import parse_sql92
from rocketlens.model.text.nearest import suggestion
from rocketlens.query.options import KINDS
from rocketlens.query.pasted import MAX_TEXTS, texts_in
from rocketlens.query.request import FindRequest, QueuePosition, tail_filter
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import matching_topics, parse_topics, unknown_topic
from tests.support.console_client import answers, store_at
from tests.unit.conftest import NOON_MS

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
    for kind, names in {"auto": ("k", "k"), "key": ("k", None), "unique-key": (None, "k")}.items():
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


KNOWN = ("PayTopic", "PayBack", "T22", "OrderTopic")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ()),
        ("PayTopic", ("PayTopic",)),
        ("PayTopic, T22,", ("PayTopic", "T22")),
        (["PayTopic", "T22,PayTopic"], ("PayTopic", "T22")),
    ],
)
def test_a_topic_can_be_one_or_several(given, names):
    assert parse_topics(given) == names


@pytest.mark.parametrize("given", [5, b"PayTopic", ["PayTopic", 5]])
def test_a_topic_that_is_no_text_is_refused_by_its_type(given):
    with pytest.raises(WrongType, match="topic must be a"):
        parse_topics(given)


@pytest.mark.parametrize("given", ["", " , ", [], [""]])
def test_an_empty_topic_is_refused_and_never_means_every_topic(given):
    with pytest.raises(BadInput, match="the topic is empty"):
        parse_topics(given)


def test_patterns_mean_all_topics_that_match():
    assert matching_topics(["Pay*", "T22"], KNOWN) == (["PayBack", "PayTopic", "T22"], {})
    assert matching_topics(["T2?"], KNOWN) == (["T22"], {})


def test_a_pattern_that_matches_nothing_has_its_error():
    topics, unknown = matching_topics(["Pya*", "T2?"], KNOWN)
    assert topics == ["T22"]
    with pytest.raises(TopicNotFound, match=r"no topic matches 'Pya\*'"):
        raise unknown["Pya*"]


def test_a_wrong_name_gets_the_topics_that_it_resembles():
    assert suggestion("PayTopc", KNOWN).startswith("; did you mean PayTopic")
    assert suggestion("paytopic", KNOWN).startswith("; did you mean PayTopic")
    assert suggestion("something-else", KNOWN) == ""
    assert str(unknown_topic("T23", KNOWN, "this store")) == (
        "this store has no topic 'T23'; did you mean T22?"
    )


KEY, OTHER = "7F000001000118B4AAC2000000000001", "7F000001000118B4AAC2000000000002"
QUEUE = "MessageQueue [topic=pay, brokerName=broker-a, queueId=1]"
RESULT = (
    "SendResult [sendStatus=SEND_OK, msgId={key}, offsetMsgId={offset}, messageQueue="
    f"{QUEUE}, queueOffset=0]"
)
WIDE = str.maketrans("0123456789", "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19")
FORMS = {
    "as it is": "{key}",
    "spaces": "  {key} ",
    "line end": "{key}\n",
    "no-break space": "\u00a0{key}",
    "byte order mark": "\ufeff{key}",
    "zero-width space": "{key}\u200b",
    "double quotes": '"{key}"',
    "single quotes": "'{key}'",
    "comma behind": "{key},",
    "brackets": "[{key}]",
    "property": "msgId={key}",
    "named": "msgId: {key}",
    "json": '{{"msgId": "{key}"}}',
    "send result": RESULT,
    "queue line": f"{QUEUE}, queueOffset=0",
    "with broker": "broker-a/pay/1/0",
    "position": "pay/1/0",
    "quoted position": "'pay/1/0'",
    "key with line end": "order-1\n",
    "named key": "keys=order-1",
    "quoted key": '"order-1",',
    "offset id in a line": "stored as {offset} by broker-a",
    "wide digits": "{wide}",
}
LISTS = ("{key},{other}", "{key}, {other}", "{key}\n{other}\n", "msgId={key},{other}]")


@pytest.fixture
def store(write_store):
    def message(key, number):
        return {
            "topic": "pay",
            "queue_id": 1,
            "queue_offset": number,
            "properties": {"UNIQ_KEY": key, "KEYS": f"order-{number + 1}"},
            "store_timestamp_ms": NOON_MS + number,
        }

    return write_store(message(KEY, 0), message(OTHER, 1))


def filled(form, store):
    with rocketlens.open_store(store) as opened:
        offset = opened.find(KEY).messages[0].offset_msg_id
    return form.format(key=KEY, other=OTHER, offset=offset, wide=KEY.translate(WIDE))


def test_the_command_and_the_console_take_every_form(store, run):
    texts = [filled(form, store) for form in FORMS.values()]
    for text in texts:
        done = run("find", "--store", store, "--fields", "position", "--no-header", "--", text)
        assert (done.code, done.out) == (0, "pay/1/0\n"), text
        assert ("searched for its parts: " in done.err) is (text not in {KEY, "pay/1/0"}), text
    for command in ("story", "show"):
        done = run(command, "--store", store, "--", texts[1])
        assert "searched for its parts: " in done.err
    paths = [f"/api/search?{urlencode({'q': text})}" for text in texts]
    for text, got in zip(texts, answers(paths, store_at(store, "s")), strict=True):
        found = got.json()
        assert [each["unique_key"] for each in found["messages"]] == [KEY], text
        assert found["complete"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_of_a_text_finds_its_message(store, form):
    text = filled(form, store)
    with rocketlens.open_store(store) as opened:
        answer = opened.find(text)
    assert [each.unique_key for each in answer] == [KEY]
    assert answer.complete
    notes = [each.note for each in answer.coverage if each.source == "text"]
    assert len(notes) == (0 if text in {KEY, "pay/1/0"} else 1)


@pytest.mark.parametrize("form", LISTS)
def test_a_list_of_ids_finds_all(store, form):
    with rocketlens.open_store(store) as opened:
        answer = opened.find(filled(form, store))
        newest = opened.find(filled(form, store), max_num=1)
    assert [each.unique_key for each in answer] == [KEY, OTHER]
    assert ([each.unique_key for each in newest], newest.truncated) == ([OTHER], True)


def test_a_key_of_exactly_that_text_wins(write_store):
    text = f"msgId={KEY},"
    store = write_store(
        {"properties": {"UNIQ_KEY": KEY}}, {"properties": {"KEYS": text, "UNIQ_KEY": OTHER}}
    )
    with rocketlens.open_store(store) as opened:
        answer = opened.find(text)
    assert [each.unique_key for each in answer] == [OTHER]


def test_a_long_list_is_searched_in_part_and_said_so(store):
    ids = [f"{number:032X}" for number in range(MAX_TEXTS + 1)]
    with rocketlens.open_store(store) as opened:
        answer = opened.find(",".join(ids))
    assert not answer.complete
    assert f"the first {MAX_TEXTS} of its {MAX_TEXTS + 1} parts" in answer.coverage[0].error


@pytest.mark.parametrize("text", ["x" * (1 << 20), "\n".join(f"{n:032X}" for n in range(10_000))])
def test_a_text_that_is_too_long_is_refused_with_what_to_do(store, text):
    why = f"a key or id at most 32,767: give part of it; of a list of ids the first {MAX_TEXTS} "
    with rocketlens.open_store(store) as opened, pytest.raises(BadInput, match=why):
        opened.find(text)
    got, *_ = answers([f"/api/search?{urlencode({'q': text[:40_000]})}"], store_at(store, "s"))
    assert (got.status_code, "the first 100" in got.text) == (400, True)


@pytest.mark.parametrize("piece", ["topic=", "topic=a ", "topic=a,queueId=1 ", "a/", "id=", "<"])
def test_a_position_behind_a_long_text_is_found(piece):
    """Without bounds in the pattern it takes minutes."""
    text = piece * (30_000 // len(piece)) + " " * 400 + f"{QUEUE}, queueOffset=0"
    assert texts_in(text) == ("pay/1/0",)


@pytest.mark.parametrize("text", ["order-1", "a b", KEY, "T/0/1", "键", "%RETRY%g"])
def test_a_plain_text_contains_no_other(text):
    assert texts_in(text) == ()

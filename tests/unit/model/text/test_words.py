"""Text that people read: counts, times, sentences, and what hides in the text of others."""

import copy
import json
import pickle
import re
import sys
import unicodedata
from pathlib import Path
from string import Formatter

import pytest

import rocketlens
from rocketlens.errors import BadInput
from rocketlens.model.text.counted import counted, span_text
from rocketlens.model.text.escape import printable, safe_json
from rocketlens.model.text.sentences import SENTENCES, Sentence
from rocketlens.model.text.time_words import parse_time
from tests.support.story_world import consumed, known, retried, story, texts_of, waiting
from tests.support.story_world import copy as record


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0, "file"), "0 files"),
        ((1, "file"), "1 file"),
        ((2_000, "file"), "2,000 files"),
        ((1, "entry", "entries"), "1 entry"),
        ((2, "entry", "entries"), "2 entries"),
    ],
)
def test_what_is_counted_is_plural_unless_it_is_one(words, text):
    assert counted(*words) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 s"),
        (999, "0 s"),
        (45_000, "45 s"),
        (60_000, "1 min"),
        (65_000, "1 min 5 s"),
        (7_080_000, "1 h 58 min"),
        (7_200_000, "2 h"),
        (7_205_000, "2 h"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_span_has_its_two_largest_units(milliseconds, text):
    assert span_text(milliseconds) == text


NOW_MS = 1_795_228_834_563
"""2026-11-21T02:40:34.563Z."""
HOUR_MS = 3_600_000


def parsed(text, *, is_end=False):
    return parse_time(text, "begin", is_end=is_end, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("1d12h", 36 * HOUR_MS),
        ("1d 12h", 36 * HOUR_MS),
        ("2h ago", 2 * HOUR_MS),
        ("10 minutes ago", HOUR_MS // 6),
        ("1 day 12 hours", 36 * HOUR_MS),
        ("-2h", 2 * HOUR_MS),
        ("-1d12h", 36 * HOUR_MS),
        ("1h30m5s", HOUR_MS + 1_805_000),
        ("in 2h", -2 * HOUR_MS),
        ("in 1 day 12 hours", -36 * HOUR_MS),
    ],
)
def test_spans_are_added(text, ago_ms):
    assert parsed(text) == NOW_MS - ago_ms


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("today", "2026-11-21"),
        ("yesterday", "2026-11-20"),
        ("02:40", "2026-11-21T02:40"),
        ("02:40:34.5", "2026-11-21T02:40:34.500"),
    ],
)
@pytest.mark.parametrize("is_end", [False, True])
def test_days_and_times_of_today_are_those_of_the_local_zone(text, same, is_end):
    assert parsed(text, is_end=is_end) == parsed(same, is_end=is_end)


@pytest.mark.parametrize(
    "text",
    [
        "ago",
        "2 ago",
        "2hago3",
        "1d12",
        "25:00",
        "1x2h",
        "tomorrow",
        "2:4",
        "12h" * 9,
        "-",
        "--2h",
        "-2",
        "2h-1h",
        "in 2h ago",
        "in -2h",
        "in",
    ],
)
def test_other_words_are_refused_by_name(text):
    with pytest.raises(BadInput, match=r"begin .* is not a time"):
        parsed(text)


SEEN = {
    *range(0x600, 0x606),
    0x6DD,
    0x70F,
    *range(0x890, 0x892),
    0x8E2,
    0x110BD,
    0x110CD,
    *range(0x13430, 0x13440),
}
"""Format characters with a shape of their own: signs of numbers and of hieroglyphs."""
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u3164\ufe00\ufe0f\uffa0\U000e0100"
"""Letters and marks, by their category, that are shown as nothing."""


def all_that_act_or_hide():
    categories = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    found = [
        chr(number)
        for number in range(sys.maxunicode + 1)
        if number not in SEEN and unicodedata.category(chr(number)) in categories
    ]
    return [*found, *FILLERS]


def test_every_character_that_acts_or_hides_is_escaped():
    for character in all_that_act_or_hide():
        shown = printable(f"a{character}b")
        assert shown.isascii(), hex(ord(character))
        assert shown.isprintable()
        assert shown != "ab"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\t\n\r", r"\t\n\r"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\u061c", r"\u061c"),
        ("\u200b\ufeff", r"\u200b\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
    ],
)
def test_an_escape_is_the_one_of_python(text, shown):
    assert printable(text) == shown


def test_other_text_is_left_as_it_is():
    for text in ("plain", "支付 ünï ok", "नमस्ते", "سلام", "😀", "e\u0301", "\u00a0"):
        assert printable(text) == safe_json(text) == text
    assert printable("a\tb\nc", keep="\t\n") == "a\tb\nc"


def test_escaped_json_is_ascii_where_it_was_unsafe_and_has_the_same_value():
    unsafe = [each for each in all_that_act_or_hide() if unicodedata.category(each) != "Cs"]
    for character in unsafe:
        text = safe_json(json.dumps({"k": f"a{character}b"}, ensure_ascii=False))
        assert text.isascii(), hex(ord(character))
        assert text.isprintable()
        assert json.loads(text) == {"k": f"a{character}b"}


SOURCE = Path(rocketlens.__file__).parent
TABLE = SOURCE / "model" / "sentences.py"
CALLED = re.compile(r'Sentence\(\s*"([a-z_0-9]+)"')
QUOTED = re.compile(r'"([a-z_0-9]+)"')


def test_a_sentence_is_its_english_text():
    took = Sentence("took", ms=5)
    sentence = Sentence("consumed_by", client="10.0.0.8", took=took)
    assert sentence == "consumed by client 10.0.0.8 in 5 ms"
    assert json.dumps([sentence]) == '["consumed by client 10.0.0.8 in 5 ms"]'
    assert (sentence.name, sentence.values["client"]) == ("consumed_by", "10.0.0.8")
    assert sentence.values["took"] is took


def test_braces_in_a_value_are_no_values():
    assert Sentence("goes_on", offset="{offset}{x}") == "its next offset is {offset}{x}"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_a_copy_of_a_sentence_is_a_sentence(again):
    sentence = Sentence("one_retry", number=3)
    made = again(sentence)
    assert (made, made.name, made.values) == ("retry 3", "one_retry", {"number": 3})


@pytest.mark.parametrize(("name", "values"), [("no_such", {}), ("one_retry", {"count": 3})])
def test_a_name_or_a_value_that_is_missing_is_an_error(name, values):
    with pytest.raises(KeyError):
        Sentence(name, **values)


def test_every_sentence_is_used_and_every_one_that_is_used_exists():
    sources = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py") if path != TABLE}
    made = [text for text in sources.values() if "Sentence" in text]
    called = {name for text in made for name in CALLED.findall(text)}
    quoted = {name for text in made for name in QUOTED.findall(text)}
    assert called
    assert called <= SENTENCES.keys() <= quoted


def test_values_have_plain_names():
    for name, text in SENTENCES.items():
        for _, value, form, conversion in Formatter().parse(text):
            assert value is None or value.isidentifier(), name
            assert not form, name
            assert conversion is None, name


def test_all_that_a_story_says_by_itself_is_sentences():
    original = record()
    calls = [*consumed(50, success=False, code=1), *consumed(60, 1), *consumed(70, 1)]
    copies = [original, record(at_ms=9, queue_offset=8), waiting(1, 55), retried(1, 57)]
    told = story(copies, calls, [known()])
    texts = texts_of(told)
    assert len(texts) > 15
    # The world of stories names traces so, and no source of records.
    assert {each for each in texts if not isinstance(each, Sentence)} == {"", "trace/0/1"}

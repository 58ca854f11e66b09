"""A sentence is its English text for all who want no other language, and keeps name and values."""

import copy
import json
import pickle
import re
from pathlib import Path
from string import Formatter

import pytest

import rocketlens
from rocketlens.model.text.sentences import SENTENCES, Sentence
from tests.support.story_world import consumed, known, retried, story, texts_of, waiting
from tests.support.story_world import copy as record

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
    assert Sentence("goes_on", offset="{offset}{x}") == "it goes on at offset {offset}{x}"


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

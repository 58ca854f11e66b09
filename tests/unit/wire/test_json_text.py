"""JSON texts that are too long to be read at once."""

import json

import pytest

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.wire import json_text
from rocketlens.wire.json_text import PIECE_CHARACTERS, STRICT_DECODER, loads

TOPIC = {"topicName": 'é消\U0001f4a9\n"{[', "perm": 6, "order": False, "x": [1.5, None, {}]}
LONG = {
    "topics": {f"topic{number}": TOPIC for number in range(200)},
    "numbers": list(range(5000)),
    "texts": ["x" * 3 * PIECE_CHARACTERS, ""],
    "deep": [[[[[list(range(3000))]]]]],
    "": {},
}


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"ensure_ascii": False}])
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_long_text_is_read_as_a_short_one(options, is_plain):
    text = json.dumps(LONG, **options)
    assert loads(f" {text}\r\n", CommandBodyError, is_plain=is_plain) == LONG
    for part in LONG.values():
        assert loads(json.dumps(part, **options).encode(), CommandBodyError) == part


def test_no_long_list_or_object_is_read_in_one_piece(monkeypatch):
    """Meanwhile no other thread could run."""
    lengths = []

    class Watched:
        def raw_decode(self, text, start=0):
            if text[start] in "[{":
                lengths.append(len(text))
            return STRICT_DECODER.raw_decode(text, start)

    monkeypatch.setattr(json_text, "STRICT_DECODER", Watched())
    assert loads(json.dumps(LONG), CommandBodyError) == LONG
    assert max(lengths) <= PIECE_CHARACTERS


def test_keys_without_quotes_are_read_in_long_texts_where_they_are_in_short_ones():
    text = "{" + ",".join(f'{n}:{{{{"queueId":{n}}}:{n}}}' for n in range(3000)) + "}"
    assert loads(text, CommandBodyError)["2999"] == {'{"queueId":2999}': 2999}
    with pytest.raises(CommandBodyError, match="not JSON"):
        loads(text, CommandBodyError, is_plain=True)


@pytest.mark.parametrize(
    "bad",
    [
        '{"a":1,"a":2}',
        "[1 2]",
        "[NaN]",
        '"\\ud800"',
        "[" * 70 + "]" * 70,
        "9" * 5000,
        "nul",
        '{"a"}',
        "{1:2}x",
        "[",
        "[1,]",
        "",
    ],
)
def test_what_is_refused_in_a_short_text_is_refused_in_a_long_one(bad):
    filler = json.dumps(list(range(5000)))
    for text in (f"[{filler},{bad}]", f"[{bad},{filler}]", f'{{"x":{filler},"y":{bad}}}'):
        with pytest.raises(CommandBodyError, match="not JSON"):
            loads(text, CommandBodyError)


def test_a_long_text_has_a_bounded_number_of_values(monkeypatch):
    monkeypatch.setattr(limits, "MAX_JSON_VALUES", 5000)
    text = json.dumps([[]] * 5000)
    assert len(loads(text, CommandBodyError)) == 5000
    with pytest.raises(CommandBodyError, match="more than 5000 values"):
        loads(json.dumps([[]] * 5001), CommandBodyError)

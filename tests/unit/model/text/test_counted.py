"""Numbers of things, as people write them."""

import pytest

from rocketlens.model.text.counted import counted, span_text


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

"""Numbers of things, as people write them."""

import pytest

from rocketlens.model.counted import counted


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

"""Every bound says what it bounds, and bounds it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import bounds
from rocketlens import limits

BOUNDS = {name: (value, meaning) for value, name, meaning in bounds()}
SHARED = Path(limits.__file__)
SOURCES = (
    path.read_text(encoding="utf-8")
    for path in SHARED.parent.rglob("*")
    if path.suffix in {".py", ".html"}
)
USES = Counter(word for text in SOURCES for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))
MOVED = {"MAX_TAIL_ENTRIES", "MAX_PATTERN_CHARACTERS", "MAX_NEWEST_SCAN_BYTES"}


def test_bounds_of_one_module_are_among_them():
    assert BOUNDS.keys() >= {"MAX_BODY_BYTES", *MOVED}
    assert not any(hasattr(limits, name) for name in MOVED)


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_is_a_positive_number_with_a_reason_and_is_used(name):
    value, meaning = BOUNDS[name]
    for number in value if isinstance(value, tuple) else (value,):
        assert isinstance(number, int | float)
        assert number > 0
    assert meaning.strip()
    assert USES[name] > 1

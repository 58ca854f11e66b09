"""Every bound says what it bounds, and bounds it."""

import re
from collections import Counter
from pathlib import Path

from docs.generate import bounds
from rocketlens import limits

MOVED = {"MAX_TAIL_ENTRIES", "MAX_PATTERN_CHARACTERS", "MAX_NEWEST_SCAN_BYTES"}


def test_every_bound_is_a_positive_number_with_a_reason_and_is_used():
    bounded = {name: (value, meaning) for value, name, meaning in bounds()}
    assert bounded.keys() >= {"MAX_BODY_BYTES", *MOVED}
    assert not any(hasattr(limits, name) for name in MOVED)
    uses = Counter(
        word
        for path in Path(limits.__file__).parent.rglob("*")
        if path.suffix in {".py", ".html"}
        for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text(encoding="utf-8"))
    )
    for name, (value, meaning) in bounded.items():
        for number in value if isinstance(value, tuple) else (value,):
            assert isinstance(number, int | float), name
            assert number > 0, name
        assert meaning.strip(), name
        assert uses[name] > 1, name

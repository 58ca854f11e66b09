"""Tags codes are Java's."""

import pytest

from rocketlens.model.text.java import string_hash
from rocketlens.store.write.append import TagsCodes


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        (b"", ""),
        (b"TAGS\x01a\x02", "a"),
        (b"TAGS\x01a", "a"),
        (b"KEYS\x01k\x02TAGS\x01\xe6\xa0\x87\x02", "\u6807"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"XTAGS\x01a\x02", ""),
        (b"TAGS\x01a\x02XTAGS\x01b\x02", "a"),
        (b"K\x01TAGS\x01b\x02TAGS\x01a\x02K\x01TAGS\x01c", "a"),
        (b"TAGS\x01\xff\x02", "\ufffd"),
    ],
)
def test_tags_codes_are_javas_whether_seen_before_or_not(properties, tags):
    codes = TagsCodes()
    assert [codes.of(properties) for _ in range(3)] == [string_hash(tags)] * 3

"""Java's signed integers, as annotations."""

from typing import get_type_hints

from rocketlens.model.integers import I32, I64


class Counter:
    number: I32
    offset: I64


def test_a_declared_width_is_found_in_the_annotation_and_is_an_int_otherwise():
    assert get_type_hints(Counter) == {"number": int, "offset": int}
    declared = get_type_hints(Counter, include_extras=True)
    assert declared["number"].__metadata__ == ("i32",)
    assert declared["offset"].__metadata__ == ("i64",)

"""JSON is read, within bounds."""

import pytest

from rocketlens.decode.json_body import may_be_json, read_json
from rocketlens.errors import BodyError


@pytest.mark.parametrize(
    "text", ["{", "", "nope", '{"a":1}x', "[" * 100_000, "[" * 101 + "]" * 101]
)
def test_what_is_not_json_or_too_deep_is_refused(text):
    with pytest.raises(BodyError):
        read_json(text)


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(BodyError, match="not JSON"):
        read_json("1" * 5_000)


def test_only_objects_arrays_and_strings_are_taken_for_json():
    assert all(map(may_be_json, ['{"a":1}', " [1]", '"a"']))
    assert not any(map(may_be_json, ["17", "true", "hello", ""]))

"""Forms are read within bounds."""

import pytest

from rocketlens import limits
from rocketlens.console.forms import pairs_in
from rocketlens.errors import BadInput


def test_fields_are_read_in_their_order_and_a_name_can_be_there_several_times():
    found = pairs_in(b"a=1&b=%E4%B8%AD&a=&c&a=%2F1")
    assert found == [("a", "1"), ("b", "中"), ("a", ""), ("c", ""), ("a", "/1")]
    assert pairs_in(b"") == []


@pytest.mark.parametrize(
    "content", [b"a=%ff", b"\xff", b"&".join([b"a=1"] * (limits.MAX_FORM_FIELDS + 1))]
)
def test_what_is_no_form_is_refused(content):
    with pytest.raises(BadInput):
        pairs_in(content)

"""The conditions of ``tail``."""

import pytest

from rocketlens.errors import BadInput, WrongType
from rocketlens.model.sql.sql92 import parse_sql92
from rocketlens.query.filters.tail_filter import tail_filter


def test_conditions_are_read():
    asked = tail_filter("T", tags="A || B ||", sql="a > 1", key="k", begin=5)
    assert (asked.topic, asked.tags, asked.begin) == ("T", {"A", "B"}, 5)
    assert (asked.expression, asked.key, asked.unique_key) == (parse_sql92("a > 1"), "k", "k")
    assert not tail_filter("T", tags=" * ").reads_records


@pytest.mark.parametrize("given", [{"tags": ""}, {"tags": "||"}, {"sql": ""}, {"key": ""}])
def test_conditions_that_name_nothing_are_refused(given):
    with pytest.raises(BadInput):
        tail_filter("T", **given)


def test_conditions_of_a_wrong_type_are_refused():
    with pytest.raises(WrongType, match="tags"):
        tail_filter("T", tags=1)

"""Values as Java compares and converts them."""

import pytest

from rocketlens.model.sql.sql92_values import EvaluationFailed, Long, compare, double


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("5", 5, 0),
        (5, "6", -1),
        (Long(5), 5, 0),
        (Long(5), 5.5, -1),
        ("5.5", 5.0, 1),
        (float("nan"), float("inf"), 1),
        (float("nan"), float("nan"), 0),
        (-0.0, 0.0, -1),
        (True, 5, -1),
        ("true", True, 0),
        ("a", "b", -1),
    ],
)
def test_values_are_in_javas_order(left, right, order):
    assert compare(left, right) == order


@pytest.mark.parametrize(("left", "right"), [("six", 5), (5, "5.0"), (True, "true"), ("x", 1.5)])
def test_what_has_no_order_is_an_error(left, right):
    with pytest.raises(EvaluationFailed):
        compare(left, right)


def test_a_text_is_a_double_as_java_reads_it():
    assert [double(text) for text in ("5", " 5d\n", "0x1.8p1", ".5", "-Infinity")] == [
        *(5.0, 5.0, 3.0, 0.5),
        float("-inf"),
    ]
    with pytest.raises(EvaluationFailed, match="no number"):
        double("1_000")

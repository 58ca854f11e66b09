"""Tables of grants: what they mean, and that mistakes in them are named and not quoted."""

import pytest

from rocketlens.console.login.grants import check_keys, grant_of, patterns_in
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.errors import BadInput


def test_a_grant_is_for_everything_that_it_does_not_narrow():
    assert grant_of("f", {"role": "admin"}) == Grant(Role.ADMIN, ("*",), ("*",))
    narrowed = {"role": "viewer", "sources": ["prod*"], "topics": ["order-*", "%RETRY%*"]}
    assert grant_of("f", narrowed) == Grant(Role.VIEWER, ("prod*",), ("order-*", "%RETRY%*"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("geheim", "f must be a table"),
        ({}, "f: role must be one of viewer, operator, admin"),
        ({"role": "geheim"}, "f: role must be one of viewer, operator, admin"),
        ({"role": ["viewer"]}, "f: role must be one of"),
        ({"role": "viewer", "geheim": 1}, "f: 1 unknown keys: give role, sources, topics"),
        ({"role": "viewer", "topics": "geheim"}, "f: topics must be a list of patterns"),
        ({"role": "viewer", "sources": ["geheim[1]"]}, "f: sources must be a list of patterns"),
        ({"role": "viewer", "sources": []}, "f: sources must be a list of patterns"),
    ],
)
def test_a_mistake_of_a_grant_is_named_and_not_quoted(table, said):
    with pytest.raises(BadInput) as caught:
        grant_of("f", table)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_patterns_and_keys_are_checked_alike_elsewhere():
    assert patterns_in("f", "topics", ["a*", "b?"]) == ("a*", "b?")
    check_keys("f", {"a": 1}, {"a", "b"})
    with pytest.raises(BadInput, match="f: 2 unknown keys: give a, b"):
        check_keys("f", {"a": 1, "x": 1, "y": 1}, {"a", "b"})

"""The file of contexts is changed as text, and keeps everything else."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.terminal.context_edit import (
    check_context_name,
    with_context,
    with_default,
    without_context,
    write_contexts,
)

TEXT = """# mine
default_context = "prod"   # of the shop

[contexts.prod]
namesrv = "10.0.0.1:9876"  # two more to come
[contexts."backup"]
# nightly
store = "/backup/store"
"""


def test_a_context_is_added_behind_the_others():
    after = with_context(TEXT, "test", {"namesrv": "a:1", "tls": True})
    assert after.startswith(TEXT)
    assert tomllib.loads(after)["contexts"]["test"] == {"namesrv": "a:1", "tls": True}
    assert with_context("", "t", {"store": "/s"}) == '[contexts.t]\nstore = "/s"\n'


def test_the_default_context_is_replaced_and_comments_stay():
    after = with_default(TEXT, "backup")
    assert tomllib.loads(after)["default_context"] == "backup"
    assert "# mine" in after
    assert after.count("default_context") == 1
    assert tomllib.loads(with_default('[contexts.a]\nstore="/s"', "a"))["default_context"] == "a"


@pytest.mark.parametrize(("name", "default"), [("prod", None), ("backup", "prod")])
def test_a_context_is_removed_and_nothing_else_but_its_being_the_default(name, default):
    after = without_context(TEXT, name)
    parsed = tomllib.loads(after)
    (other,) = {"prod", "backup"} - {name}
    assert parsed["contexts"] == {other: tomllib.loads(TEXT)["contexts"][other]}
    assert parsed.get("default_context") == default
    assert "# mine" in after


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: with_context(TEXT, "prod", {}), "already"),
        (lambda: with_default(TEXT, "nowhere"), "no context"),
        (lambda: without_context(TEXT, "nowhere"), "no context"),
        (lambda: with_context("a =", "x", {}), "not TOML"),
        (lambda: with_context(TEXT, "x", {"store": "a\nb"}), "control character"),
        (lambda: with_context(TEXT, "a.b", {}), "letters"),
        (lambda: without_context('contexts.a = {store="/s"}', "a"), "only its author"),
        (lambda: without_context('[contexts]\na = {store="/s"}', "a"), "only its author"),
    ],
)
def test_what_cannot_be_done_is_refused(change, said):
    with pytest.raises(BadInput, match=said):
        change()


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_value_is_read_as_it_was_given_or_refused(value):
    try:
        after = with_context(TEXT, "x", {"namesrv": value})
    except BadInput:
        return
    assert tomllib.loads(after)["contexts"]["x"]["namesrv"] == value


def test_a_new_file_is_for_its_user_alone_and_an_old_one_keeps_its_mode(tmp_path):
    path = tmp_path / "new" / "config.toml"
    write_contexts(path, "a")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    write_contexts(path, "b")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("b", 0o640)
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_names_are_plain():
    assert check_context_name("prod-1_a") == "prod-1_a"
    with pytest.raises(BadInput):
        check_context_name("")

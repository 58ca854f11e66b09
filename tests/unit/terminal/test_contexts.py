"""Named contexts: what a file may say, and what it never gives away.

The file of contexts is changed as text, and keeps everything else.
"""

import os
import stat
import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.terminal.cluster_access import cluster_access
from rocketlens.terminal.contexts import (
    DEFAULT,
    Context,
    add_context,
    change_contexts,
    default_context,
    named_context,
    remove_context,
    write_contexts,
)
from tests.unit.terminal.conftest import CONFIG, SECRET

TEXT = """# mine
default_context = "prod"   # of the shop

[contexts.prod]
namesrv = "10.0.0.1:9876"  # two more to come
[contexts."backup"]
# nightly
store = "/backup/store"
"""


def test_the_file_may_be_elsewhere(config, tmp_path, monkeypatch):
    elsewhere = tmp_path / "other.toml"
    elsewhere.write_text('[contexts.x]\nnamesrv = "h:1"')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(elsewhere))
    assert named_context("x").namesrv == "h:1"


def test_a_secret_is_never_shown(config, run, tmp_path):
    named = named_context("prod")
    assert SECRET not in repr(named) + str(named) + repr(cluster_access(named))
    for broken in (
        f'[contexts.prod]\nsecret_key = ["{SECRET}"]',
        f'[contexts.prod]\naccess_key = "a"\nsecret_key = "{SECRET}"\nsecret_key_env = "X"',
        f'[contexts.prod]\nsecret_key = "{SECRET}',
        f'[contexts.prod]\nnamesrv = "h:1"\nsecret_key = "{SECRET}"',
        f'[contexts.prod]\nnamesrv = "h:1"\nsecret_key_file = "/{SECRET}\\u0000"',
    ):
        config(broken)
        done = run("find", "k", "--context", "prod")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), broken
        assert SECRET not in done.err


def test_a_secret_that_others_can_read_is_warned_of(config, tmp_path, capsys):
    path = config(CONFIG)
    named_context("test")
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    named_context("test")
    assert "chmod 600" in capsys.readouterr().err
    file = path.with_name("reader.secret")
    file.write_text(SECRET)
    file.chmod(stat.S_IRUSR | stat.S_IRGRP)
    config(CONFIG.replace(f'secret_key = "{SECRET}"', ""))
    assert named_context("file").secret() == SECRET
    assert f"{file} holds a secret key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[contexts.prod\n", "at line 1"),
        ("\xff", "is not UTF-8"),
        ("[context.prod]\nnamesrv = 'h:1'", "contexts; did you mean contexts"),
        ("contexts = 3", "contexts must be a table"),
        ("contexts.prod = 3", "context number 1 must be a table: [contexts.NAME]"),
        ("default_context = 3\n[contexts.prod]", "default_context must be text"),
        ("[contexts.prod]\nnamsrv = 'h:1'", "read_only; did you mean namesrv?"),
        ("[contexts.prod]\nnamesrv = 9876", "namesrv must be text in quotation marks"),
        ("[contexts.prod]\ntls = 'yes'", "tls must be true or false"),
        ("[contexts.prod]\nnamesrv = ''", "namesrv is empty"),
        ("[contexts.prod]\nstore = 's'\ntls = true", "store cannot be combined"),
        ("[contexts.prod]\narchive = 's'\nstore = 's'", "store cannot be combined"),
        ("[contexts.prod]\narchive = 's'\ntls = true", "archive cannot be combined"),
        ("[contexts.other]\nstore = 's'", "has 1 context, but not this one"),
        ("", "has 0 contexts, but not this one"),
        ("[contexts.prod]\ntls = true", "no name server: give --namesrv"),
        ("[contexts.prod]\nnamesrv = 'h:1'\naccess_key = 'a'", "the secret key is missing"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nsecret_key = 'a'", "the access key is missing"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nsecret_key_env = 'NONE'", "variable that it names is"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nsecret_key_file = 'none'", "No such file"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nca = 'none.pem'", "none.pem: "),
        ("[contexts.prod]\nnamesrv = 'h:1'\ncert_key = 'k.pem'", "cert_key needs cert"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nca = 'c'\ninsecure = true", "give only one"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nnamespace = 'a%b'", "letters, digits, _ and -"),
        ("[contexts.prod]\nnamesrv = 'no address'", "no address"),
    ],
)
def test_whatever_is_wrong_is_one_line_that_names_it(config, run, text, said):
    path = config("")
    path.write_bytes(text.encode("latin-1"))
    done = run("send", "T", "body", "--context", "prod")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert said in done.err


def test_no_file_is_needed_until_a_context_is(run, monkeypatch):
    assert default_context() == Context()
    done = run("find", "k", "--context", "prod")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "does not exist" in done.err
    monkeypatch.setenv("ROCKETLENS_CONFIG", "/no/such/file.toml")
    assert "the file /no/such/file.toml does not exist" in run("find", "k").err


def test_a_context_of_a_store_is_read(config, run, write_store, tmp_path):
    store = write_store({"properties": {"KEYS": "k"}})
    config(f'[contexts.mine]\nstore = "{store}"')
    assert run("find", "k", "--context", "mine").code == 0
    assert run("show", "T/0/0", "--context", "mine").code == 0


def changed(text, change, *given):
    document = tomlkit.parse(text)
    change(document, *given)
    return document.as_string()


def test_a_context_is_added_behind_the_others():
    after = changed(TEXT, add_context, "test", {"namesrv": "a:1", "tls": True})
    assert after.startswith(TEXT)
    assert tomllib.loads(after)["contexts"]["test"] == {"namesrv": "a:1", "tls": True}
    assert changed("", add_context, "t", {"store": "/s"}) == '[contexts.t]\nstore = "/s"\n'


def test_the_default_context_is_replaced_and_comments_stay(config):
    path = config(TEXT)
    change_contexts(lambda document: document.update({DEFAULT: "backup"}))
    after = path.read_text()
    assert tomllib.loads(after)["default_context"] == "backup"
    assert "# mine" in after
    assert after.count("default_context") == 1


@pytest.mark.parametrize(("name", "default"), [("prod", None), ("backup", "prod")])
def test_a_context_is_removed_and_nothing_else_but_its_being_the_default(name, default):
    after = changed(TEXT, remove_context, name)
    parsed = tomllib.loads(after)
    (other,) = {"prod", "backup"} - {name}
    assert parsed["contexts"] == {other: tomllib.loads(TEXT)["contexts"][other]}
    assert parsed.get("default_context") == default
    assert "# mine" in after


@pytest.mark.parametrize(
    "text",
    [
        'contexts.a = {store="/s"}\n',
        '[contexts]\na = {store="/s"}\n',
        'contexts = {a = {store="/s"}}\n',
        '["contexts" . "a"]\nstore = "/s"\n',
        '[contexts.a]\nstore="/s"\n[other]\nx = 1\n',
    ],
)
def test_contexts_are_added_and_removed_however_the_file_is_written(text):
    before = tomllib.loads(text)
    more = changed(text, add_context, "b", {"namesrv": "h:1"})
    assert tomllib.loads(more)["contexts"] == {"a": {"store": "/s"}, "b": {"namesrv": "h:1"}}
    assert tomllib.loads(changed(more, remove_context, "b")) == before
    default = changed(more, lambda document: document.update({DEFAULT: "b"}))
    assert tomllib.loads(default)["default_context"] == "b"
    assert not tomllib.loads(changed(text, remove_context, "a")).get("contexts")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: changed(TEXT, add_context, "prod", {}), "already"),
        (lambda: changed(TEXT, add_context, "x", {"store": "a\nb"}), "control character"),
        (lambda: changed(TEXT, add_context, "a.b", {}), "letters"),
        (lambda: changed(TEXT, add_context, "", {}), "letters"),
    ],
)
def test_what_cannot_be_done_is_refused(change, said):
    with pytest.raises(BadInput, match=said):
        change()


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_value_is_read_as_it_was_given_or_refused(value):
    try:
        after = changed(TEXT, add_context, "x", {"namesrv": value})
    except BadInput:
        return
    assert tomllib.loads(after)["contexts"]["x"]["namesrv"] == value


def test_a_new_file_is_for_its_user_alone_and_an_old_one_keeps_its_mode(tmp_path):
    path = tmp_path / "config.toml"
    write_contexts(path, "a")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    write_contexts(path, "b")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("b", 0o640)
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_a_file_that_another_program_is_writing_is_left_alone(tmp_path):
    path = tmp_path / "config.toml"
    partial = tmp_path / f".config.toml.{os.getpid()}.part"
    partial.write_text("of another")
    with pytest.raises(FileExistsError):
        write_contexts(path, "a")
    assert partial.read_text() == "of another"

"""A configuration file gives nothing away, is no pipe, and is nobody else's."""

import os

import pytest

from rocketlens.terminal import contexts
from tests.support.patched import change_for

SECRET = "S3cr3tOfTheCluster"
ASKED = ("find", "k", "--context", "prod")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Where the file is looked for."""
    there = tmp_path / "config.toml"
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(there))
    return there


@pytest.mark.parametrize(
    "text",
    [
        f"[contexts.prod]\nnamesrv = 'h:1'\naccess_key = 'a'\nsecret_key_env = '{SECRET}'",
        f"[contexts.prod]\nnamesrv = 'h:1'\naccess_key = 'a'\nsecret_key_file = '{SECRET}'",
        f"[contexts.{SECRET}]\nnamesrv = 'h:1'",
        f"[contexts.prod]\n{SECRET} = 'x'",
        f"{SECRET} = 'x'",
        f"[contexts]\n{SECRET} = 5",
        f"[contexts.{SECRET}]\n[contexts.{SECRET}]",
        f"[contexts.prod]\n{SECRET} = 1\n{SECRET} = 2",
        f"[contexts.prod]\nsecret_key = {SECRET}",
        f"[contexts.prod]\nnamesrv = 'h:1'\nnamespace = '{SECRET} !'",
        f"default_context = '{SECRET}'",
    ],
)
def test_a_secret_in_the_wrong_place_is_never_shown(run, path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    for asked in (ASKED, ("find", "k"), ("mqadmin", "topicList")):
        done = run(*asked)
        assert done.code == 2
        assert SECRET not in done.err + done.out


def test_an_error_of_toml_says_where_it_is(run, path):
    path.write_text("[contexts.prod]\nnamesrv = h:1", encoding="utf-8")
    assert "is not TOML (at line 2, column 11)" in run(*ASKED).err


def test_a_pipe_is_refused_and_not_waited_for(run, path, tmp_path, monkeypatch):
    os.mkfifo(path)
    done = run(*ASKED)
    assert done.code == 2
    assert f"{path} is not a regular file" in done.err
    monkeypatch.delenv("ROCKETLENS_CONFIG")
    options = ("--namesrv", "127.0.0.1:1", "--access-key", "a", "--secret-key-file", path)
    done = run("find", "k", *options)
    assert "the secret key's file (secret_key_file) is not a regular file" in done.err
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    os.mkfifo(home / "conf" / "tools.yml")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    assert "is not a regular file" in run("mqadmin", "topicList", "-n", "127.0.0.1:1").err


def test_a_file_that_everybody_may_write_is_refused(run, path):
    path.write_text("[contexts.prod]\nnamesrv = '127.0.0.1:1'", encoding="utf-8")
    path.chmod(0o666)
    done = run(*ASKED)
    assert done.code == 2
    assert f"{path} is world-writable and is not used: chmod o-w {path}" in done.err


def test_a_file_of_another_user_is_refused_unless_that_is_root(run, path, monkeypatch):
    path.write_text("[contexts.prod]\nnamesrv = '127.0.0.1:1'", encoding="utf-8")
    path.chmod(0o600)
    own = os.stat(path).st_uid  # noqa: PTH116 - the test's own
    change_for(monkeypatch, contexts, "os", geteuid=lambda: own + 1)
    done = run(*ASKED)
    is_refused = "belongs to another user" in done.err
    assert is_refused == (own != 0)
    if own == 0:
        os.chown(path, 4242, -1)
        done = run(*ASKED)
        assert f"{path} belongs to another user (id 4242) and is not used" in done.err


def test_the_null_device_is_a_file_without_contexts(run, monkeypatch):
    monkeypatch.setenv("ROCKETLENS_CONFIG", os.devnull)
    assert "has 0 contexts" in run(*ASKED).err

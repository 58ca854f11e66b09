"""``rocketlens context remove``."""

import tomllib

import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The path of a file of contexts that is not there yet."""
    path = tmp_path / "state" / "config.toml"
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(path))
    return path


def test_a_context_is_removed(run, config):
    run("context", "add", "a", "-n", "a:1", "--use")
    run("context", "add", "b", "-n", "b:1")
    assert run("context", "remove", "a").code == 0
    assert tomllib.loads(config.read_text()) == {"contexts": {"b": {"namesrv": "b:1"}}}


def test_a_context_that_is_not_there_is_refused(run, config):
    run("context", "add", "a", "-n", "a:1")
    before = config.read_text()
    done = run("context", "remove", "c")
    assert (done.code, config.read_text()) == (2, before)

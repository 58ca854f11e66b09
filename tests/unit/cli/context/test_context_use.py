"""``rocketlens context use``."""

import tomllib

import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The path of a file of contexts that is not there yet."""
    path = tmp_path / "state" / "config.toml"
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(path))
    return path


def test_a_context_becomes_the_default(run, config):
    for name in ("a", "b"):
        run("context", "add", name, "-n", f"{name}:1")
    for name in ("a", "b"):
        assert run("context", "use", name).code == 0
        assert tomllib.loads(config.read_text())["default_context"] == name


def test_a_context_that_is_not_there_is_refused_with_the_one_that_was_meant(run, config):
    run("context", "add", "prod", "-n", "a:1")
    done = run("context", "use", "prd")
    assert done.code == 2
    assert "did you mean prod?" in done.err
    assert "default_context" not in config.read_text()


def test_a_variable_that_counts_more_is_named(run, config, monkeypatch):
    run("context", "add", "a", "-n", "a:1")
    run("context", "add", "b", "-n", "b:1")
    monkeypatch.setenv("ROCKETLENS_CONTEXT", "a")
    done = run("context", "use", "b")
    assert (done.code, "ROCKETLENS_CONTEXT" in done.err) == (2, True)
    assert tomllib.loads(config.read_text())["default_context"] == "b"


def test_a_secret_that_others_can_read_is_warned_of_once(run, config):
    config.parent.mkdir()
    config.write_text('[contexts.a]\nnamesrv = "h:1"\naccess_key = "k"\nsecret_key = "s"\n')
    config.chmod(0o644)
    for words in (("use", "a"), ("add", "b", "-n", "h:2"), ("remove", "b")):
        done = run("context", *words)
        assert done.code == 0, done.err
        assert done.err.count("others may read") == 1

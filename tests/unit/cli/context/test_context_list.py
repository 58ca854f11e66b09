"""Named contexts are listed, and nothing secret with them."""

import csv
import json

import pytest

CONFIG = """
default_context = "prod"
[contexts.prod]
namesrv = "10.0.0.1:9876"
namespace = "shop"
access_key = "reader"
secret_key = "s3cret"
tls = true
read_only = true
[contexts.backup]
store = "/backup/store"
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    file.chmod(0o600)
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(file))
    return file


def test_contexts_are_listed_with_the_default_one_marked_and_without_secrets(run, config):
    assert config.exists()
    done = run("context", "list")
    assert done.code == 0
    assert "s3cret" not in done.out + done.err
    assert "reader" not in done.out + done.err
    _, prod, backup = done.out.splitlines()
    assert prod.split("\t")[:3] == ["*", "prod", "cluster 10.0.0.1:9876"]
    assert "namespace shop, signs requests, TLS, read-only" in prod
    assert backup.split("\t")[:3] == ["", "backup", f"store {'/backup/store'}"]


def test_contexts_as_json(run, config):
    done = run("context", "list", "-o", "json")
    listed = json.loads(done.out)
    assert listed["file"] == str(config)
    assert [(each["name"], each["default"]) for each in listed["contexts"]] == [
        ("prod", True),
        ("backup", False),
    ]
    assert "s3cret" not in done.out


def test_without_a_file_there_are_none(run):
    done = run("context", "list")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("rocketlens: there are no contexts in /nonexistent/")


def test_a_context_that_is_nearly_there_is_suggested(run, config):
    assert config.exists()
    done = run("topics", "--context", "backpu")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "did you mean backup?" in done.err
    assert "rocketlens context list" in run("topics", "--context", "other").err


@pytest.mark.parametrize("command", [("index", "verify"), ("index", "build"), ("index", "follow")])
def test_commands_for_stores_take_the_store_of_a_context(run, config, tmp_path, command):
    for words in (("--context", "backup"), ()):
        config.write_text(CONFIG.replace('context = "prod"', 'context = "backup"'))
        done = run(*command, *words)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "/backup/store" in done.err
    for words in (("--context", "prod"), ()):
        config.write_text(CONFIG)
        assert "needs a store, but the context names a cluster" in run(*command, *words).err
    done = run(*command, "--context", "backup", "--store", tmp_path)
    assert "give only one" in done.err


def test_doctor_checks_the_store_of_a_context(run, config):
    config.write_text(CONFIG.replace('context = "prod"', 'context = "backup"'))
    assert "/backup/store" in run("doctor").out


def test_csv_has_a_row_for_each_context(run, config):
    assert config.exists()
    rows = list(csv.reader(run("context", "list", "-o", "csv").out.splitlines()))
    assert rows[0] == ["", "NAME", "NAMES", "NOTES"]
    assert [row[:2] for row in rows[1:]] == [["*", "prod"], ["", "backup"]]

"""``rocketlens index follow``; what it builds is tested with Spark."""

import pytest


def test_without_a_jdk_one_line_says_what_to_install(run, tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", "follow", "--store", tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "install a JDK >= 17" in done.err


def test_a_store_must_be_named(run):
    done = run("index", "follow")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "--store" in done.err

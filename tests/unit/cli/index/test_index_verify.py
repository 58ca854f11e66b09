"""``rocketlens index verify``: what it refuses, compares and prints."""

import csv
import json

import pytest

from tests.conftest import fingerprint
from tests.support.layouts import copied


def test_verify_says_that_a_sound_store_agrees(run, golden, own_session):
    done = run("index", "verify", "--store", golden("5.5.0").store)
    assert done.code == 0, done.out
    assert done.out.splitlines()[-1] == "log, consume queues and index agree"


def test_verify_names_what_differs_and_gives_code_1(run, copy, own_session):
    path = min((copy / "index").iterdir())
    content = bytearray(path.read_bytes())
    content[40 + 500 * 4 + 20 * 7 + 3] ^= 1
    path.write_bytes(content)
    done = run("index", "verify", "--store", copy)
    assert done.code == 1
    assert path.name in done.out
    assert "they differ" in done.out
    assert done.out.count("index chain: ") == 1  # the heading; what is below does not repeat it
    assert f"index build --queues --store {copy}" in done.out
    report = json.loads(run("index", "verify", "--store", copy, "-o", "json").out)
    assert report["agrees"] is False
    assert sum(report["counts"].values()) >= len(report["findings"]) > 0
    shown = run("index", "verify", "--store", copy, "-o", "csv")
    titles, *rows = csv.reader(shown.out.splitlines())
    assert (shown.code, titles[:2], len(rows)) == (1, ["kind", "detail"], len(report["findings"]))
    assert {"kind", "detail", "file", "physical_offset"} <= set(report["findings"][0])


def test_verify_changes_nothing(run, golden, own_session):
    before = fingerprint(golden("4.9.7").store)
    run("index", "verify", "--store", golden("4.9.7").store)
    assert fingerprint(golden("4.9.7").store) == before


@pytest.mark.parametrize("name", ["multi-5.5.0", "dledger-5.5.0", "batchcq-5.5.0"])
def test_a_store_whose_log_is_elsewhere_is_verified_by_its_broker_conf(
    run, layouts, name, own_session, tmp_path
):
    layout = copied(layouts, name, tmp_path / "broker")
    layout.conf = layout.conf.rename(tmp_path / "any.conf")
    before = fingerprint(tmp_path)
    done = run("index", "verify", "--broker-conf", layout.conf)
    assert done.code == 0, done.out + done.err
    assert fingerprint(tmp_path) == before


def test_what_is_no_store_is_refused_before_spark_starts(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", "verify", "--store", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "commit log" in done.err


def test_without_a_jdk_one_line_says_what_to_install(run, golden, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", "verify", "--store", golden("5.5.0").store)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "install a JDK >= 17" in done.err


def test_a_dry_run_starts_nothing(run, copy, monkeypatch):
    def no_spark(*_arguments, **_options):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rocketlens.cli.jobs.index.task_context", no_spark)
    done = run("index", "verify", "--dry-run", "--store", copy)
    assert done.code == 0
    assert "would read      1.0M of log in 4 files" in done.out

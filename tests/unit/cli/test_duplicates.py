"""``rocketlens duplicates``: what it searches, prints and refuses."""

import csv
import json
from contextlib import nullcontext

import pytest

from rocketlens import Message
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def running():
    with cluster() as running, running.producer() as producer:
        for number in range(20):
            producer.send(Message("Orders", b"%d" % number, unique_key=f"KEY{number // 2 * 2}"))
            producer.send(Message("Payments", b"%d" % number))
        yield running


@pytest.fixture
def source(request, running, tmp_path, run):
    """Options that name the same messages in a store, a cluster or an archive."""
    if request.param == "store":
        return "--store", running.store
    if request.param == "cluster":
        return "--namesrv", running.name_server, "--topic", "Orders,Pay*"
    lake = tmp_path / "lake"
    archived = run(
        *("archive", "run", "--table", lake, "--store", f"broker-a={running.store}", "--once")
    )
    assert archived.code == 0, archived.err
    return "--archive", lake


@pytest.mark.parametrize(
    "source",
    ["store", *(pytest.param(each, marks=pytest.mark.slow) for each in ("cluster", "archive"))],
    indirect=True,
)
def test_unique_keys_that_are_stored_twice_are_listed(run, own_session, source):
    done = run("duplicates", *source, "-o", "json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["unique_keys"], report["complete"]) == (10, True)
    assert {each["state"] for each in report["coverage"]} == {"searched"}
    (group,) = report["groups"]
    assert (group["topic"], group["cause"], group["copies"]) == ("Orders", "retried", 10)
    assert [each["unique_key"] for each in report["duplicates"]] == sorted(
        f"KEY{number}" for number in range(0, 20, 2)
    )
    assert all(len(each["copies"]) == 2 for each in report["duplicates"])


@pytest.mark.slow
@pytest.mark.parametrize("source", ["store", "archive"], indirect=True)
def test_without_duplicates_it_is_said_that_there_are_none(run, own_session, source):
    done = run("duplicates", *source, "--topic", "Pay*")
    assert (done.code, "messages compared, 0 unique keys stored more than once" in done.err) == (
        1,
        True,
    )
    assert "nothing found, COMPLETE: searched " in done.err


def test_rows_lead_to_the_first_copy_and_say_how_many_are_not_listed(run, running, own_session):
    done = run("duplicates", "--store", running.store, "--max", "3", "-o", "csv")
    titles, *rows = csv.reader(done.out.splitlines())
    assert len(rows) == 3
    first = dict(zip(titles, rows[0], strict=True))
    shown = run("find", first["first_position"], "--store", running.store, "-o", "jsonl")
    assert first["unique_key"] in shown.out
    done = run("duplicates", "--store", running.store, "--max", "3")
    assert done.out.count("KEY") == 3
    assert "3 of 10 unique keys are listed (--max)" in done.err
    assert "Orders, producer 127.0.0.1, retried: 10 unique keys, 10 copies" in done.err
    assert f"10 unique keys, COMPLETE: searched {running.store}\n" in done.err


def test_a_search_of_a_damaged_store_is_incomplete(run, copy, own_session):
    path = min((copy / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[5_000:5_400] = bytes(400)
    path.write_bytes(content)
    done = run("duplicates", "--store", copy)
    assert done.code == 3, done.err
    assert f"INCOMPLETE: searched {copy}" in done.err
    assert f"failed: {copy}: " in done.err


def test_a_search_of_a_store_that_lost_the_end_of_its_log_is_incomplete(run, copy, own_session):
    max((copy / "commitlog").iterdir()).unlink()
    done = run("duplicates", "--store", copy)
    assert done.code == 3, done.err
    assert "messages at its end are lost" in done.err


def test_what_spark_says_of_an_error_of_the_source_is_shortened_to_it(run, golden, monkeypatch):
    errors = pytest.importorskip("pyspark.errors")

    def read(*_):
        raise errors.AnalysisException(
            "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: "
            "Traceback (most recent call last):\n"
            '  File "source.py", line 163, in partitions\n'
            "    return list(map(InputPartition, self.scan.shares()))\n"
            "rocketlens.errors.TopicNotFound: the cluster has no topic 'Ordrs'\n SQLSTATE: 38000"
        )

    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda **_: None)
    monkeypatch.setattr("rocketlens.cli.jobs.duplicates.sql_session", lambda _: nullcontext())
    monkeypatch.setattr("rocketlens.cli.jobs.duplicates._read", read)
    done = run("duplicates", "--store", golden("5.5.0").store)
    assert done.code == 2
    [line] = done.err.splitlines()
    assert line.endswith("Spark failed: TopicNotFound: the cluster has no topic 'Ordrs'")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--store", "{store}", "--archive", "x"), "leave out the other source"),
        ((), "no source is named"),
        (("-n", "127.0.0.1:1"), "a cluster needs --topic"),
        (("--archive", "{store}"), "is not an archive"),
        (("--store", "/nowhere"), "no such file or directory"),
        (("--store", "{store}", "--since", "never"), "--since"),
        (("--store", "{store}", "-t", "PayTopc"), "did you mean PayTopic?"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_spark_starts(
    run, golden, monkeypatch, options, error
):
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda **_: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("duplicates", *(each.format(store=golden("5.5.0").store) for each in options))
    assert (done.code, error in done.err) == (2, True), done.err

"""``rocketlens index build``: what it refuses, does and prints.

``rocketlens index verify``: what it refuses, compares and prints.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest

import rocketlens
from rocketlens.cli.jobs import index
from rocketlens.store.lock import StoreLock
from tests.conftest import fingerprint
from tests.support.layouts import copied


def contents(directory: Path):
    return [path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()]


def test_a_rebuilt_index_is_byte_for_byte_the_brokers(run, golden, copy, own_session):
    shutil.rmtree(copy / "index")
    shutil.rmtree(copy / "consumequeue")
    arguments = ("--slots", 500, "--entries", 1000, "--queues", "--queue-file-size", 20000)
    done = run("index", "build", "--store", copy, *arguments)
    assert done.code == 0, done.err
    real = golden("5.5.0").store
    assert contents(copy / "index") == contents(real / "index")
    assert contents(copy / "consumequeue") == contents(real / "consumequeue")
    assert "7 files of 500 slots and 1,000 entries, with tags" in done.out
    assert str(copy) in done.out


def test_sizes_come_from_the_store_itself(run, golden, copy, own_session):
    assert run("index", "build", "--store", copy).code == 0
    assert contents(copy / "index") == contents(golden("5.5.0").store / "index")


def test_out_leaves_the_store_as_it_was(run, golden, tmp_path, own_session):
    store = golden("4.9.7").store
    before = fingerprint(store)
    done = run("index", "build", "--store", store, "--out", tmp_path / "out", "--no-tag-index")
    assert done.code == 0, done.err
    assert fingerprint(store) == before
    assert contents(tmp_path / "out" / "index") == contents(store / "index")


def test_a_store_that_is_in_use_is_refused_before_spark_starts(run, copy, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    before = contents(copy / "index")
    with StoreLock(copy):
        done = run("index", "build", "--store", copy)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "belongs to a running broker or job" in done.err
    assert contents(copy / "index") == before


def test_a_damaged_place_of_the_log_is_named_and_left_out(run, copy, own_session):
    segment = copy / "commitlog" / "00000000000000000000"
    content = bytearray(segment.read_bytes())
    content[2161:2165] = b"\x7f\xff\xff\xff"
    segment.write_bytes(content)
    done = run("index", "build", "--store", copy)
    assert done.code == 0
    assert "damaged log, left out: 462 bytes at physical offset 2161" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--delay-levels", "1s 5s"), "--queues"),
        (("--queue-file-size", "20"), "--queues"),
        (("--queues", "--delay-levels", "soon"), "'soon' is not a delay"),
        (("--slots", "0"), "--slots"),
        (("--entries", "-1"), "--entries"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(run, golden, arguments, says, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", "build", "--store", golden("5.5.0").store, *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_an_impossible_output_is_refused_before_spark_starts(run, golden, copy, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    before = contents(copy)
    store = golden("5.5.0").store
    for out, says in ((copy, "is another store"), ("/proc/x", "cannot be written to")):
        done = run("index", "build", "--store", store, "--out", out)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
    assert contents(copy) == before


@pytest.mark.parametrize("command", ["build", "verify"])
def test_what_is_no_store_is_refused_before_spark_starts(run, tmp_path, monkeypatch, command):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", command, "--store", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "commit log" in done.err


@pytest.mark.parametrize("command", ["build", "verify"])
def test_without_a_jdk_one_line_says_what_to_install(run, golden, monkeypatch, command):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("index", command, "--store", golden("5.5.0").store)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "install a JDK >= 17" in done.err


def test_a_rate_is_given_only_where_it_says_something():
    from rocketlens.formats.index_file import Geometry
    from rocketlens.pipeline.dispatch import DispatchResult

    result = DispatchResult(Path("/s"), Geometry(500, 1000), tag_index=True)
    result.seconds = {"read": 1.0, "build": 1.0}
    for entries, shown in ((10, False), (4_000_000, True)):
        result.index_entries = entries
        text = "\n".join(index.result_lines(result, with_queues=False))
        assert ("entries a second" in text) is shown


def no_spark(*_arguments, **_options):
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("out", [False, True])
def test_a_dry_run_says_what_would_be_replaced_and_starts_nothing(
    run, copy, tmp_path, monkeypatch, out
):
    monkeypatch.setattr("rocketlens.cli.jobs.index.task_context", no_spark)
    before = fingerprint(copy)
    given = ("--out", tmp_path / "out") if out else ()
    done = run("index", "build", "--queues", "--dry-run", "--store", copy, *given)
    assert done.code == 0, done.err
    root = tmp_path / "out" if out else copy
    assert f"would write     {root}/index: files of 500 slots and 1,000 entries" in done.out
    assert f"would write     {root}/consumequeue: files of 20,000 bytes" in done.out
    kept = f"would replace   {root}/index, kept as {root}/rocketlens/replaced/index"
    assert (kept in done.out) is not out
    assert fingerprint(copy) == before


def test_a_dry_run_refuses_what_the_run_would_refuse(run, copy, monkeypatch):
    monkeypatch.setattr("rocketlens.cli.jobs.index.task_context", no_spark)
    done = run("index", "build", "--dry-run", "--entries", 1, "--store", copy)
    assert done.code == 2
    assert "at least 1 slot and 2 entries" in done.err


def test_the_old_index_is_kept_aside_and_the_next_step_is_named(run, copy, own_session):
    old = contents(copy / "index")
    done = run("index", "build", "--store", copy, "--slots", 100)
    assert done.code == 0, done.err
    assert contents(copy / "rocketlens/replaced/index") == old
    assert f"kept aside      {copy}/rocketlens/replaced/index" in done.out
    assert f"next: rocketlens index verify --store {copy}" in done.err


@pytest.mark.parametrize("name", ["multi-5.5.0", "dledger-5.5.0"])
def test_the_index_of_a_store_whose_log_is_elsewhere_is_built_by_its_broker_conf(
    run, layouts, name, own_session, tmp_path
):
    layout = copied(layouts, name, tmp_path / "broker")
    layout.conf = layout.conf.rename(tmp_path / "any.conf")
    shutil.rmtree(layout.store / "index")
    logs = [path.read_bytes() for path in layout.log_files()]
    done = run("index", "build", "--broker-conf", layout.conf)
    assert done.code == 0, done.out + done.err
    assert [path.read_bytes() for path in layout.log_files()] == logs
    with rocketlens.open_store(broker_conf=layout.conf) as store:
        for sent in layout.messages:
            answer = store.find(sent.key, topic=sent.topic)
            assert answer.complete
            assert [each.offset_msg_id for each in answer.messages] == [sent.offset_msg_id]
            assert any(each.kind == "index_file" for each in answer.coverage), answer.coverage


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


def test_a_dry_run_starts_nothing(run, copy, monkeypatch):
    def no_spark(*_arguments, **_options):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rocketlens.cli.jobs.index.task_context", no_spark)
    done = run("index", "verify", "--dry-run", "--store", copy)
    assert done.code == 0
    assert "would read      1.0M of log in 4 files" in done.out

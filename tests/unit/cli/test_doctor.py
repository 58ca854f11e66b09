"""``rocketlens doctor``."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from rocketlens.cli import doctor
from tests.conftest import fingerprint
from tests.unit.store.written_stores import open_small, send_many

NAME = "broker name"


def line_of(done, name):
    return next(line for line in done.out.splitlines() if line.split()[1] == name)


def test_doctor_gives_a_line_for_each_thing_and_code_0_when_nothing_failed(run):
    done = run("doctor")
    assert done.code == 0
    for name in ("Python", "kernels", "Java", "PySpark", "PYSPARK_PYTHON", "temp"):
        assert line_of(done, name).split()[0] in {"ok", "warn"}


def test_a_missing_jdk_is_a_warning_that_says_what_to_install(run, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("doctor")
    assert done.code == 0
    assert line_of(done, "Java").startswith("warn")
    assert "install a JDK >= 17" in line_of(done, "Java")


def test_another_python_for_spark_is_pointed_out(run, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    assert line_of(run("doctor"), "PYSPARK_PYTHON").startswith("warn")
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-program")
    assert "is not a program" in line_of(run("doctor"), "PYSPARK_PYTHON")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert line_of(run("doctor"), "PYSPARK_PYTHON").startswith("ok")


def test_a_broken_installation_is_a_failed_check_and_no_traceback(run, monkeypatch):
    def broken():
        raise ImportError("numpy says no")
        yield

    monkeypatch.setattr(doctor, "_kernels", broken)
    done = run("doctor")
    assert done.code == 1
    assert "ImportError: numpy says no" in done.out


def test_a_sound_store_is_ok_and_stays_as_it_was(run, golden):
    store = golden("5.5.0").store
    before = fingerprint(store)
    done = run("doctor", "--store", store)
    assert done.code == 0
    assert "4 commit log files" in line_of(done, "store")
    assert "7 files, 6,783 entries" in line_of(done, "index")
    assert "closed the store" in line_of(done, "owner")
    assert fingerprint(store) == before


def test_a_killed_brokers_store_is_told_by_its_abort_file(run, golden):
    done = run("doctor", "--store", golden("5.5.0").crashed)
    assert line_of(done, "owner").startswith("warn")


def test_a_running_owner_is_told_by_the_lock_which_is_not_disturbed(run, golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    code = (
        "import sys; from pathlib import Path; from rocketlens.store.lock import StoreLock;"
        "lock = StoreLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout.readline() == b"held\n"
        for _ in range(2):
            done = run("doctor", "--store", store)
            assert "a broker or job is running" in line_of(done, "owner")
    assert "no broker runs" in line_of(run("doctor", "--store", store), "owner")


def test_a_damaged_index_file_is_named(run, golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    path = sorted((store / "index").iterdir())[2]
    path.write_bytes(path.read_bytes()[:100])
    done = run("doctor", "--store", store)
    assert done.code == 0
    assert f"{path.name} is damaged" in done.out


def test_a_store_without_index_is_a_warning(run, golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    shutil.rmtree(store / "index")
    assert "no index files" in line_of(run("doctor", "--store", store), "index")


@pytest.mark.parametrize("name", ["", "missing"])
def test_what_is_no_store_fails(run, tmp_path, name):
    done = run("doctor", "--store", tmp_path / name)
    assert done.code == 1
    assert line_of(done, "store").startswith("fail")


def test_damage_in_what_is_not_indexed_is_shown(run, write_store):
    store = write_store({"body": b"first" * 20}, {"body": b"second"})
    segment = store / "commitlog" / "00000000000000000000"
    content = bytearray(segment.read_bytes())
    content[0:4] = b"\x7f\xff\xff\xff"
    segment.write_bytes(content)
    done = run("doctor", "--store", store)
    assert done.code == 0
    assert "commit log" in done.out


def test_missing_consume_queues_are_a_warning_that_says_how_to_make_them(run, golden, tmp_path):
    store = shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    assert "ok    consume queues" in run("doctor", "--store", store).out
    shutil.rmtree(store / "consumequeue")
    done = run("doctor", "--store", store)
    assert "warn  consume queues" in done.out
    assert "rocketlens index build --queues" in done.out


def test_every_missing_stretch_of_the_log_is_named(run, golden, tmp_path):
    store = shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    segments = sorted((store / "commitlog").iterdir())
    size = segments[0].stat().st_size
    segments[1].unlink()
    done = run("doctor", "--store", store)
    assert f"no file has physical offsets {size} to {2 * size}" in done.out
    segments[2].unlink()
    assert f"physical offsets {size} to {3 * size}" in run("doctor", "--store", store).out


def test_what_was_not_read_is_said(run, golden):
    assert "note  log content" in run("doctor", "--store", golden("5.5.0").store).out


def test_a_damaged_table_is_a_warning_that_names_it_and_what_is_used_instead(run, golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    topics, groups = store / "config/topics.json", store / "config/subscriptionGroup.json"
    topics.with_name("topics.json.bak").write_bytes(topics.read_bytes())
    topics.write_bytes(topics.read_bytes()[:-5])
    groups.with_name("subscriptionGroup.json.bak").unlink(missing_ok=True)
    groups.write_text("{")
    done = run("doctor", "--store", store)
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line.split()[1] == "config"]
    assert len(lines) == 2
    assert "topics.json: not JSON" in lines[0]
    assert "its .bak is used" in lines[0]
    assert "subscriptionGroup.json: not JSON" in lines[1]
    assert "there is no sound .bak" in lines[1]


def test_who_else_has_the_name_of_the_broker_is_a_warning(run, golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    assert "broker name" not in run("doctor", "--store", str(store)).out
    note = {
        "brokerName": "broker-a",
        "takenBy": {"10.0.0.5:9876": "10.0.0.9:10911"},
        "times": 2,
        "lastBy": "10.0.0.9:10911",
        "lastTimestampMs": 1_700_000_000_000,
    }
    path = store / "rocketlens" / "name_taken.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(note))
    (line,) = [
        each for each in run("doctor", "--store", str(store)).out.splitlines() if NAME in each
    ]
    assert line.startswith("warn")
    assert "10.0.0.5:9876 leads to 10.0.0.9:10911" in line
    for content in ("{", "[]", '{"takenBy":5}', ""):
        path.write_text(content)
        done = run("doctor", "--store", str(store))
        assert done.code == 0
        assert ("cannot be read" in done.out) == bool(content)


def test_a_builder_of_index_files_that_writes_nothing_is_a_warning(run, tmp_path):
    with open_small(tmp_path / "store") as store:
        send_many(store, 20)
        store.flush_log()
        assert "so it may hang" not in run("doctor", "--store", tmp_path / "store").out
        os.utime(store.layout.index_state, (0, time.time() - 90))
        (line,) = [
            line
            for line in run("doctor", "--store", tmp_path / "store").out.splitlines()
            if "index builder" in line
        ]
        assert line.startswith("warn")
        assert "so it may hang" in line
        store.build_index()
        assert "so it may hang" not in run("doctor", "--store", tmp_path / "store").out

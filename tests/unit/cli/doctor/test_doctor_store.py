"""``rocketlens doctor`` over a store."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.conftest import fingerprint
from tests.support.written_stores import open_small, send_many

NAME = "broker name"


def line_of(done, name):
    return next(line for line in done.out.splitlines() if line.split()[1] == name)


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
    assert "fail  commit log" in done.out


def test_a_store_that_lost_messages_is_not_healthy(run, golden, tmp_path):
    store = shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    assert run("doctor", "--store", store).code == 0
    sorted((store / "commitlog").iterdir())[1].unlink()
    assert run("doctor", "--store", store).code == 1


def test_what_a_killed_broker_left_unfinished_is_no_loss(run, golden):
    done = run("doctor", "--store", golden("5.5.0").crashed)
    assert done.code == 0, done.out


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
    assert f"physical offsets {size} to {2 * size}: no segment" in done.out
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


def copied(golden, tmp_path):
    return shutil.copytree(golden("5.5.0").store, tmp_path / "store")


def queue_lines(done):
    return [each for each in done.out.splitlines() if "consume queues" in each]


def test_a_store_whose_consume_queues_are_gone_is_not_ok(run, golden, tmp_path):
    store = copied(golden, tmp_path)
    shutil.rmtree(store / "consumequeue")
    (line,) = queue_lines(run("doctor", "--store", store))
    assert line.startswith("warn")
    assert f"rocketlens index build --queues --store {store}" in line


def test_a_queue_that_ends_before_the_log_is_named_with_what_it_lacks(run, golden, tmp_path):
    store = copied(golden, tmp_path)
    (file,) = (store / "consumequeue" / "PayTopic" / "1").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[: 100 * 20] + bytes(len(content) - 100 * 20))
    (line,) = queue_lines(run("doctor", "--store", store))
    assert line.startswith("warn")
    assert "consumequeue/PayTopic/1 ends at 100, and the log has messages 100 to" in line
    assert "index build --queues" in line


def test_queues_of_a_topic_that_are_gone_are_named_with_what_brings_them_back(
    run, golden, tmp_path
):
    store = copied(golden, tmp_path)
    shutil.rmtree(store / "consumequeue" / "T22")
    lines = queue_lines(run("doctor", "--store", store))
    assert lines
    assert all("consumequeue/T22/" in line and "is missing" in line for line in lines)
    assert all(f"mv {store}/consumequeue" in line for line in lines)


def test_damage_inside_and_a_missing_file_are_both_named(run, golden, tmp_path):
    store = copied(golden, tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    size = segments[0].stat().st_size
    segments[1].unlink()
    content = bytearray(segments[2].read_bytes())
    content[100_000:110_000] = bytes(10_000)
    segments[2].write_bytes(content)
    lines = [
        each for each in run("doctor", "--store", store).out.splitlines() if "commit log" in each
    ]
    lines = [each for each in lines if each.startswith("fail")]
    assert len(lines) == 2
    assert f"physical offsets {size} to {2 * size}: no segment" in lines[0]
    assert all("to mend: restore" in line for line in lines)


@pytest.mark.parametrize("offset", [1_000_000, 5])
def test_an_offset_that_its_queue_does_not_have_is_named_with_its_group(
    run, golden, tmp_path, offset
):
    store = copied(golden, tmp_path)
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"PayTopic@billing": {"1": offset}}}))
    if offset == 5:
        # The first ten messages were deleted.
        (file,) = (store / "consumequeue" / "PayTopic" / "1").iterdir()
        content = file.read_bytes()
        file.unlink()
        file.with_name(f"{200:020}").write_bytes(content[200:])
    done = run("doctor", "--store", store)
    (line,) = [each for each in done.out.splitlines() if "consumer offset" in each]
    assert line.startswith("warn")
    assert f"group billing continues at offset {offset} of PayTopic/1" in line
    assert ("begins at 10" in line) == (offset == 5)
    assert "rocketlens mqadmin resetOffsetByTime -g billing -t PayTopic" in line


def test_an_offset_of_a_topic_that_was_deleted_is_no_fault(run, golden, tmp_path):
    store = copied(golden, tmp_path)
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"Gone@billing": {"1": 7}}}))
    assert "consumer offset" not in run("doctor", "--store", store).out


def test_messages_from_the_future_are_a_warning_about_the_clock(run, golden, monkeypatch):
    store = golden("5.5.0").store
    assert "no message was stored later" in run("doctor", "--store", store).out
    monkeypatch.setattr("rocketlens.cli.doctor.doctor_store.time.time_ns", lambda: 10**18)
    done = run("doctor", "--store", store)
    (line,) = [each for each in done.out.splitlines() if "ahead of this machine's clock" in each]
    assert line.startswith("warn  clock")
    assert "to mend: synchronize" in line


def test_a_full_disk_is_a_warning(run, golden, monkeypatch):
    usage = shutil._ntuple_diskusage(100, 95, 5)
    monkeypatch.setattr("rocketlens.cli.doctor.doctor_store.shutil.disk_usage", lambda _: usage)
    done = run("doctor", "--store", golden("5.5.0").store)
    (line,) = [each for each in done.out.splitlines() if each.split()[1] == "disk"]
    assert line.startswith("warn")
    assert "95% of the disk is used" in line


def test_the_broker_that_wrote_a_store_is_named(run, golden):
    assert "written by RocketMQ 5.5" in run("doctor", "--store", golden("5.5.0").store).out


def test_a_context_names_the_store(run, golden, monkeypatch, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'[contexts.copy]\nstore = "{golden("5.5.0").store}"\n')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(config))
    assert "4 commit log files" in run("doctor", "--context", "copy").out

"""``rocketlens doctor``: what it checks, and its exit codes. The checks have tests of their own.

``rocketlens doctor`` over a cluster.
``rocketlens doctor`` over an archive.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlens
from rocketlens import __version__
from rocketlens.cli.doctor import doctor_machine
from rocketlens.cli.doctor import doctor_sources as doctor_archive
from rocketlens.cli.doctor.doctor_machine import (
    about,
    fail,
    free_space,
    guarded,
    listed,
    ok,
    print_check,
    warn,
)
from rocketlens.cli.doctor.doctor_sources import checks_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupQueue
from rocketlens.model.status import BrokerStatus, ClusterStatus
from rocketlens.model.topic import FoundTopic, TopicQueue, TopicsAnswer
from rocketlens.testing import cluster
from tests.support.archives import archive_of_days, archive_store
from tests.support.synthetic import record, write_log


def test_without_store_and_cluster_only_the_machine_is_checked(run):
    done = run("doctor")
    assert done.code == 0
    assert "store" not in {line.split()[1] for line in done.out.splitlines()}


def test_a_check_that_fails_is_code_1(run, tmp_path):
    assert run("doctor", "--store", tmp_path).code == 1


def test_a_store_and_a_cluster_at_once_are_refused(run, tmp_path):
    done = run("doctor", "--store", tmp_path, "--namesrv", "127.0.0.1:1")
    assert done.code == 2
    assert "give only one" in done.err


def test_what_mends_it_ends_the_line(capsys):
    print_check(warn("disk", "full", "make room"))
    assert capsys.readouterr().out == "warn  disk           full; to mend: make room\n"


def test_a_terminal_gets_lines_that_fit_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_check(warn("consume queues", "word " * 30, "rocketlens index build --queues"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 60
    assert all(line.startswith(" " * 21) for line in lines[1:])
    assert "--queues" in " ".join(lines)


def test_only_the_first_of_many_alike_are_listed():
    found = list(listed(warn("queue", str(number), "mend it") for number in range(13)))
    assert [each.detail for each in found[:10]] == [str(number) for number in range(10)]
    assert found[10:] == [warn("queue", "3 more like these", "mend it")]
    assert list(listed([ok("a", "b")])) == [ok("a", "b")]


def test_what_a_check_raises_is_its_failure():
    def broken():
        yield about("before", "it")
        raise ImportError("numpy says no")

    before, failed = guarded(broken, "kernels")
    assert before.name == "before"
    assert (failed.state, failed.detail) == ("fail", "ImportError: numpy says no")
    assert failed.mend


def test_a_disk_without_room_for_a_rebuild_is_a_warning(tmp_path):
    assert free_space("disk", tmp_path, 1).state == "ok"
    check = free_space("disk", tmp_path, 1 << 60)
    assert check.state == "warn"
    assert "--out DIR" in check.mend


def test_terminals_do_not_obey_what_is_printed(capsys):
    print_check(fail("store", "\x1b[2J", "x"))
    assert "\x1b" not in capsys.readouterr().out


def line_of(done, name):
    return next(line for line in done.out.splitlines() if line.split()[1] == name)


def test_doctor_gives_a_line_for_each_thing_and_code_0_when_nothing_failed(run):
    done = run("doctor")
    assert done.code == 0
    for name in (
        "RocketLens",
        "Python",
        "kernels",
        "Java",
        "PySpark",
        "PYSPARK_PYTHON",
        "temp",
        "file",
        "clock",
    ):
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


def test_the_python_of_path_is_compared_with_the_one_that_runs_this(run, monkeypatch, tmp_path):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert line_of(run("doctor"), "PYSPARK_PYTHON").startswith("ok")
    # That of another virtual environment: a link to the same file.
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PATH", str(tmp_path))
    line = line_of(run("doctor"), "PYSPARK_PYTHON")
    assert line.startswith("warn")
    assert f"python3 of PATH is {tmp_path}/python3, not {sys.executable}" in line
    assert f"export PYSPARK_PYTHON={sys.executable}" in line
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert "PATH has no python3" in line_of(run("doctor"), "PYSPARK_PYTHON")


def test_a_broken_installation_is_a_failed_check_and_no_traceback(run, monkeypatch):
    def broken():
        raise ImportError("numpy says no")
        yield

    monkeypatch.setattr(doctor_machine, "_kernels", broken)
    done = run("doctor")
    assert done.code == 1
    assert "ImportError: numpy says no" in done.out


def test_few_open_files_are_a_warning_that_says_how_to_have_more(run, monkeypatch):
    for hard, mend in ((65_536, "ulimit -n 65536"), (2048, "LimitNOFILE=65536")):
        limits = (1024, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        line = line_of(run("doctor"), "file")
        assert line.startswith("warn")
        assert mend in line


def test_every_warning_and_failure_says_what_mends_it(run, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-program")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 10))
    bad = [each for each in run("doctor").out.splitlines() if each.startswith(("warn", "fail"))]
    assert len(bad) >= 3
    assert all("; to mend: " in line for line in bad)


def compiled_line(*options, **environment):
    """What doctor says of compiled kernels, in a process of its own, and nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "rocketlens", "doctor", *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    (line,) = [each for each in done.stdout.splitlines() if each.split()[1] == "compiled"]
    return line


def test_python_for_spark_is_no_matter_without_pyspark(run, monkeypatch):
    monkeypatch.setattr(doctor_machine, "find_spec", lambda _: None)
    assert "PYSPARK_PYTHON" not in run("doctor").out


def test_one_run_as_json_is_an_object_with_all_checks(run, tmp_path):
    done = run("doctor", "--store", tmp_path, "-o", "json")
    (line,) = done.out.splitlines()
    said = json.loads(line)
    assert (done.code, said["healthy"]) == (1, False)
    of_version = {"state": "ok", "name": "RocketLens", "detail": __version__, "mend": ""}
    assert said["checks"][0] == of_version
    assert {each["state"] for each in said["checks"] if each["name"] == "store"} == {"fail"}


@pytest.mark.parametrize("output", ["text", "json"])
def test_watching_prints_what_changed_and_no_numbers_that_did(run, monkeypatch, output):
    rounds = [
        [ok("disk", "9 free"), warn("disk", "b-1: 76% is used", "x")],
        [ok("disk", "8 free"), warn("disk", "b-1: 77% is used", "x")],
        [ok("disk", "8 free"), fail("broker", "b-2: no answer", "x")],
        [ok("disk", "8 free")],
    ]
    waited = []

    def wait(seconds):
        waited.append(seconds)
        if not rounds:
            raise KeyboardInterrupt

    monkeypatch.setattr("rocketlens.cli.doctor.doctor.time.sleep", wait)
    monkeypatch.setattr("rocketlens.cli.doctor.doctor._checks", lambda _: rounds.pop(0))
    done = run("doctor", "--watch", "7", "-o", output)
    assert (done.code, waited) == (130, [7, 7, 7, 7])
    expected = [
        [("ok", "9 free"), ("warn", "b-1: 76% is used")],
        [("fail", "b-2: no answer"), ("ok", "no longer: b-1: 77% is used")],
        [("ok", "no longer: b-2: no answer")],
    ]
    if output == "json":
        said = [json.loads(line) for line in done.out.splitlines()]
        assert [each["healthy"] for each in said] == [True, False, True]
        assert [
            [(check["state"], check["detail"]) for check in each["checks"]] for each in said
        ] == expected
    else:
        printed = (line for line in done.out.splitlines() if line and not line[0].isdigit())
        lines = [line.split(maxsplit=2) for line in printed]
        assert [(state, text.removesuffix("; to mend: x")) for state, _, text in lines] == [
            check for each in expected for check in each
        ]


NOW_MS = 1_700_000_000_000
SOUND = BrokerStatus("c", "a", 0, "10.0.0.1:10911", version="V5_5_0", disk_ratio=0.2)


def checks(*brokers, groups=(), coverage=(), newest_ms=NOW_MS):
    status = ClusterStatus(("10.0.0.9:9876",), brokers, 3, 0, groups, coverage)
    queue = TopicQueue("a", 0, 0, 5, newest_ms=newest_ms)
    topics = TopicsAnswer((FoundTopic("T", (queue,)),), ())
    return list(checks_of(status, topics, NOW_MS))


def bad(*brokers, **others):
    """Return the only check that is not ok."""
    (check,) = [each for each in checks(*brokers, **others) if each.state != "ok"]
    assert check.mend or check.state == "note"
    return check


def test_a_sound_cluster_is_ok_line_by_line():
    found = checks(SOUND)
    assert {each.state for each in found} == {"ok"}
    assert [each.name for each in found] == ["name servers", "broker", "clock"]
    assert "a (10.0.0.1:10911), master, 5.5.0" in found[1].detail


def test_a_broker_that_does_not_answer_is_a_failure():
    check = bad(SOUND, BrokerStatus("c", "b", 0, "10.0.0.2:10911", error="refused"))
    assert (check.state, check.name) == ("fail", "broker")
    assert "b (10.0.0.2:10911): refused" in check.detail
    assert "rocketlens find --forget-broker b" in check.mend


@pytest.mark.parametrize(("ratio", "what"), [(0.8, "deleted early"), (0.93, "refused")])
def test_a_disk_that_is_nearly_full_is_a_warning(ratio, what):
    check = bad(with_ratio(ratio))
    assert (check.state, check.name) == ("warn", "disk")
    assert what in check.detail


def with_ratio(ratio):
    return BrokerStatus("c", "a", 0, "10.0.0.1:10911", version="V5_5_0", disk_ratio=ratio)


def test_a_slave_without_a_master_is_a_warning():
    check = bad(SOUND, BrokerStatus("c", "b", 1, "10.0.0.2:10911", version="V5_5_0"))
    assert "b has no registered master" in check.detail


def test_brokers_of_different_versions_are_a_warning():
    check = bad(SOUND, BrokerStatus("c", "b", 0, "10.0.0.2:10911", version="V4_9_7"))
    assert (check.name, check.detail) == ("versions", "brokers of different versions: 4.9.7, 5.5.0")


def test_a_message_that_is_stored_in_the_future_is_a_warning_about_the_clock():
    assert bad(SOUND, newest_ms=NOW_MS + 60_000).name == "clock"
    assert "60 s ahead of" in bad(SOUND, newest_ms=NOW_MS + 60_000).detail


def test_an_offset_beyond_its_queue_names_group_and_queue():
    queues = (GroupQueue("T", "a", 2, 10, 11, None),)
    group = FoundGroup("g", None, None, None, queues, 0)
    check = bad(SOUND, groups=(group,))
    assert (check.state, check.name) == ("warn", "consumer offset")
    assert "group g continues at offset 11 of T/a/2, which ends at 10" in check.detail
    assert check.mend.startswith("rocketlens mqadmin resetOffsetByTime -g g -t T")


def test_dead_letters_are_told_with_the_command_that_has_them_again():
    group = FoundGroup("g", None, None, None, (), 4)
    check = bad(SOUND, groups=(group,))
    assert check.state == "note"
    assert "rocketlens dlq redrive g" in check.detail


def test_a_name_server_that_does_not_answer_fails():
    failed = Coverage("10.0.0.8:9876", SourceKind.BROKER, SourceState.FAILED, None, "refused")
    check = bad(SOUND, coverage=(failed,))
    assert (check.state, check.detail) == ("fail", "10.0.0.8:9876: refused")


def test_a_cluster_without_brokers_fails_with_what_starts_one():
    none = Coverage("name servers", SourceKind.BROKER, SourceState.FAILED, None, "no broker")
    check = bad(SOUND, coverage=(none,))
    assert (check.state, check.mend) == (
        "fail",
        "start a broker, with these name servers in its namesrvAddr",
    )


def test_a_broker_that_is_not_registered_any_more_fails():
    error = "it was last seen 2026-11-20T10:00:00Z at 10.0.0.2:10911 and is not registered now"
    gone = Coverage("broker-b", SourceKind.BROKER, SourceState.FAILED, None, error)
    check = bad(SOUND, coverage=(gone,))
    assert (check.state, check.detail) == ("fail", f"broker-b: {error}")


def test_a_running_cluster_is_checked_and_one_that_is_not_there_fails(run, tmp_path):
    with cluster(tmp_path) as running:
        done = run("doctor", "--namesrv", running.name_server)
        assert done.code == 0
        assert f"({running.broker}), master, 5.5.0" in done.out
        gone = running.name_server
    done = run("doctor", "--namesrv", gone)
    assert done.code == 1
    (line,) = [each for each in done.out.splitlines() if each.startswith("fail")]
    assert "name servers" in line
    assert "; to mend: " in line


pytest.importorskip("deltalake")


@pytest.fixture
def lake(tmp_path):
    return archive_of_days(tmp_path)


def test_a_whole_archive_is_ok_with_what_it_has_of_each_source(run, lake):
    done = run("doctor", "--archive", lake)
    assert done.code == 0
    assert line_of(done, "archive").startswith("ok")
    assert "DefaultCluster/broker-a: 120 messages archived" in line_of(done, "source")
    assert line_of(done, "gaps").startswith("ok")
    assert line_of(done, "files").split(maxsplit=2)[2] == "24 files can be opened"


def test_the_archive_of_a_context_is_checked(run, lake, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text(f'[contexts.old]\narchive = "{lake}"\n')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(tmp_path / "config.toml"))
    done = run("doctor", "--context", "old")
    assert (done.code, line_of(done, "archive").split()[0]) == (0, "ok")


def test_a_file_that_is_gone_or_damaged_is_a_failure(run, lake):
    gone, damaged = sorted(lake.glob("messages/*/*.parquet"))[:2]
    gone.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-100])
    done = run("doctor", "--archive", lake)
    assert done.code == 1
    failed = [line for line in done.out.splitlines() if line.startswith("fail")]
    assert {path for path in (gone, damaged) if any(str(path) in each for each in failed)} == {
        gone,
        damaged,
    }
    assert "restore it from a backup" in done.out


def test_a_file_that_was_replaced_meanwhile_is_no_failure(lake, monkeypatch):
    with rocketlens.open_archive(lake) as archive:
        lost = archive.source.reader.listing.keys[0]
        monkeypatch.setattr(
            doctor_archive, "_problem", lambda _, file: "it is gone" if file is lost else None
        )
        monkeypatch.setattr(
            archive.source, "refresh", lambda: archive.source.reader.listing.keys.remove(lost)
        )
        assert [each.state for each in doctor_archive._files(archive.source)] == ["ok"]


def test_a_gap_is_a_warning(run, tmp_path):
    store = tmp_path / "store"
    write_log(store, map(record, range(30)), 1 << 14)
    (segment,) = (store / "commitlog").iterdir()
    content = segment.read_bytes()
    at = content.index(b"body", 1000)
    segment.write_bytes(content[:at] + b"BODY" + content[at + 4 :])
    archive_store(tmp_path / "lake", store)
    done = run("doctor", "--archive", tmp_path / "lake")
    assert done.code == 0
    assert line_of(done, "gap").startswith("warn")
    assert "checksum" in line_of(done, "gap")


def test_what_is_no_archive_is_a_failure(run, tmp_path):
    done = run("doctor", "--archive", tmp_path)
    assert done.code == 1
    assert "is not an archive" in line_of(done, "archive")


def test_an_archive_beside_another_source_is_refused(run, lake):
    done = run("doctor", "--archive", lake, "--store", lake)
    assert (done.code, "stands alone" in done.err) == (2, True)

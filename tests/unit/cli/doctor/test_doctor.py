"""``rocketlens doctor``: what it checks, and its exit codes. The checks have tests of their own."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens import __version__
from rocketlens.cli.doctor import doctor_machine
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
        lines = [line.split(maxsplit=2) for line in done.out.splitlines() if " " in line]
        assert [(state, text.removesuffix("; to mend: x")) for state, _, text in lines] == [
            check for each in expected for check in each
        ]

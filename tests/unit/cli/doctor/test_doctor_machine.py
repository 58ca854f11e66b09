"""``rocketlens doctor``: the machine."""

import os
import resource
import subprocess
import sys
from pathlib import Path

from rocketlens.cli.doctor import doctor


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

    monkeypatch.setattr(doctor, "_kernels", broken)
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

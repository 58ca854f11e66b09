"""The archive of Spark's classes, which its JVM writes once and maps afterwards."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketlens.pipeline.jvm import ClassArchive
from tests.support.patience import PATIENCE_S

STARTS = """
import sys
from rocketlens.pipeline import session
spark = session.start("local[1]", warm=False)
assert spark.sparkContext.parallelize([20, 22], 1).sum() == 42
with open(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps") as maps:
    print(any(sys.argv[1] in line for line in maps))
"""


@pytest.fixture
def installed(tmp_path):
    """A JDK and a Spark as far as an archive looks at them, and a cache for it."""
    java, spark = tmp_path / "jdk/bin/java", tmp_path / "pyspark"
    (spark / "jars").mkdir(parents=True)
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "jdk/release").write_text('JAVA_VERSION="17"')
    return SimpleNamespace(java=java, spark=spark, cache=tmp_path / "cache")


def archive_of(installed):
    return ClassArchive(installed.java, installed.spark, with_sql=True, cache=installed.cache)


def ended_with(code):
    """Return a JVM that has ended, with the files that it was told to write."""
    return SimpleNamespace(stdin=None, wait=lambda _: code)


def written(archive):
    _, _, path = archive.options.split()[0].partition("=")
    Path(path).write_bytes(b"classes")
    return Path(path)


def end(archive, jvm, monkeypatch):
    registered = []
    monkeypatch.setattr(
        "rocketlens.pipeline.jvm.atexit.register", lambda *call: registered.append(call)
    )
    # Not that of other tests in this process.
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    archive.keep(jvm)
    for function, *arguments in registered:
        function(*arguments)


@pytest.mark.slow
def test_a_jvm_maps_the_archive_that_an_earlier_one_wrote(tmp_path, jdk):
    del jdk
    if not sys.platform.startswith("linux"):
        pytest.skip("what a process has mapped is read from /proc")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", STARTS, str(tmp_path)]
    uses = []
    # A JVM that needs very long to write the archive, on a busy machine, leaves that to the next.
    while "True\n" not in uses and len(uses) < 4:
        said = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert said.stderr == ""
        uses.append(said.stdout)
    assert uses[0] == "False\n"
    assert uses[-1] == "True\n"
    assert [path.suffix for path in (tmp_path / "rocketlens").iterdir()] == [".jsa"]


def test_an_archive_is_used_once_its_jvm_has_ended_well(installed, monkeypatch):
    first = archive_of(installed)
    assert first.options.startswith("-XX:ArchiveClassesAtExit=")
    path = written(first)
    end(first, ended_with(0), monkeypatch)
    assert not path.exists()
    assert first.path.read_bytes() == b"classes"
    assert archive_of(installed).options.startswith(f"-XX:SharedArchiveFile={first.path} ")


def test_what_a_killed_jvm_wrote_is_no_archive(installed, monkeypatch):
    first = archive_of(installed)
    path = written(first)
    end(first, ended_with(-9), monkeypatch)
    assert not path.exists()
    assert not first.path.exists()


def test_what_a_killed_process_left_is_removed_at_the_next_start(installed):
    first = archive_of(installed)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    unfinished = first.path.with_suffix(f".{gone.pid}.new")
    unfinished.write_bytes(b"part")
    running = first.path.with_suffix(f".{os.getppid()}.new")
    running.write_bytes(b"part")
    archive_of(installed)
    assert not unfinished.exists()
    assert running.exists()


def test_archives_that_nobody_used_for_a_month_are_removed_when_another_is_written(installed):
    first = archive_of(installed)
    old, new, used = (first.path.with_name(f"spark-{name}.jsa") for name in ("a", "b", "c"))
    month_ago = time.time() - 31 * 86_400
    for path in (old, new, used, first.path):
        path.write_bytes(b"classes")
        if path is not new:
            os.utime(path, (month_ago, month_ago))
    assert archive_of(installed).options.startswith("-XX:SharedArchiveFile=")
    assert first.path.stat().st_mtime > month_ago + 86_400, "it was used"
    assert old.exists()
    os.utime(used)
    first.path.unlink()
    assert archive_of(installed).options.startswith("-XX:ArchiveClassesAtExit=")
    assert [path.exists() for path in (old, new, used)] == [False, True, True]


@pytest.mark.parametrize("replaced", ["jdk/release", "pyspark/jars"])
def test_another_jdk_or_spark_has_an_archive_of_its_own(installed, tmp_path, replaced):
    before = archive_of(installed).path
    os.utime(tmp_path / replaced, ns=(1, 1))
    assert archive_of(installed).path != before


def test_without_a_cache_spark_starts_as_before(installed):
    installed.cache.write_text("a file where a directory would have to be")
    assert archive_of(installed).options == ""


def test_a_path_that_options_of_a_jvm_cannot_have_means_no_archive(installed):
    installed.cache = installed.cache / "my documents"
    assert archive_of(installed).options == ""
    assert not installed.cache.exists()

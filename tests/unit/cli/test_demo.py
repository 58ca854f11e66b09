"""``rocketlens demo``, and the store that it ships."""

import os
import tempfile
from pathlib import Path

import pytest

from rocketlens.cli import demo
from tests.conftest import fingerprint

MOST_BYTES = 400 * 1024


@pytest.fixture
def own_temporary(tmp_path, monkeypatch):
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def test_the_demo_store_is_small_and_the_golden_one(golden, tmp_path):
    assert demo.ARCHIVE.stat().st_size <= MOST_BYTES
    demo.unpack(tmp_path)
    for path in sorted((tmp_path / "store").rglob("*")):
        if path.is_file():
            name = path.relative_to(tmp_path / "store")
            assert path.read_bytes() == (golden("5.5.0").store / name).read_bytes()
    for name in ("commitlog", "consumequeue", "index"):
        directory = tmp_path / "store" / name
        real = fingerprint(golden("5.5.0").store / name)
        assert [str(path) for path in fingerprint(directory)] == list(real)


def test_the_demo_finds_by_everything_and_rebuilds_the_index(
    run, own_temporary, spark, monkeypatch
):
    monkeypatch.setattr("rocketlens.cli.jobs.spark._running", [spark.sparkContext])
    done = run("demo")
    assert done.code == 0, done.err
    for shown in (
        *("rocketlens find order-42 --topic PayTopic", "rocketlens index build --slots 500"),
        *(
            "rocketlens find PayTopic/1/0",
            "rocketlens show PayTopic/1/0",
            "rocketlens find '订单1'",
        ),
        *("--since 1795228834795", "rocketlens find no-such-order", "rocketlens index verify"),
        "All 7 index files are byte for byte what the broker had written.",
        "log, consume queues and index agree",
    ):
        assert shown in done.out
    assert "this failed" not in done.err


def test_the_demo_leaves_nothing_behind(run, own_temporary, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("ROCKETLENS_STORE", "/mine")
    run("demo")
    assert list(own_temporary.iterdir()) == []
    assert list(own_temporary.parent.iterdir()) == [own_temporary]
    assert os.environ["ROCKETLENS_STORE"] == "/mine"


def test_without_a_jdk_the_demo_says_what_to_install_and_shows_the_rest(
    run, own_temporary, monkeypatch
):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("demo")
    assert done.code == 3
    (line,) = [line for line in done.err.splitlines() if "JDK" in line]
    assert "install a JDK >= 17" in line
    assert "rocketlens find PayTopic/1/0" in done.out
    assert "exit code" not in done.err.replace("(exit code 3)", "")


def test_a_step_that_fails_makes_the_demo_fail(run, own_temporary, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(demo, "_TOPIC", "PayTopic")
    monkeypatch.setattr("rocketlens.cli.show.run", lambda _arguments: 2)
    done = run("demo")
    assert done.code == 2
    assert "this failed: exit code 2 of rocketlens show" in done.err


def test_the_archive_holds_nothing_outside_its_directory(tmp_path):
    demo.unpack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not any(path.is_symlink() for path in Path(tmp_path).rglob("*"))

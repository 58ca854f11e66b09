import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.synthetic import files_below

KILLED_JOB = Path(__file__).with_name("killed_job.py")
PARTS = ("commitlog", "consumequeue", "index", "config", "checkpoint")


@pytest.fixture
def store(golden, tmp_path):
    import shutil

    return Path(shutil.copytree(golden("5.5.0").store, tmp_path / "store"))


def content_of(store: Path) -> dict[str, dict[str, bytes]]:
    return {name: files_below(store / name) for name in PARTS[:-1]} | {
        PARTS[-1]: {"": (store / PARTS[-1]).read_bytes()}
    }


POINTS = ["read 0", "build 0", "sync 0", "swap 0", "swap 1", "swap 2"]


def assert_nothing_is_half_done(before, store, point: str) -> None:
    """Each directory is the old one or the new one. The new queues are the same bytes as the
    old; the new index has other counts, so other bytes."""
    after = content_of(store)
    changed = {name for name in PARTS if after[name] != before[name]}
    assert changed == ({"index"} if point == "swap 2" else set())


@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_fails_at_any_point_leaves_each_directory_whole(spark, store, point):
    from rocketlens.pipeline.dispatch import dispatch

    class Failure(Exception):
        pass

    def fail(phase, done, total):
        if f"{phase} {done}" == point:
            raise Failure

    before = content_of(store)
    with pytest.raises(Failure):
        dispatch(
            spark.sparkContext, store, queues=True, slot_count=7, entry_count=500, progress=fail
        )
    assert_nothing_is_half_done(before, store, point)
    assert not list(store.glob(".rocketlens-work-*"))


@pytest.mark.parametrize("point", [pytest.param("build 0", marks=pytest.mark.slow), "swap 1"])
def test_a_killed_job_leaves_each_directory_whole_and_the_next_run_cleans_up(spark, store, point):
    from rocketlens.pipeline.dispatch import dispatch

    before = content_of(store)
    command = [sys.executable, KILLED_JOB, store, *point.split()]
    died = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert died.returncode == -9, died.stderr.decode()
    assert_nothing_is_half_done(before, store, point)
    assert list(store.glob(".rocketlens-work-*"))

    dispatch(spark.sparkContext, store, queues=True, slot_count=500, entry_count=1000)
    assert list(content_of(store)["index"].values()) == list(before["index"].values())
    assert content_of(store)["consumequeue"] == before["consumequeue"]
    assert not list(store.glob(".rocketlens-work-*"))

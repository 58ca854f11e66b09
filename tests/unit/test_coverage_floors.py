"""A room whose tests reach less than its floor is named, and nothing is rounded up.

How processes share the tests; see tests/support/sharing.py.
What ``make bench`` keeps of a run, and which rows it calls worse.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from coverage import CoverageData

from bench import history
from bench.history import Row
from tests.peer import conftest as peer_conftest
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.coverage_floors import FLOORS, PACKAGE, measured_files, rooms_of
from tests.support.patience import PATIENCE_S
from tests.support.sharing import (
    SHARED_BROKERS,
    STARTS_SPARK,
    USES_SPARK,
    scope_of,
    scopes_in,
    spark_tests,
    start_order,
)


def measured(ran, total, branches_ran=0, branches=0, *, lines=(), missing_branches=()):
    summary = {"covered_lines": ran, "num_statements": total}
    summary |= {"covered_branches": branches_ran, "num_branches": branches}
    return {
        "summary": summary,
        "missing_lines": list(lines),
        "missing_branches": list(missing_branches),
    }


def test_every_floor_is_of_a_room_that_exists():
    assert [room for room in FLOORS if not (PACKAGE / room).is_dir()] == []


@pytest.mark.parametrize(
    ("room", "ran", "is_low"),
    [
        *[("wire", 10_000, False), ("wire", 9_999, True)],
        *[("query", 9_500, False), ("query", 9_499, True)],
        *[("broker", 8_500, False), ("broker", 8_499, True)],
    ],
)
def test_a_room_is_low_from_one_line_below_its_floor_on(room, ran, is_low):
    [found] = rooms_of([(f"{room}/one.py", measured(ran, 10_000))])
    assert (found.name, found.is_low) == (room, is_low)
    assert ("below its floor" in str(found)) == is_low


def test_lines_and_branches_of_all_files_of_a_room_count_and_what_is_left_is_listed():
    rooms = rooms_of(
        [
            ("limits.py", measured(7, 7)),
            (
                "store/read/log.py",
                measured(8, 10, 3, 4, lines=(5, 6), missing_branches=[(5, 6), (8, 9)]),
            ),
            ("store/lock.py", measured(10, 10, 6, 6)),
        ]
    )
    assert [(room.name, room.ran, room.total) for room in rooms] == [(".", 7, 7), ("store", 27, 30)]
    assert rooms[1].left == {"store/read/log.py": "5, 6, 8->9"}
    assert not rooms[0].is_low
    assert rooms[1].is_low


def test_a_copy_of_the_package_that_a_test_ran_is_left_out_though_it_is_gone(tmp_path):
    configuration = tmp_path / "pyproject.toml"
    run = f'branch = true\nparallel = true\ndata_file = "{tmp_path}/data"\n'
    configuration.write_text(f"[tool.coverage.run]\n{run}")
    ran = CoverageData(str(tmp_path / "data.one"))
    copy = tmp_path / "copy" / "rocketlens" / "limits.py"
    ran.add_arcs({str(copy): [(-1, 1)], str(PACKAGE / "limits.py"): [(-1, 1)]})
    ran.write()
    [(path, _)] = measured_files(configuration)
    assert path == "limits.py"


REPOSITORY = Path(__file__).parents[2]
USES_A_SHARED_BROKER = re.compile(r"def \w+\([^)]*\breal_broker\b[^)]*\):\n(?!    \"\"\")")


def test_every_file_that_uses_the_shared_brokers_is_known():
    using = [
        str(file.relative_to(REPOSITORY))
        for file in sorted((REPOSITORY / "tests/peer").glob("test_*.py"))
        if USES_A_SHARED_BROKER.search(file.read_text(encoding="utf-8"))
    ]
    assert using == list(SHARED_BROKERS)


def test_files_that_start_spark_exist():
    assert [file for file in STARTS_SPARK if not (REPOSITORY / file).is_file()] == []


def test_a_test_uses_spark_if_a_fixture_of_its_file_does():
    assert {
        "registered",
        "spark_stream_of",
        "stream_of",
        "test_a_stream_gives_each_message_once_as_the_log_grows",
    } <= spark_tests("tests/pipeline/test_stream.py")
    assert spark_tests("tests/pipeline/test_archive_truth.py") == USES_SPARK


def test_tests_of_one_broker_and_of_spark_stay_together_others_by_file():
    scopes = {
        "tests/peer/test_client.py::test_a[5.5.0]": "broker 5.5.0",
        "tests/peer/test_python_consumers.py::test_b[4.9.7-x]": "broker 4.9.7",
        "tests/peer/test_rocketmq_peer.py::test_c": "tests/peer/test_rocketmq_peer.py",
        "tests/pipeline/test_stream.py::test_d": "tests/pipeline/test_stream.py",
        "tests/unit/cli/test_demo.py::test_e": "Spark",
        "tests/unit/test_docs.py::test_the_python_for_spark_runs[a]": "Spark",
        "tests/unit/test_docs.py::test_f[a::b]": "tests/unit/test_docs.py",
    }
    assert {test: scope_of(test) for test in scopes} == scopes
    assert [test for test in scopes if scope_of(test) not in scopes_in(test.split("::")[0])] == []


def test_spark_starts_first_and_unit_tests_last():
    scopes = ["tests/unit/test_docs.py", "tests/peer/test_acl.py", "broker 4.9.7", "Spark"]
    assert sorted(scopes, key=start_order) == [
        "Spark",
        "tests/peer/test_acl.py",
        "broker 4.9.7",
        "tests/unit/test_docs.py",
    ]


PROCESSES = ("-n", "1", "--dist", "load", "--maxschedchunk", "1")
FILES = {
    "conftest.py": """
        from tests.support.sharing import CollectingLate
        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                config.pluginmanager.register(CollectingLate())
    """,
    "a/test_1.py": "def test_first(): pass",
    "a/test_2.py": "def test_left_out(): assert False",
    "b/test_3.py": "def test_after_a_file_without_tests(): pass",
    "test_cannot_be_imported.py": "import nothing_of_this_name",
    "test_ends.py": """
        import os
        def test_a(): pass
        def test_b(): os._exit(1)
        def test_c(): pass
    """,
    "test_fails.py": """
        def test_d(tmp_path): assert not tmp_path
        def test_left_out(): assert False
    """,
    "test_passes.py": """
        import pytest
        @pytest.mark.parametrize("n", range(5))
        def test_f(n): pass
    """,
}


def test_each_test_is_reported_and_one_that_ends_its_process_ends_no_other_file(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(content))
    run = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-p", "no:asyncio", "-k", "not left_out"), *PROCESSES],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 1
    assert set(re.findall(r"^(?:FAILED|ERROR) \S+", run.stdout, re.MULTILINE)) == {
        "ERROR test_cannot_be_imported.py",
        "FAILED test_ends.py",
        "FAILED test_fails.py::test_d",
    }
    assert "2 failed, 8 passed, 1 error" in run.stdout


CPU, RATIO = "sends, cpu us", "broker sync /s, x"


def recorded(*rows: Row, is_quick: bool = False) -> dict[str, object]:
    """Return the record of a run of this machine."""
    return history.record(rows, is_quick=is_quick, load=0.0)


def test_a_row_that_became_worse_by_more_than_its_noise_is_named() -> None:
    past = [recorded(Row(CPU, [3.0, 3.1, 3.2]), Row(RATIO, [2.0, 2.1, 2.2]))]

    def worse(*rows: Row) -> list[str]:
        return [line.partition(":")[0] for line in history.worse(recorded(*rows), past)]

    assert worse(Row(CPU, [4.0, 4.1, 4.2]), Row(RATIO, [1.4, 1.5, 1.6])) == [CPU, RATIO]
    assert worse(Row(CPU, [2.0, 2.1, 2.2]), Row(RATIO, [3.4, 3.5, 3.6])) == []
    assert worse(Row(CPU, [2.0, 4.1, 9.0]), Row(RATIO, [1.0, 1.5, 9.0])) == []
    assert worse(Row(CPU, [3.1, 3.15, 3.2])) == []


def test_a_row_is_compared_with_the_last_record_that_has_it_of_such_a_machine() -> None:
    others = recorded(Row(CPU, [1.0, 1.0, 1.0])) | {"machine": {"processor": "another"}}
    quick = recorded(Row(CPU, [1.0, 1.0, 1.0]), is_quick=True)
    past = [
        recorded(Row(CPU, [1.0, 1.0, 1.0])),
        recorded(Row(CPU, [2.0, 2.0, 2.0])),
        recorded(Row(RATIO, [1.0, 1.0, 1.0])),
        others,
        quick,
    ]
    (line,) = history.worse(recorded(Row(CPU, [3.0, 3.0, 3.0])), past)
    assert line.startswith(f"{CPU}: 2 -> 3,")
    assert list(history.worse(recorded(Row(CPU, [2.0, 2.0, 2.0])), past)) == []


def test_a_record_names_no_host_and_no_path(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(recorded(Row(CPU, [1.0, 2.0, 9.0]), Row("a single round", [1.0])), path)
    (one,) = history.read(path)
    assert one["rows"] == {CPU: {"median": 2.0, "spread": 4.0}}
    assert set(one["machine"]) == {"processor", "cores", "memory GiB"}
    assert set(one) == {"commit", "machine", "quick", "load", "rows"}


def test_every_record_that_is_kept_can_be_read() -> None:
    for one in history.read():
        assert set(one) == {"commit", "machine", "quick", "load", "rows"}


class PeerTest:
    """A test of tests/peer with one release, as pytest collects it."""

    def __init__(self, file, version):
        self.path = REPOSITORY / "tests" / "peer" / file
        self.nodeid = f"tests/peer/{file}::test[{version}]"
        self.callspec = SimpleNamespace(params={"version": version})
        self.markers = []

    def add_marker(self, name):
        self.markers.append(name)

    def get_closest_marker(self, name):
        return name if name in self.markers else None


@pytest.mark.parametrize("file", ["test_broker.py", "test_story.py", "test_client.py"])
def test_what_runs_with_both_releases_of_rocketmq_is_slow_with_the_older_one_alone(file):
    older, newer = (PeerTest(file, version) for version in VERSIONS)
    peer_conftest.pytest_collection_modifyitems([older, newer])
    assert (older.markers, newer.markers) == (["slow"], [])


@pytest.mark.parametrize(("file", "is_slow"), [("test_acl.py", False), ("test_broker.py", True)])
def test_what_runs_with_the_older_release_alone_is_slow_unless_releases_differ(file, is_slow):
    older = PeerTest(file, VERSIONS[0])
    peer_conftest.pytest_collection_modifyitems([older])
    assert older.markers == ["slow"] * is_slow

"""How processes share the tests; see tests/support/sharing.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.sharing import (
    SHARED_BROKERS,
    STARTS_SPARK,
    scope_of,
    spark_tests,
    start_order,
)

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
    assert spark_tests("tests/pipeline/test_archive_truth.py") == {"spark"}


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


def test_spark_starts_first_and_unit_tests_last():
    scopes = ["tests/unit/test_docs.py", "tests/peer/test_acl.py", "broker 4.9.7", "Spark"]
    assert sorted(scopes, key=start_order) == [
        "Spark",
        "tests/peer/test_acl.py",
        "broker 4.9.7",
        "tests/unit/test_docs.py",
    ]


@pytest.mark.parametrize(
    "last", ["", "def test_d(): pass", "def test_d(): pass\ndef test_e(): pass"]
)
def test_one_that_ends_its_process_fails_and_the_others_are_run(tmp_path, last):
    (tmp_path / "conftest.py").write_text(
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    from tests.support.scheduler import SharingByCost\n"
        "    return SharingByCost(config, log)\n"
    )
    (tmp_path / "test_ends.py").write_text(
        "import os, pathlib\n"
        "def test_a(): pass\n"
        "def test_b(): pass\n"
        "def test_c():\n"
        f"    with open({str(tmp_path / 'runs')!r}, 'a') as file: file.write('x')\n"
        f"    os._exit(1)\n{last}\n"
    )
    run = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadfile"), "-p", "no:asyncio"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    passed = 2 + last.count("def")
    assert f"1 failed, {passed} passed" in run.stdout
    assert (tmp_path / "runs").read_text() == "x"

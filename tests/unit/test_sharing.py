"""How processes share the tests; see tests/support/sharing.py."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

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

"""How processes share the tests: whatever is costly to start is started by one of them.

A file's tests stay together, and so do all that use Spark, and all that use one shared broker of
the real RocketMQ. Tests that wait for others, of brokers by time or of JVMs, come first: at the
end all processors have work.
"""

from typing import Final

SPARK: Final = (
    "tests/golden/test_batches.py::test_spark_has_each_message_as_a_row",
    "tests/peer/test_archive.py",
    "tests/peer/test_deleted_topics.py",
    "tests/peer/test_spark_cluster.py",
    "tests/peer/test_spark_sink.py",
    "tests/peer/test_tap.py::test_two_brokers_are_followed_at_once_and_every_command_reads_their_copies",
    "tests/pipeline/",
    "tests/unit/cli/test_demo.py",
    "tests/unit/cli/index/test_index_build.py",
    "tests/unit/cli/index/test_index_verify.py",
    "tests/unit/test_docs.py::test_the_python_for_spark_runs",
)
"""Files, and single tests of others, that use the fixture ``spark``."""
SHARED_BROKERS: Final = (
    "tests/peer/test_client.py",
    "tests/peer/test_console.py",
    "tests/peer/test_console_browser.py",
    "tests/peer/test_foreign_clients.py",
    "tests/peer/test_open_handle.py",
    "tests/peer/test_python_consumers.py",
    "tests/peer/test_request_reply.py",
    "tests/peer/test_rocketmq_peer.py",
)
"""Files whose tests use the fixture ``real_broker``."""
VERSIONS: Final = ("4.9.7", "5.5.0")
LATE: Final = "tests/unit/"


def scope_of(test: str) -> str:
    """Return the name of what one process runs with the test."""
    file, _, name = test.partition("::")
    if test.startswith(SPARK):
        return "Spark"
    if file in SHARED_BROKERS:
        for version in VERSIONS:
            if version in name:
                return f"broker {version}"
    return file


def start_order(scope: str) -> tuple[bool, bool]:
    """Return what scopes are sorted by: Spark has the longest, and starts first."""
    return scope.startswith(LATE), scope != "Spark"

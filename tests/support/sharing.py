"""How processes share the tests: whatever is costly to start is started by one of them.

A file's tests stay together, and so do all that use Spark, and all that use one shared broker of
the real RocketMQ. Tests that wait for others, of brokers by time or of JVMs, come first: at the
end all processors have work.
"""

import ast
import functools
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
STARTS_SPARK: Final = (
    "tests/unit/cli/test_demo.py",
    "tests/unit/cli/index/test_index_build.py",
    "tests/unit/cli/index/test_index_verify.py",
)
"""Files whose tests run commands that use the process's session of Spark."""
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
    if file in STARTS_SPARK or name.partition("[")[0] in spark_tests(file):
        return "Spark"
    if file in SHARED_BROKERS:
        for version in VERSIONS:
            if version in name:
                return f"broker {version}"
    return file


@functools.cache
def spark_tests(file: str) -> frozenset[str]:
    """Return the tests and fixtures of a file that use the fixture ``spark``, directly or not."""
    path = REPOSITORY / file
    content = path.read_bytes() if path.is_file() else b""
    # Few files have the word, and each process would parse them all.
    tree = ast.parse(content if b"spark" in content else b"")
    names = {
        node.name: {argument.arg for argument in node.args.args} | _requested(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    using = {"spark"}
    while more := {name for name, used in names.items() if used & using} - using:
        using |= more
    return frozenset(using)


def _requested(function: ast.FunctionDef) -> set[str]:
    """Return the fixtures that a function asks ``request`` for."""
    return {
        node.args[0].value
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "getfixturevalue"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }


def start_order(scope: str) -> tuple[bool, bool]:
    """Return what scopes are sorted by: Spark has the longest, and starts first."""
    return scope.startswith(LATE), scope != "Spark"

"""How processes share the tests: whatever is costly to start is started by one of them.

A file's tests stay together, and so do all that use Spark, and all that use one shared broker of
the real RocketMQ. Tests that wait for others, of brokers by time or of JVMs, come first: at the
end all processors have work.

pytest-xdist has each process collect all tests, which is a tenth of a run for five of them. Here a
process collects one item for each scope, a `Part`, and imports its files when it runs it.
"""

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

REPOSITORY: Final = Path(__file__).parents[2]
STARTS_SPARK: Final = ("tests/unit/cli/test_demo.py",)
"""Files whose tests run commands that use the process's session of Spark."""
USES_SPARK: Final = frozenset({"spark", "own_session"})
"""Fixtures of several files that use it."""
SHARED_BROKERS: Final = (
    "tests/peer/test_client.py",
    "tests/peer/test_console.py",
    "tests/peer/test_foreign_clients.py",
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
    """Return `USES_SPARK`, and the tests and fixtures of a file that use these, directly or not."""
    path = REPOSITORY / file
    content = path.read_bytes() if path.is_file() else b""
    # Few files have the word, and each process would parse them all.
    tree = ast.parse(content if any(name.encode() in content for name in USES_SPARK) else b"")
    names = {
        node.name: {argument.arg for argument in node.args.args} | _requested(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    using = set(USES_SPARK)
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


def scopes_in(file: str) -> set[str]:
    """Return the scopes that tests of a file may have."""
    if file in STARTS_SPARK:
        return {"Spark"}
    has_spark = spark_tests(file) > USES_SPARK
    brokers = [f"broker {version}" for version in VERSIONS] if file in SHARED_BROKERS else ()
    return {file, *brokers, *(["Spark"] if has_spark else ())}


class Part(pytest.Item):
    """The tests of one scope."""

    files: "list[PartFile]"
    running: pytest.Item | None = None

    @property
    def nodeid(self) -> str:
        """The test that runs: pytest-xdist takes no report of another one. Else the scope."""
        return self.running.nodeid if self.running else self.name

    def tests(self) -> list[pytest.Item]:
        """Import the files, and return what is asked for of the scope."""
        items: list[pytest.Item] = []
        for file in self.files:
            module = pytest.Module.from_parent(file.parent, path=file.path)
            items += self.session.genitems(module)
        self.config.hook.pytest_collection_modifyitems(
            session=self.session, config=self.config, items=items
        )
        return [item for item in items if scope_of(item.nodeid) == self.name]

    def runtest(self, following: pytest.Item | None = None) -> None:
        """Run the tests; each is reported as one of its own."""
        tests = self.tests()
        # What was imported stays: a full collection need not look at it each time.
        gc.collect()
        gc.freeze()
        if not tests:
            # What the last test left set up is what this part could have used.
            self.session._setupstate.teardown_exact(following)
        for test, next_test in zip(tests, [*tests[1:], following], strict=False):
            self.running = test
            test.ihook.pytest_runtest_protocol(item=test, nextitem=next_test)
            if self.session.shouldfail or self.session.shouldstop:
                break
        gc.unfreeze()


class PartFile(pytest.File):
    """A file that is not imported before one of its parts runs."""

    def collect(self) -> Iterator[Part]:
        """Yield a part for each scope of the file."""
        for scope in sorted(scopes_in(self.nodeid)):
            part = Part.from_parent(self, name=scope)
            part.files = [self]
            yield part


class CollectingLate:
    """The plugin of a process of pytest-xdist."""

    @pytest.hookimpl
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> PartFile:
        """Put off the import of a file."""
        return PartFile.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Leave out no part, whatever its name; join those of one scope, the costly ones first."""
        parts: dict[str, Part] = {}
        for item in items:
            if isinstance(item, Part) and parts.setdefault(item.name, item) is not item:
                parts[item.name].files += item.files
        items[:] = [item for item in items if not isinstance(item, Part)]
        yield
        items += [parts[name] for name in sorted(parts, key=start_order)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run all tests of a part; report of a test its call, and what failed."""
        if isinstance(item, Part):
            item.runtest(nextitem)
            return True
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            # The main process would spend as long on its messages as on many a test.
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True

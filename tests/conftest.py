"""What tests share: stores that real brokers wrote, a Spark session, and the real RocketMQ.

A fixture that cannot be had skips the test with a reason that says what to install. Using one
of ``golden``, ``spark`` and ``peer`` sets the marker of the same name, so that
``-m "not spark"`` works.
"""

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import settings

from tests.peer.rocketmq_peer import (
    QUIET_LOGBACK,
    VERSIONS,
    Jdk,
    PeerUnavailable,
    RocketMQPeer,
    find_jdk,
)
from tests.support.effort import SHORT
from tests.support.patience import PATIENCE_S
from tests.support.sharing import CollectingLate
from tests.support.sparse_files import digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN_ARCHIVES = Path(__file__).parent / "golden" / "stores"
IDLE_SETTINGS: dict[str, object] = {
    # The thread for these metrics spins until its first interval is over; the default is 10 s.
    "transactionMetricFlushInterval": 500,
    # The timer wheel is written whole each time, a fifth of a core with the default of 1 s.
    "timerFlushIntervalMs": 20_000,
}
"""With what RocketMQ 5 leaves the processor to others while nothing is asked of it."""
WITHOUT_TIMERS: dict[str, object] = {"timerWheelEnable": False}
"""For tests without timers of RocketMQ 5: each time that a client asks it how far its log goes, it
walks the wheel of a week twice, 0.15 s of a processor."""
OUTCOMES = ("passed", "skipped", "xfailed", "xpassed", "failed", "error")
MARKED_BY_FIXTURE = ("golden", "spark", "peer")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background: what tests start would ignore the Ctrl-C that they try, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers that tests start log what is wrong, and nothing of what is as it should be.
os.environ["ROCKETLENS_LOG"] = "warning"

# The option --hypothesis-profile comes later, and counts more.
settings.load_profile(SHORT)


@dataclass(frozen=True, slots=True)
class GoldenStore:
    """What one real broker wrote. Read only: shutil.copytree what a test wants to change."""

    version: str
    path: Path
    sent: tuple[dict[str, Any], ...]
    """One for each acknowledged message, in the order sent; see tests/golden/README.md."""

    @property
    def store(self) -> Path:
        """The store after a clean shutdown."""
        return self.path / "store"

    @property
    def crashed(self) -> Path:
        """The same store copied while the broker ran: ``abort`` is there, files are not final."""
        return self.path / "store-crashed"

    @property
    def mqadmin(self) -> Path:
        """The directory of what the real tool printed; the first line of each is the command."""
        return self.path / "mqadmin"


def pytest_configure(config: pytest.Config) -> None:
    """Name markers; have each of several processes import only what it runs."""
    config.addinivalue_line("markers", "broker(**settings): settings of the broker in `world`")
    config.addinivalue_line(
        "markers", "cluster(**options): options of `cluster`, and of the client that asks it"
    )
    if hasattr(config, "workerinput") and not any("::" in each for each in config.args):
        config.pluginmanager.register(CollectingLate())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the costly fixtures they use."""
    for item in items:
        for name in MARKED_BY_FIXTURE:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail if no test ran: processes collect parts of files whatever ``-k`` and ``-m`` leave."""
    if exitstatus != pytest.ExitCode.OK or not session.config.getoption("numprocesses", None):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not any(map(reporter.getreports, OUTCOMES)):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, of which there is little; exempt what was collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Return what runs an async test, and its async fixtures, in an event loop of their own."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner = pyfuncitem._request.getfixturevalue("runner")
    names = pyfuncitem._fixtureinfo.argnames
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})

    async def within_patience() -> None:
        async with asyncio.timeout(PATIENCE_S if "unit" in pyfuncitem.path.parts else None):
            await test

    runner.run(within_patience())
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> object:
    """Begin and end an async fixture in the event loop of the test that uses it."""
    function = fixturedef.func
    is_generator = inspect.isasyncgenfunction(function)
    if not (is_generator or inspect.iscoroutinefunction(function)):
        return None
    runner = request.getfixturevalue("runner")
    made = function(**{name: request.getfixturevalue(name) for name in fixturedef.argnames})

    async def step() -> object:
        return await anext(made, None)

    value = runner.run(step() if is_generator else made)
    if is_generator:
        request.addfinalizer(lambda: runner.run(step()))
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Give mode, modification time and SHA-256 of everything below ``root``."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            digest(path) if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def unpack(version: str, directory: Path) -> GoldenStore:
    """Unpack the archive of ``version`` into ``directory``."""
    extract(f"rocketmq-{version}.tar.zst", directory)
    path = directory / f"rocketmq-{version}"
    lines = (path / "sent.jsonl").read_text(encoding="utf-8").splitlines()
    return GoldenStore(version, path, tuple(json.loads(line) for line in lines))


def extract(archive: str, directory: Path) -> None:
    """Unpack one of the archives of golden stores."""
    with (
        (GOLDEN_ARCHIVES / archive).open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        members.extractall(directory, filter="data")


@pytest.fixture(scope="session")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a store of each layout. Read only: copy what a test changes."""
    directory = tmp_path_factory.mktemp("layouts")
    extract("layouts.tar.zst", directory)
    return directory


_state_directories = count()


@pytest.fixture(autouse=True)
def nothing_is_remembered_of_other_tests(monkeypatch, tmp_path_factory):
    """Keep the brokers that a test sees from the next one, and from the user's own state."""
    directory = tmp_path_factory.getbasetemp() / f"state-{next(_state_directories)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))


@pytest.fixture
def takes_hangups() -> Iterator[None]:
    """Let SIGHUP end this process and those it starts, as it does unless nohup started it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], GoldenStore]]:
    """Give the golden store of a version, ``"4.9.7"`` or ``"5.5.0"``.

    Fails in the end if a test changed one.
    """
    unpacked: dict[str, tuple[GoldenStore, dict[str, tuple[int, int, str]]]] = {}

    def of_version(version: str) -> GoldenStore:
        if version not in unpacked:
            golden_store = unpack(version, tmp_path_factory.mktemp("golden"))
            unpacked[version] = golden_store, fingerprint(golden_store.path)
        return unpacked[version][0]

    yield of_version
    for golden_store, before in unpacked.values():
        assert fingerprint(golden_store.path) == before, f"a test changed {golden_store.path}"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for the loopback interface, signed with its own key, and the key."""
    directory = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl found; install it to test TLS")
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture(scope="session")
def jdk() -> Jdk:
    """Give a JDK >= 17."""
    try:
        return find_jdk()
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))


@pytest.fixture(scope="session")
def peer(jdk: Jdk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQPeer]:
    """Return the real RocketMQ; its jars are fetched once, by Maven.

    Its JVMs run for seconds, and their starts are most of what these tests cost.
    """
    logback = tmp_path_factory.mktemp("peer") / "logback.xml"
    logback.write_text(QUIET_LOGBACK, encoding="utf-8")
    options = (
        # What the better compiler costs does not come back.
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        # Each server would make an RSA key for its own certificate: 5 s of a processor.
        "-Dtls.server.mode=disabled",
        # RocketMQ 5 reads 760 lines of its own about logs, which no test reads.
        f"-Drmq.logback.configurationFile={logback}",
    )
    try:
        rocketmq = RocketMQPeer(
            jvm_options=options, broker_settings=IDLE_SETTINGS, share_classes=True, keep_tools=True
        )
        for version in VERSIONS:
            rocketmq.class_archive(version)
    except PeerUnavailable as unavailable:
        pytest.skip(str(unavailable))
    yield rocketmq
    rocketmq.close()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Give one local session of two cores for all tests."""
    from rocketlens.errors import SparkUnavailable
    from rocketlens.pipeline.session import start

    try:
        session = start("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    except SparkUnavailable as unavailable:
        pytest.skip(str(unavailable))
    yield session
    session.stop()

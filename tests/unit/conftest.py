"""Runs the command line in this process, and writes small stores of chosen messages."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketlens import testing
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.main import main
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from tests.support.broker_world import world  # noqa: F401 - a fixture
from tests.support.fake_cluster import admin, cluster, producer, remembering  # noqa: F401 - fixtures

HOST = Host("10.0.0.5", 10911)
NOON_MS = 1_790_000_000_000


@dataclass(frozen=True)
class Done:
    """What one run gave."""

    code: int
    out: str
    err: str


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Sync nothing to the disk: more than half of what it costs to start and stop a broker.

    Only a power cut shows it, and tests of power cuts simulate the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, os.fstat)
        return (yield)


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch):
    """Neither variables of the environment nor a configuration file change what a test sees."""
    for name in list(os.environ):
        if name.startswith(("ROCKETLENS_", "ROCKETMQ_")):
            monkeypatch.delenv(name)
    for name in ("NAMESRV_ADDR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCKETLENS_LOG", "warning")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


@pytest.fixture
def run(capsys):
    """Give ``run(*arguments) -> Done``."""

    def run_main(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run_main


@pytest.fixture(scope="module")
def rocketmq():
    """Run a cluster of one broker for all tests of a module."""
    with testing.cluster() as running:
        yield running


@pytest.fixture
def zone(monkeypatch):
    """Give ``zone(name)``, which changes the local time zone until the test ends."""

    def change(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def record(physical_offset: int, **fields: Any) -> Record:
    """Give a record of topic T with the given fields."""
    given: dict[str, Any] = {
        "total_size": 0,
        "magic": MAGIC_V1,
        "body_crc": 0,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "physical_offset": physical_offset,
        "sys_flag": 0,
        "born_timestamp_ms": NOON_MS,
        "born_host": Host("10.0.0.9", 5555),
        "store_timestamp_ms": NOON_MS,
        "store_host": HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"hello",
        "topic": "T",
        "properties": b"",
    }
    return Record(**{**given, **fields})


@pytest.fixture
def make_record():
    """Give ``make_record(physical_offset, **fields) -> Record``."""
    return record


@pytest.fixture
def write_store(tmp_path):
    """Give ``write_store(message, ...)``: each a dict of record fields, ``properties`` a dict."""

    def write(*messages: dict[str, Any], name: str = "store") -> Path:
        content = b""
        for number, message in enumerate(messages):
            fields = {"queue_offset": number, **message}
            fields["properties"] = props.format_properties(fields.get("properties", {})).encode()
            content += commitlog_record.encode(record(len(content), **fields))
        log = tmp_path / name / "commitlog"
        log.mkdir(parents=True)
        (log / "00000000000000000000").write_bytes(content + bytes(4096))
        return log.parent

    return write


@pytest.fixture
def damaged(write_store):
    """A store of three messages with the key ``k``, the second with a flipped bit in its body."""
    store = write_store(*({"body": b"body%d" % n, "properties": {"KEYS": "k"}} for n in range(3)))
    segment = store / "commitlog" / "00000000000000000000"
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"body1", b"bodyA"))
    return store


@pytest.fixture
def unreadable(tmp_path):
    """A directory that may not be read, unless the user may read all."""
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    directory = tmp_path / "unreadable"
    directory.mkdir(mode=0)
    yield directory
    directory.chmod(0o700)

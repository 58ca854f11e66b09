"""``rocketlens tap``, as a process of its own, and what other commands tell of its copies."""

import json
import re
import urllib.request

import pytest

from rocketlens.main import build_parser
from rocketlens.net.sync import LoopThread
from tests.support.fake_master import FakeMaster, followed
from tests.support.written_stores import SMALL, content_of, open_small, send_many
from tests.unit.cli.servers.test_serve import running


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original"
    with open_small(path) as store:
        send_many(store, 100)
        end = store.end_offset
    files = sorted((path / "commitlog").iterdir())
    return path, b"".join(file.read_bytes() for file in files)[:end]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "soon"), "expected earliest, latest or a number"),
        (("--from", "-1"), "expected earliest, latest or a number"),
        (("--retention-hours", "0"), "expected 1 to"),
        (("--retention-hours", "999999"), "a hundred years"),
        ((), "name server"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(run, tmp_path, arguments, said):
    done = run("tap", "--home", str(tmp_path / "home"), *arguments)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "home").exists()


def test_a_copy_begins_with_all_that_the_broker_has_unless_told_otherwise():
    arguments = build_parser(["tap"]).parse_args(["tap", "--home", "x"])
    assert (arguments.begin, arguments.no_ack, arguments.retention_hours) == (
        "earliest",
        False,
        None,
    )
    arguments = build_parser(["tap"]).parse_args(["tap", "--home", "x", "--from", "77"])
    assert arguments.begin == 77


def test_a_tap_copies_until_it_is_told_to_stop_and_status_and_doctor_tell_of_it(
    run, tmp_path, original
):
    path, log = original
    home = tmp_path / "home"
    copy = home / "broker-a"
    master = FakeMaster(log, config=SMALL)
    masters, loop = followed(master), LoopThread("masters")
    try:
        address = loop.run(masters.__aenter__())
        arguments = ("tap", "-n", address, "--home", home, "--metrics-port", 0)
        with running(*arguments, ROCKETLENS_LOG="info") as server:
            assert re.fullmatch(rf"ready: tap of broker-a from \d+ on, store {copy}\n", server.line)
            loop.run(master.acknowledged(len(log)))
            line = next(line for line in server.process.stderr if "http://" in line)
            url = re.search(r"http://\S+:\d+", line)[0]
            with urllib.request.urlopen(f"{url}/metrics") as response:
                metrics = response.read().decode()
            with urllib.request.urlopen(f"{url}/readyz") as response:
                assert response.read() == b"ok\n"
            code, _, _ = server.end()
        loop.run(masters.__aexit__(None, None, None))
    finally:
        loop.close()
    assert code == 0
    offset = re.search(r"rocketlens_tap_offset\{[^}]*broker-a[^}]*\} (\S+)", metrics)
    assert float(offset[1]) == len(log)
    assert content_of(copy, "commitlog", "consumequeue") == content_of(
        path, "commitlog", "consumequeue"
    )
    said = run("status", "--store", str(copy)).out
    assert "tap of\tbroker broker-a (127.0.0.1:" in said
    assert "0 bytes behind at " in said
    assert "the tap was stopped" in said
    found = json.loads(run("status", "--store", str(copy), "-o", "json").out)
    assert found["tap"]["broker_name"] == "broker-a"
    assert found["tap"]["gaps"] == []
    checks = run("doctor", "--store", str(copy)).out
    assert "tap            broker broker-a" in checks or "tap\tbroker broker-a" in checks

"""Brokers that are gone: remembered, named, forgotten."""

import logging
import stat
import threading

import pytest

from rocketlens.client.connect.broker_history import SeenBroker, SeenBrokers
from rocketlens.client.connect.route import Broker
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.model.message_id import OffsetMessageId
from tests.support.clocks import Clock
from tests.support.fake_cluster import unregister

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000


@pytest.fixture
def clock():
    return Clock(NOW_MS)


def brokers(*names, port=10911):
    return {name: Broker(name, {0: f"10.0.0.1:{port}"}, "C") for name in names}


def names(seen):
    return [each.name for each in seen]


# The file.


def test_a_broker_that_was_there_and_is_not_is_missing_until_it_is_forgotten(path, clock):
    seen = SeenBrokers(path, ["b:9876", "a:9876"], clock)
    assert seen.missing(brokers("broker-a", "broker-b")) == []
    again = SeenBrokers(path, ["a:9876", "b:9876"], clock)
    (gone,) = again.missing(brokers("broker-a"))
    assert gone == SeenBroker(
        ("a:9876", "b:9876"), "C", "broker-b", ("10.0.0.1:10911",), NOW_MS, is_forgotten=False
    )
    assert names(SeenBrokers(path, ["b:9876"], clock).missing({})) == ["broker-a", "broker-b"]
    assert SeenBrokers(path, ["c:9876"], clock).missing({}) == []
    assert again.forget("broker-b")
    assert not again.forget("broker-b")
    assert not again.forget("broker-x")
    assert seen.missing(brokers("broker-a")) == []
    clock.now_ms += 1
    assert seen.missing(brokers("broker-a", "broker-b")) == []
    assert names(seen.missing(brokers("broker-a"))) == ["broker-b"]


def test_a_broker_is_missing_for_thirty_days_from_when_it_was_last_seen(path, clock):
    seen = SeenBrokers(path, ["a:9876"], clock)
    seen.missing(brokers("broker-a"))
    clock.now_ms += 2 * HOUR_MS
    seen.missing(brokers("broker-a"))
    clock.now_ms += 30 * DAY_MS
    (gone,) = seen.missing({})
    assert gone.seen_ms == NOW_MS + 2 * HOUR_MS
    clock.now_ms += 1
    assert seen.missing({}) == []


def test_only_what_says_more_is_written(path, clock):
    seen = SeenBrokers(path, ["a:9876"], clock)
    seen.missing(brokers("broker-a"))
    first = path.read_bytes()
    clock.now_ms += 59_999
    seen.missing(brokers("broker-a"))
    assert path.read_bytes() == first
    clock.now_ms += 1
    seen.missing(brokers("broker-a"))
    assert path.read_bytes().count(b"broker-a") == 2
    seen.missing(brokers("broker-a", port=10999))
    assert seen.missing({})[0].addresses == ("10.0.0.1:10999",)


def test_the_file_is_the_users_own(path, clock):
    SeenBrokers(path, ["a:9876"], clock).missing(brokers("broker-a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\n",
        b'{"broker":',
        b"[]\n",
        b"7\n",
        b'{"nameServers":5}\n',
        b"[" * 9999,
        b"\0" * 50,
    ],
)
def test_damage_costs_the_lines_that_it_is_in(path, clock, damage):
    seen = SeenBrokers(path, ["a:9876"], clock)
    seen.missing(brokers("broker-a"))
    with path.open("ab") as file:
        file.write(damage)
    seen.missing(brokers("broker-a", "broker-b"))
    assert names(seen.missing({})) == ["broker-a", "broker-b"]


def test_the_file_stays_small_and_keeps_the_newest(path, clock, monkeypatch):
    monkeypatch.setattr("rocketlens.client.connect.broker_history.MAX_SEEN_BROKERS_BYTES", 20_000)
    monkeypatch.setattr("rocketlens.client.connect.broker_history.MIN_SEEN_BROKERS", 10)
    seen = SeenBrokers(path, ["a:9876"], clock)
    for number in range(400):
        clock.now_ms += 1
        seen.missing(brokers(f"broker-{number}"))
        assert path.stat().st_size <= 20_000
    missing = names(seen.missing({}))
    assert len(missing) >= 10
    assert "broker-399" in missing
    assert list(path.parent.iterdir()) == [path]


def test_several_writers_lose_nothing_of_one_another(path, clock):
    def note(first):
        for number in range(first, first + 20):
            SeenBrokers(path, ["a:9876"], clock).missing(brokers(f"broker-{number}"))

    threads = [threading.Thread(target=note, args=[20 * n]) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(names(SeenBrokers(path, ["a:9876"], clock).missing({}))) == {
        f"broker-{number}" for number in range(100)
    }


def test_where_nothing_can_be_written_that_is_said_once(tmp_path, clock, caplog):
    (tmp_path / "file").touch()
    seen = SeenBrokers(tmp_path / "file" / "seen.jsonl", ["a:9876"], clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert seen.missing(brokers("broker-a")) == []
        assert not seen.forget("broker-a")
    assert [each.message for each in caplog.records] == [
        f"brokers that were seen are not remembered: {seen.path}: Not a directory"
    ]


# Answers.


@pytest.mark.cluster(masters=2)
async def test_a_broker_that_is_gone_makes_answers_incomplete_and_is_named(cluster, remembering):
    first, second = cluster.masters
    first.store("T", b"here", keys="k")
    lost = second.store("T", b"lost", keys="lost", unique_key="U" * 32)
    async with remembering() as asking:
        assert (await asking.query_message("T", "lost")).complete
    unregister(cluster, second.name)
    async with remembering() as asking:
        for key in ("lost", "k"):
            answer = await asking.query_message("T", key)
            assert not answer.complete
            (failed,) = answer.failures
            assert failed.source == second.name
            assert second.address in failed.error
            assert "last seen 20" in failed.error
            assert "--forget-broker broker-b" in failed.error
        with pytest.raises(AnswerIncomplete, match="last seen"):
            await asking.view_message("T", "U" * 32)
        with pytest.raises(AnswerIncomplete, match="last seen"):
            await asking.view_message(lost.offset_msg_id)
        # A broker may have had another's address.
        nothing = OffsetMessageId(lost.store_host._replace(port=_port(first)), 10**6).encode()
        with pytest.raises(AnswerIncomplete, match="last seen"):
            await asking.view_message(nothing)
        assert asking.forget_broker(second.name)
    async with remembering() as asking:
        assert (await asking.query_message("T", "lost")).complete
        with pytest.raises(MessageNotFound):
            await asking.view_message(lost.offset_msg_id)
    async with remembering(seen_brokers=None) as asking:
        assert (await asking.query_message("T", "lost")).complete


def _port(broker):
    return int(broker.address.rpartition(":")[2])


async def test_a_library_remembers_nothing_unasked(remembering, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = set(tmp_path.rglob("*"))
    async with remembering(seen_brokers=None) as asking:
        await asking.query_message("T", "k")
    assert set(tmp_path.rglob("*")) == before

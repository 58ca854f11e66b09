"""What an archive of a cluster claims where brokers, topics or clusters are others than before."""

import asyncio
import json

import pytest

import rocketlens
from rocketlens.archive import journal
from rocketlens.archive.journal import ArchiveTables
from rocketlens.client.connect.broker_history import SeenBrokers
from rocketlens.main import main
from rocketlens.pipeline.archive import archive_next
from rocketlens.pipeline.archive_cluster import ArchivedCluster
from tests.support.archives import run_here
from tests.support.async_tests import within
from tests.support.fake_cluster import FakeBroker, running


def send(broker, numbers, topic="T"):
    for number in numbers:
        broker.store(topic, b"x", keys=f"{topic}-{number}", queue_id=number % 4)


class Job:
    """Runs of an archive job on a cluster, in threads: the cluster is of this event loop."""

    def __init__(self, directory, fake, topics="T"):
        self.root = directory / "lake"
        self.options = {"namesrv": fake.given, "subscribe": topics}
        self.seen = directory / "seen-brokers.jsonl"

    def archive(self, most=None, **named):
        options = self.options | ({} if most is None else {"maxOffsetsPerTrigger": str(most)})
        source = ArchivedCluster(options, seen_brokers=self.seen, **named)
        tables = ArchiveTables(str(self.root), create=True)
        return iter(lambda: archive_next(tables, source, run_here), None)

    async def run(self, **named):
        return await asyncio.to_thread(lambda: list(self.archive(**named)))

    async def run_once(self, most):
        return await asyncio.to_thread(lambda: next(self.archive(most)))

    async def find(self, *arguments, **named):
        def find():
            with rocketlens.open_archive(self.root) as archive:
                return archive.find(*arguments, **named)

        return await asyncio.to_thread(find)


def ask(tmp_path, scenario, masters=2, topics="T", **named):
    async def main():
        async with running(masters, **named) as fake:
            return await scenario(fake, Job(tmp_path, fake, topics))

    return asyncio.run(main())


def unregister(fake, broker):
    for server in fake.name_servers:
        del server.brokers[broker.name]
        server.topics = {
            topic: left
            for topic, names in server.topics.items()
            if (left := [each for each in names if each != broker.name])
        }


async def replaced(fake, broker):
    """Start another broker of the name, which has nothing, and register it."""
    other = FakeBroker(broker.name)
    await other.start()
    fake.masters.append(other)
    for server in fake.name_servers:
        server.brokers[broker.name] = {0: other}
    return other


@within(ask, "tmp_path")
async def test_a_broker_that_is_not_registered_any_more_may_have_more(fake, job, /):
    first, second = fake.masters
    send(first, range(10))
    send(second, range(10, 20))
    await job.run()
    assert (await job.find("T-15")).complete
    send(second, range(20, 30))
    send(first, range(30, 40))
    unregister(fake, second)
    batches = await job.run()
    assert [each.messages for each in batches] == [10]
    for answer in (await job.find("T-25"), await job.find(topic="T")):
        assert not answer.complete
        assert "broker-b" in str(answer.failures[0].error)
    assert await job.run() == []
    # It is back: nothing is missing any more.
    for server in fake.name_servers:
        server.brokers[second.name] = {0: second}
        server.topics["T"].append(second.name)
    assert [each.messages for each in await job.run()] == [10]
    answer = await job.find(topic="T")
    assert (len(answer), answer.complete, answer.relies_on) == (40, True, ())


@within(ask, "tmp_path")
async def test_a_broker_that_was_seen_before_the_archive_began_is_missing_too(fake, job, /):
    first, second = fake.masters
    send(first, range(10))
    send(second, range(10, 20))
    options = {"seen_brokers": job.seen, "timeout_s": 20}
    async with rocketlens.MQAdmin(fake.given, **options) as admin:
        assert (await admin.find("T-15")).complete
    unregister(fake, second)
    await job.run()
    answer = await job.find("T-15")
    assert not answer.complete
    assert "broker-b" in str(answer.failures[0].error)
    SeenBrokers(job.seen, fake.given.split(";")).forget("broker-b")
    await job.run()
    assert (await job.find("T-15")).complete


def test_archive_run_and_doctor_name_what_a_cluster_has_besides(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda **_: None)
    monkeypatch.setattr("rocketlens.cli.jobs.archive.task_context", lambda _: None)
    monkeypatch.setattr(
        "rocketlens.pipeline.jobs.run", lambda _s, _p, tasks, work, _shown: list(map(work, tasks))
    )

    async def scenario(fake, job):
        send(fake.masters[0], range(10))
        command = (
            "archive",
            "run",
            "--table",
            str(job.root),
            "-n",
            fake.given,
            "-t",
            "T",
            "--once",
        )
        assert await asyncio.to_thread(main, command) == 0
        unregister(fake, fake.masters[1])
        for _ in range(2):
            assert await asyncio.to_thread(main, command) == 3
            assert "broker-b: it was last seen" in capsys.readouterr().err
        await asyncio.to_thread(main, ("doctor", "--archive", str(job.root)))
        assert "broker-b: it was last seen" in capsys.readouterr().out
        assert await asyncio.to_thread(main, (*command, "--forget-broker", "broker-b")) == 3
        assert await asyncio.to_thread(main, command) == 0

    ask(tmp_path, scenario)


@within(ask, "tmp_path")
async def test_what_a_broker_that_is_gone_for_good_had_last_is_lost_and_not_waited_for(
    fake, job, /
):
    first, second = fake.masters
    send(first, range(10))
    send(second, range(10, 20))
    await job.run()
    unregister(fake, second)
    await job.run(forgotten=["broker-b"])
    answer = await job.find("T-25")
    assert "broker-b is gone for good" in str(answer.failures[0].error)
    assert (await job.run()) == []
    until = (
        (await asyncio.to_thread(ArchiveTables, str(job.root)))
        .last_batch("DefaultCluster")
        .asked_ms
    )
    later = await job.find(topic="T", begin=until + 60_000)
    assert later.complete
    assert "broker-b is gone for good" in later.relies_on[0]


@within(ask, "tmp_path", masters=1, topics="T,U")
async def test_between_two_batches_nothing_is_complete(fake, job, /):
    (broker,) = fake.masters
    fake.name_servers[0].topics["U"] = ["broker-a"]
    send(broker, range(300))
    send(broker, range(100), "U")
    batch = await job.run_once(100)
    assert batch.messages < 300
    for text in ("T-299", "U-99", None):
        answer = await job.find(text, topic=None if text else "T")
        assert not answer.complete
    assert "not archived yet" in str(answer.failures[0].error)
    assert not (await job.find(topic="U")).complete
    await job.run(most=100)
    assert all([(await job.find(f"T-{number}")).complete for number in (0, 150, 299)])
    assert len(await job.find(topic="T")) == 300


@within(ask, "tmp_path", masters=1)
async def test_a_topic_that_was_made_again_is_archived_from_its_beginning(fake, job, /):
    (broker,) = fake.masters
    send(broker, range(50))
    await job.run()
    for queue_id in range(4):
        broker.queues["T", queue_id].clear()
    send(broker, range(50, 130))
    (batch,) = await job.run()
    assert batch.messages == 80
    answer = await job.find(topic="T")
    assert sorted(int(each.keys[0][2:]) for each in answer) == list(range(130))
    # What the former topic had after the last run is lost.
    assert not answer.complete
    assert "was created again" in str(answer.failures[0].error)
    assert await job.run() == []


@within(ask, "tmp_path", masters=1)
async def test_two_clusters_of_one_name_are_both_archived_whole(fake, job, /):
    (one,) = fake.masters
    send(one, range(50))
    await job.run()
    two = await replaced(fake, one)
    two.now_ms += 5
    send(two, range(50, 130))
    assert [each.messages for each in await job.run()] == [80]
    # The first is asked again: it goes on where it was.
    send(one, range(130, 140))
    for server in fake.name_servers:
        server.brokers["broker-a"] = {0: one}
    assert [each.messages for each in await job.run()] == [10]
    answer = await job.find(topic="T")
    assert sorted(int(each.keys[0][2:]) for each in answer) == list(range(140))


@within(ask, "tmp_path", masters=1)
async def test_a_topic_that_is_made_again_while_it_is_read_is_not_added(fake, job, /):
    (broker,) = fake.masters
    send(broker, range(50))
    await job.run()
    send(broker, range(50, 60))

    def made_again(tasks):
        for queue_id in range(4):
            broker.queues["T", queue_id].clear()
        broker.now_ms += 5
        send(broker, range(60, 140))
        return run_here(tasks)

    def archive():
        source = ArchivedCluster(job.options)
        archive_next(ArchiveTables(str(job.root)), source, made_again)

    with pytest.raises(rocketlens.errors.StoreError, match="created again while it was read"):
        await asyncio.to_thread(archive)
    assert [each.messages for each in await job.run()] == [80]


@within(ask, "tmp_path", masters=1)
async def test_a_topic_that_is_gone_lost_what_came_after_the_last_run(fake, job, /):
    send(fake.masters[0], range(8))
    await job.run()
    del fake.name_servers[0].topics["T"]
    await job.run()
    answer = await job.find("T-99")
    assert not answer.complete
    assert "is gone" in str(answer.failures[0].error)


@within(ask, "tmp_path", masters=1, slaves=1)
async def test_a_slave_that_answers_for_its_master_may_lack_the_newest(fake, job, /):
    send(fake.masters[0], range(8))
    send(fake.slaves[0], range(4))
    await job.run()
    await fake.masters[0].die()
    await job.run()
    answer = await job.find("T-99")
    assert not answer.complete
    assert "broker-a" in str(answer.failures[0].error)


def test_an_archive_of_an_earlier_version_says_how_to_archive_again(tmp_path, monkeypatch):
    make = journal.next_batch

    def earlier(*arguments, **named):
        batch = make(*arguments, **named)
        batch = journal.replace(batch, asked_ms=0, queues="", lost=(), behind=())
        return journal.replace(batch, checksum=batch.expected_checksum)

    async def scenario(fake, job):
        send(fake.masters[0], range(8))
        with monkeypatch.context() as patched:
            patched.setattr("rocketlens.pipeline.archive.next_batch", earlier)
            await job.run_once(1000)
        answer = await job.find("T-3")
        assert (len(answer), answer.complete) == (1, False)
        assert "archive it anew" in str(answer.failures[0].error)
        send(fake.masters[0], range(8, 12))
        assert sum(each.messages for each in await job.run()) == 4
        assert not (await job.find("T-3")).complete

    ask(tmp_path, scenario, masters=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda ranges: ranges[0].__setitem__(6, ranges[0][6] + 1),
        lambda ranges: ranges[0].__setitem__(4, ranges[0][5] + 1),
        lambda ranges: ranges[0].__setitem__(9, [77, *ranges[0][9][1:]]),
        lambda ranges: ranges[0].__setitem__(1, "Other"),
        lambda ranges: ranges[0].append("more"),
    ],
)
def test_ranges_that_contradict_the_files_are_an_error(tmp_path, monkeypatch, change):
    make = journal.next_batch

    def wrong(*arguments, **named):
        batch = make(*arguments, **named)
        ranges = json.loads(batch.queues)
        change(ranges)
        batch = journal.replace(batch, queues=json.dumps(ranges))
        return journal.replace(batch, checksum=batch.expected_checksum)

    async def scenario(fake, job):
        send(fake.masters[0], range(8))
        monkeypatch.setattr("rocketlens.pipeline.archive.next_batch", wrong)
        with pytest.raises(rocketlens.errors.ArchiveError, match=r"contradicts|ranges of queues"):
            await job.run()
        with pytest.raises(rocketlens.errors.ArchiveError, match=r"contradicts|ranges of queues"):
            await job.find("T-3")

    ask(tmp_path, scenario, masters=1)

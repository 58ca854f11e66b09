"""What Spark's tasks do with a cluster: plan, pull, and never lose a message in silence."""

import asyncio
import json
import pickle

import pytest
from msgspec.structs import replace

from rocketlens.bulk.options import OPTIONS, known_options
from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.connect.topology import Topology
from rocketlens.client.search.queue_stretch import QueueStretch
from rocketlens.errors import BadInput, RemotingError, StoreError, TopicNotFound
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.formats.commitlog_record import decode, encode
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from rocketlens.pipeline.cluster_scan import ClusterScan
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, damage_body, fail, running

QUEUE = MessageQueue("T", "broker-a", 0)


def scan_of(namesrv, **options):
    given = {"namesrv": namesrv, "subscribe": "T", **options}
    return ClusterScan(known_options(given, "cluster reads"))


def with_cluster(scenario, count=100, **cluster_options):
    """Run ``await scenario(cluster)``; four queues have ``count`` messages together."""

    async def main():
        async with running(**cluster_options) as cluster:
            for broker in (*cluster.masters, *cluster.slaves):
                for number in range(count):
                    broker.store("T", b"%d" % number, queue_id=number % 4)
            return await scenario(cluster)

    return asyncio.run(main())


async def rows_of(scan, shares=None):
    def read():
        planned = scan.shares() if shares is None else shares
        return [row for share in planned for batch in scan.read(share) for row in batch.to_pylist()]

    return await asyncio.to_thread(read)


async def bodies_of(scan, shares=None):
    return sorted(int(row["body"]) for row in await rows_of(scan, shares))


# Planning.


@within(with_cluster)
async def test_all_messages_are_read_in_bounded_stretches_and_again_the_same(cluster, /):
    scan = scan_of(cluster.given, maxRecordsPerPartition="10")
    # As Spark sends it to executors.
    scan = pickle.loads(pickle.dumps(scan))
    shares = await asyncio.to_thread(scan.shares)
    assert max(each.stop - each.start for each in shares) <= 10
    assert await bodies_of(scan, shares) == list(range(100))
    first = await rows_of(scan, shares[:1])
    cluster.masters[0].store("T", b"later", queue_id=shares[0].queue.queue_id)
    assert await rows_of(scan, shares[:1]) == first
    assert await bodies_of(scan, shares) == list(range(100))


@within(with_cluster)
async def test_at_least_so_many_partitions_are_made_as_are_asked_for(cluster, /):
    scan = scan_of(cluster.given, minPartitions="20")
    assert len(await asyncio.to_thread(scan.shares)) >= 20


def test_times_bound_what_is_read_and_what_is_returned(monkeypatch):
    monkeypatch.setattr("rocketlens.client.connect.queue_puller.MAX_AROUND_MESSAGES", 2)
    monkeypatch.setattr("rocketlens.client.search.queue_read.MAX_AROUND_MESSAGES", 2)
    monkeypatch.setattr("rocketlens.client.search.queue_stretch.MAX_AROUND_MESSAGES", 2)

    async def scenario(cluster):
        # Message n was stored in millisecond n + 1.
        times = {"startingTimestamp": str(T0 + 41), "endingTimestamp": str(T0 + 60)}
        scan = scan_of(cluster.given, **times)
        shares = await asyncio.to_thread(scan.shares)
        assert sum(each.stop - each.start for each in shares) < 20 + 4 * 6
        assert await bodies_of(scan, shares) == list(range(40, 60))

    with_cluster(scenario)


def between(starts, ends, count=100):
    """Return the messages between positions; message n is in queue n % 4, at offset n // 4."""
    low = {int(queue): max(at, 0) for queue, at in starts.items()}
    high = {int(queue): at for queue, at in ends.items() if at >= 0}
    return [n for n in range(count) if low.get(n % 4, 0) <= n // 4 < high.get(n % 4, count)]


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        ({"0": 3, "1": -2}, {}),
        ({}, {"0": 3, "2": -1, "3": 0}),
        ({"0": 3, "1": 25}, {"0": 4, "1": 25, "2": 7}),
    ],
)
@pytest.mark.parametrize("has_names", [True, False], ids=["brokers", "one broker"])
def test_positions_bound_what_is_read_of_a_queue_and_others_are_read_whole(starts, ends, has_names):
    given = {"startingOffsets": starts, "endingOffsets": ends}
    options = {
        name: json.dumps({"T": {"broker-a": offsets} if has_names else offsets})
        for name, offsets in given.items()
        if offsets
    }

    async def scenario(cluster):
        assert await bodies_of(scan_of(cluster.given, **options)) == between(starts, ends)

    with_cluster(scenario)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"T":{"9":0}}'}, "the cluster has no such queue: topic T, queue 9"),
        (
            {"endingOffsets": '{"T":{"x":{"0":1}}}'},
            "the cluster has no such queue: x, topic T, queue 0",
        ),
        (
            {"startingOffsets": '{"T":{"0":5}}', "endingOffsets": '{"T":{"0":4}}'},
            "startingOffsets is 5, but endingOffsets is 4",
        ),
    ],
)
@within(with_cluster)
async def test_positions_that_cannot_be_are_errors_of_planning(cluster, /, options, said):
    with pytest.raises(BadInput, match=said):
        await rows_of(scan_of(cluster.given, **options))


@within(with_cluster, masters=2)
async def test_of_several_brokers_positions_must_name_them(cluster, /):
    with pytest.raises(BadInput, match=r"is on 2 brokers \(broker-a, broker-b\)"):
        await rows_of(scan_of(cluster.given, startingOffsets='{"T":{"0":24}}'))
    named = '{"T":{"broker-a":{"0":24,"1":25,"2":25,"3":25},"broker-b":{"0":25}}}'
    found = await bodies_of(scan_of(cluster.given, startingOffsets=named))
    assert found == sorted([96, *(n for n in range(100) if n % 4)])


@pytest.mark.parametrize(
    ("options", "said", "found"),
    [
        (
            {"startingOffsets": '{"T":{"0":26}}'},
            "ends at offset 25, but startingO",
            ({"0": 25}, {}),
        ),
        ({"endingOffsets": '{"T":{"0":26}}'}, "ends at offset 25, but endingOffsets", ({}, {})),
    ],
)
@within(with_cluster)
async def test_a_position_outside_of_its_queue_is_logged_or_fails_the_job(
    cluster, /, options, said, found, caplog
):
    assert await bodies_of(scan_of(cluster.given, **options)) == between(*found)
    assert said in caplog.text
    with pytest.raises(StoreError, match=said):
        await rows_of(scan_of(cluster.given, failOnDataLoss="true", **options))


@within(with_cluster)
async def test_patterns_choose_among_the_topics_that_there_are(cluster, /):
    cluster.name_servers[0].topics |= {"Tea": ["broker-a"], "Other": ["broker-a"]}
    cluster.masters[0].store("Tea", b"7")
    cluster.masters[0].store("Other", b"8")
    scan = scan_of(cluster.given, subscribe="Te*,T")
    assert {row["topic"] for row in await rows_of(scan)} == {"T", "Tea"}
    with pytest.raises(TopicNotFound, match="no topic matches 'X\\*'"):
        await rows_of(scan_of(cluster.given, subscribe="X*"))


@within(with_cluster)
async def test_a_topic_that_is_deleted_meanwhile_is_not_missed_by_a_pattern(
    cluster, /, monkeypatch
):
    monkeypatch.setattr(Topology, "topics", listing(Topology.topics, "Gone"))
    assert await bodies_of(scan_of(cluster.given, subscribe="*")) == list(range(100))
    with pytest.raises(TopicNotFound, match="this cluster has no topic 'Gone'"):
        await rows_of(scan_of(cluster.given, subscribe="*,Gone"))


def listing(topics, more):
    """Return a list of topics with one that was deleted since."""

    async def listed(self):
        found = await topics(self)
        return found._replace(value=[*found.value, more])

    return listed


@within(with_cluster)
async def test_an_unknown_topic_is_refused_with_what_was_meant(cluster, /):
    cluster.name_servers[0].topics["Orders"] = ["broker-a"]
    with pytest.raises(TopicNotFound, match="no topic 'Order'; did you mean Orders"):
        await rows_of(scan_of(cluster.given, subscribe="Order"))


# Failures.


@within(with_cluster)
async def test_a_broker_that_does_not_answer_fails_plan_and_task_by_its_name(cluster, /):
    scan = scan_of(cluster.given)
    shares = await asyncio.to_thread(scan.shares)
    await cluster.masters[0].die()
    with pytest.raises(RemotingError, match="broker-a: "):
        await rows_of(scan, shares)
    with pytest.raises(RemotingError, match="broker-a: "):
        await rows_of(scan)
    cluster.name_servers[0].topics["T"] = []
    with pytest.raises(RemotingError, match="broker-a: not registered now"):
        await rows_of(scan, shares)


@within(with_cluster, name_servers=2)
async def test_a_name_server_that_fails_is_named_and_another_is_enough(cluster, /, caplog):
    await cluster.name_servers[1].die()
    assert await bodies_of(scan_of(cluster.given)) == list(range(100))
    assert f"name server {cluster.name_servers[1].address}" in caplog.text


@within(with_cluster, slaves=1)
async def test_a_slave_is_read_for_its_master_with_a_warning_unless_nothing_may_be_lost(
    cluster, /, caplog
):
    await fail(cluster.masters[0], "erring")
    assert await bodies_of(scan_of(cluster.given)) == list(range(100))
    assert "which may lack the newest messages" in caplog.text
    with pytest.raises(StoreError, match="may lack the newest messages"):
        await rows_of(scan_of(cluster.given, failOnDataLoss="true"))


async def lose(cluster, how):
    """Make some messages of queue 0 unreadable; return their queue offsets."""
    broker = cluster.masters[0]
    queue = broker.queues["T", 0]
    if how == "damaged":
        damage_body(broker, queue[5])
        return [5]
    if how == "cut":
        record = queue[3]
        broker.log[record.physical_offset : record.physical_offset + 8] = bytes(8)
        # What is behind it in the answer cannot be found.
        return list(range(3, 25))
    if how == "ends earlier":
        del queue[20:]
        return list(range(20, 25))
    cluster.name_servers[0].topics.clear()
    return list(range(25))


@pytest.mark.parametrize("how", ["damaged", "cut", "ends earlier", "topic deleted"])
@within(with_cluster)
async def test_messages_that_are_gone_or_damaged_are_left_out_and_named(cluster, /, caplog, how):
    scan = scan_of(cluster.given)
    shares = [QueueStretch(QUEUE, 0, 25)]
    lost = await lose(cluster, how)
    found = [row["queue_offset"] for row in await rows_of(scan, shares)]
    assert found == [n for n in range(25) if n not in lost]
    assert f"{len(lost)} have no message that can be read" in caplog.text
    assert f": {lost[0]} to {lost[-1]}" in caplog.text
    strict = scan_of(cluster.given, failOnDataLoss="true")
    with pytest.raises(StoreError, match=r"broker-a, topic T, queue 0: .* leaves them out"):
        await rows_of(strict, shares)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"perm": 2}, 0),
        ({"read_queue_nums": 1}, 25),
        ({"read_queue_nums": 1, "write_queue_nums": 1}, 25),
    ],
    ids=["not to be read", "fewer to read", "fewer"],
)
@within(with_cluster)
async def test_queues_that_brokers_let_nobody_pull_are_named(cluster, /, caplog, changes, count):
    cluster.name_servers[0].queue_data["T"] = changes
    assert len(await rows_of(scan_of(cluster.given))) == count
    for queue_id in range(1, 4):
        assert f"broker-a: T/{queue_id}: 25 messages cannot be read" in caplog.text
    with pytest.raises(StoreError, match=r"T/\d: 25 messages cannot be read.*failOnDataLoss"):
        await rows_of(scan_of(cluster.given, failOnDataLoss="true"))


@within(with_cluster)
async def test_checksums_need_not_be_compared(cluster, /):
    await lose(cluster, "damaged")
    scan = scan_of(cluster.given, checkCrc="false", failOnDataLoss="true")
    assert len(await rows_of(scan)) == 100


@within(with_cluster)
async def test_records_of_other_queues_and_topics_are_not_taken(cluster, /, caplog):
    broker = cluster.masters[0]
    other, queue = broker.store("Other", b"no", queue_id=0), broker.queues["T", 0]
    queue[3], queue[4] = other, broker.queues["T", 1][4]
    queue[7] = queue[6]
    found = await rows_of(scan_of(cluster.given), [QueueStretch(QUEUE, 0, 25)])
    offsets = [row["queue_offset"] for row in found]
    assert offsets == [n for n in range(25) if n not in (3, 4, 7)]
    assert "3 have no message that can be read" in caplog.text
    assert ": 3 to 4, 7 to 7" in caplog.text


def test_each_message_of_a_batch_is_a_row_once_wherever_stretches_are_cut(caplog):
    """One record of several messages comes with each stretch that has one of them."""

    async def scenario(cluster):
        broker = cluster.masters[0]
        queue = broker.queues["T", 0]
        members = [BatchMember(0, b"member %d" % number, b"") for number in range(6)]
        batch = replace(
            queue[4],
            sys_flag=SYS_FLAG_INNER_BATCH,
            properties=b"INNER_NUM\x016\x02",
            body=batch_body.encode(members),
            physical_offset=len(broker.log),
        )
        batch = decode(encode(batch))
        broker.log += encode(batch)
        broker.records.append(batch)
        queue[4:10] = [batch] * 6
        scan = scan_of(cluster.given)
        for start, stop in ((0, 25), (0, 7), (7, 12), (5, 6), (9, 10), (10, 25)):
            found = await rows_of(scan, [QueueStretch(QUEUE, start, stop)])
            assert [row["queue_offset"] for row in found] == [*range(start, stop)]
            of_batch = {row["queue_offset"]: row["body"] for row in found}
            for number in range(max(start, 4), min(stop, 10)):
                assert of_batch[number] == b"member %d" % (number - 4)
        assert not caplog.text
        del queue[10:]
        await rows_of(scan, [QueueStretch(QUEUE, 0, 12)])
        assert ": 10 to 11" in caplog.text

    with_cluster(scenario, count=100)


@within(with_cluster)
async def test_a_reader_that_stops_early_closes_its_connections(cluster, /):
    scan = scan_of(cluster.given)

    def look():
        batches = scan.read(QueueStretch(QUEUE, 0, 25))
        next(batches)
        batches.close()

    await asyncio.to_thread(look)
    pulls = cluster.masters[0].codes().count(RequestCode.PULL_MESSAGE)
    await rows_of(scan, [QueueStretch(QUEUE, 0, 25)])
    assert cluster.masters[0].codes().count(RequestCode.PULL_MESSAGE) == 2 * pulls


def test_one_chunk_follows_another(monkeypatch):
    monkeypatch.setattr("rocketlens.client.search.queue_stretch.MAX_CHUNK_RECORDS", 32)

    async def scenario(cluster):
        found = await rows_of(scan_of(cluster.given), [QueueStretch(QUEUE, 0, 250)])
        assert [row["queue_offset"] for row in found] == list(range(250))

    with_cluster(scenario, count=1000)


# Options.


def test_the_defaults_in_the_table_are_those_that_are_read():
    defaults = {
        option.name: option.default for option in OPTIONS if "cluster reads" in option.readers
    }
    scan = scan_of("a:1", **{name: text for name, text in defaults.items() if text})
    assert scan.__dict__ == scan_of("a:1").__dict__
    assert defaults["maxRecordsPerPartition"] == str(scan.partition_records)
    assert defaults["minPartitions"] == str(scan.min_partitions)
    assert defaults["failOnDataLoss"] == str(scan.losses.fails).lower()
    assert defaults["checkCrc"] == str(scan.check_crc).lower()
    assert defaults["body"] == str(scan.with_body).lower()
    assert (defaults["tls"], scan.address.tls) == ("false", None)
    verify = scan_of("a:1", tls="true").address.tls["verify"]
    assert defaults["insecure"] == str(not verify).lower()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"store": "/s"}, "option store is not for cluster reads"),
        ({"path": "/s"}, "give one"),
        ({"startingOffset": "5"}, "startingOffsets is earliest or positions of queues"),
        ({"startingOffsets": "latest"}, "is earliest or positions.*startingTimestamp"),
        ({"startingOffsets": '{"T":{"0":-1}}'}, r"cannot be -1 \(latest\), as for topic T"),
        ({"endingOffsets": '{"T":{"0":-2}}'}, r"cannot be -2 \(earliest\), as for topic T"),
        ({"endingOffsets": '{"U":{"0":1}}'}, "names topic U, which is not read"),
        ({"endingOffsets": "earliest"}, "is latest or positions.*endingTimestamp"),
        ({"table": "damage"}, "option table is not for cluster reads"),
        ({"maxRecordsPerPartition": "0"}, "from 1 on"),
        ({"accessKey": "a"}, "go together"),
        ({"secretKeyFile": "/f"}, "go together"),
        ({"secretKey": "very-secret"}, "did you mean secretKeyFile"),
        ({"insecure": "true", "ca": "/ca"}, "contradict"),
        ({"certKey": "/k"}, "certKey needs cert"),
        ({"tls": "false", "ca": "/ca"}, "tls is false"),
        ({"namesrv": "nowhere"}, "nowhere"),
        ({"namesrv": ""}, "no name server"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(BadInput, match=said) as refused:
        scan_of(**{"namesrv": "a:1", **options})
    assert "very-secret" not in str(refused.value)


def test_the_topics_must_be_named():
    with pytest.raises(BadInput, match="say which topics"):
        ClusterScan({"namesrv": "a:1"})


def test_a_secret_is_read_where_it_is_used_and_never_sent_along(tmp_path):
    path = tmp_path / "secret"
    path.write_text("s3cret", encoding="utf-8")

    async def scenario(cluster):
        scan = scan_of(cluster.given, accessKey="reader", secretKeyFile=str(path))
        assert b"s3cret" not in pickle.dumps(scan)
        assert scan.address.connection()["credentials"] == Credentials("reader", "s3cret")
        assert await bodies_of(scan) == list(range(100))
        path.unlink()
        with pytest.raises(BadInput, match=r"option secretKeyFile\) cannot be read"):
            await rows_of(scan)

    with_cluster(scenario)


@pytest.mark.parametrize(
    ("options", "verified", "names"),
    [
        ({}, None, None),
        ({"tls": "true"}, True, True),
        ({"insecure": "true"}, False, False),
        ({"checkHostname": "true"}, True, True),
    ],
)
def test_tls_is_used_when_an_option_of_it_is_given(options, verified, names):
    import ssl

    context = scan_of("a:1", **options).address.connection()["tls"]
    if verified is None:
        assert context is None
    else:
        assert (context.verify_mode == ssl.CERT_REQUIRED) is verified
        assert context.check_hostname is names


def test_a_broker_that_was_registered_before_is_an_error_if_nothing_may_be_lost(
    caplog, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def scenario(cluster):
        before = await bodies_of(scan_of(cluster.given))
        (server,) = cluster.name_servers
        del server.brokers["broker-b"]
        server.topics["T"] = ["broker-a"]
        assert len(await bodies_of(scan_of(cluster.given))) < len(before)
        assert "broker-b: it was last seen" in caplog.text
        with pytest.raises(StoreError, match=r"broker-b: it was last seen .* reads what it has"):
            await bodies_of(scan_of(cluster.given, failOnDataLoss="true"))

    with_cluster(scenario, masters=2)

"""What tools and scrapers see of a broker: what it counts, under RocketMQ's names, and bounded."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from rocketlens import limits
from rocketlens.broker.access_config import AuthConfig
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.life import metrics
from rocketlens.broker.requests.runtime import _BINARY, _DECIMAL, _in_units
from rocketlens.broker.tables.stats import BrokerStats
from rocketlens.errors import StoreFull
from rocketlens.formats import java_properties, timer_checkpoint
from rocketlens.formats.commitlog_record import decode
from rocketlens.model.config_keys import keys_of
from rocketlens.model.text.json_dialect import loads_file
from rocketlens.store.disk import Disk
from rocketlens.store.write.config import StoreConfig
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import members_of
from tests.support.broker_world import NOW_MS, Clock, in_broker, properties_of
from tests.unit.broker.heartbeats import beat


async def test_all_topics_are_told_with_their_version(world):
    await world.send()
    answer = json.loads((await world.call(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    assert answer["topicConfigTable"].keys() == world.core.topics.topics.keys()
    assert answer["topicConfigTable"]["Orders"]["writeQueueNums"] == 4
    assert answer["topicConfigTable"]["TBW102"]["perm"] == 7
    assert answer["dataVersion"] == members_of(world.core.topics.table.data_version)


async def test_rocketmqs_own_topics_are_told(world):
    answer = await world.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    topics = json.loads(answer.body)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} < set(topics)


async def test_the_configuration_is_told_and_never_changed_from_afar(world):
    code = RequestCode.UPDATE_BROKER_CONFIG
    answer = await world.call(code, b"flushDiskType=SYNC_FLUSH\nbrokerName=x\n")
    assert (answer.code, "cannot be changed remotely" in answer.remark) == (16, True)
    told = await world.call(RequestCode.GET_BROKER_CONFIG)
    lines = told.body.decode().splitlines()
    assert {"brokerName=broker-a", "flushDiskType=ASYNC_FLUSH", "traceOn=true"} <= set(lines)
    assert json.loads(told.ext_fields["version"])["counter"] == 0


async def test_the_configuration_has_each_key_with_the_value_in_effect(world):
    told = (await world.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
    values = java_properties.loads(told)
    tables = (BrokerConfig, AuthConfig, StoreConfig)
    names = {row.name for table in tables for row in keys_of(table)}
    secret = {"initAuthenticationUser", "innerClientAuthenticationCredentials"}
    assert values.keys() == names - secret | {"tls.server.mode"}
    assert list(values) == sorted(values)
    root = world.core.store.layout.root
    assert (values["storePathRootDir"], values["bindAddress"]) == (str(root), "127.0.0.1")
    assert values["storePathCommitLog"] == str(root / "commitlog")
    assert values["listenPort"] == str(world.core.store.store_host.port)
    assert values["listenPort"] != "0"


async def test_a_count_that_is_not_kept_is_refused_in_rocketmqs_words(world):
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Orders"}
    answer = await world.call(RequestCode.VIEW_BROKER_STATS_DATA, **fields)
    expected = (1, "The stats <TOPIC_PUT_NUMS> <Orders> not exist")
    assert (answer.code, answer.remark) == expected


@pytest.mark.parametrize(("index", "count", "given"), [(0, 3, 3), (3, 100, 5), (7, 1, 1)])
async def test_entries_of_a_queue_are_given_as_they_are(world, index, count, given):
    for _ in range(8):
        await world.send(properties=properties_of(TAGS="A"))
    fields = {"topic": "Orders", "queueId": 0, "index": index, "count": count}
    answer = await world.call(RequestCode.QUERY_CONSUME_QUEUE, **fields, consumerGroup="g")
    body = json.loads(answer.body)
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 8)
    assert body["filterData"] == "g@Orders is not online!"
    entry = world.core.store.queues.get("Orders", 0).entry(index)
    first = body["queueData"][0]
    assert (len(body["queueData"]), first["tagsCode"]) == (given, ord("A"))
    assert (first["physicOffset"], first["physicSize"]) == entry[:2]


def test_expired_files_of_all_queues_go_when_that_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.write.cleaner._QUEUES_AT_ONCE", 1)

    async def test(world):
        for number in range(450):
            await world.send(body=bytes(500), e=number % 3)
        queues = [world.core.store.queues.get("Orders", queue_id) for queue_id in range(3)]
        before = [len(queue.files()) for queue in queues]
        world.clock.now_ms += 1000 * 3_600_000 * 100
        for _ in range(2):
            assert (await world.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert all(len(each.files()) < was for each, was in zip(queues, before, strict=True))
        assert (await world.pull(149)).code == 0

    hours = ";".join(f"{hour:02}" for hour in range(24))
    in_broker(tmp_path, test, mappedFileSizeCommitLog=16_384, deleteWhen=hours)


class FullDisk(Disk):
    """So full that a broker deletes what is not expired, to go on storing messages."""

    def used_ratio(self, path):  # noqa: ARG002 - every path is on it
        return 0.995


@pytest.mark.broker(disk=FullDisk(), mappedFileSizeCommitLog=16384)
async def test_a_full_disk_is_no_reason_to_delete_messages_because_somebody_asks(world, caplog):
    for number in range(60):
        assert (await world.send(body=bytes(1000), e=number % 3)).code == 0
    log = world.core.store.layout.commit_log
    before = sorted(log.iterdir())
    for path in before:
        os.utime(path, (0, world.clock.now_ms / 1000 - 2 * 3600))
    for _ in range(3):
        assert (await world.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
    assert sorted(log.iterdir()) == before
    assert "are deleted" not in caplog.text
    # The broker itself does at its next round, and logs what it deletes.
    world.service._clean()
    assert sorted(log.iterdir()) == before[-1:]
    for words in ("100% full", before[0].name, "120 min ago", "Orders"):
        assert words in caplog.text


async def test_entries_that_are_not_there_are_refused(world):
    code = RequestCode.QUERY_CONSUME_QUEUE
    fields = {"topic": "Orders", "queueId": 0, "index": 1, "count": 1}
    answer = await world.call(code, **fields)
    assert (answer.code, answer.remark) == (1, "0@Orders is not exist!")
    await world.send()
    answer = await world.call(code, **fields)
    assert (answer.code, answer.remark) == (0, "Index 1 of 0@Orders is not exist!")


async def test_offsets_are_those_of_the_files(world):
    await world.send()
    world.core.offsets.put("readers", "Orders", 0, 1)
    body = (await world.call(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    world.core.offsets.save()
    config = world.core.store.layout.config
    written = (config / "consumerOffset.json").read_text()
    assert json.loads(body)["offsetTable"] == {"Orders@readers": {"0": 1}}
    assert json.loads(body)["offsetTable"] == loads_file(written)["offsetTable"]
    body = (await world.call(RequestCode.GET_ALL_DELAY_OFFSET)).body
    assert json.loads(body)["offsetTable"] == {}
    world.core.delay_offsets.put(3, 7)
    body = (await world.call(RequestCode.GET_ALL_DELAY_OFFSET)).body
    assert json.loads(body)["offsetTable"] == {"3": 7}


async def test_progress_of_timers_is_what_the_file_has(world):
    timer = properties_of(TIMER_DELIVER_MS=NOW_MS + 60_000)
    assert (await world.send(properties=timer)).code == 0
    world.core.timers.step(16)
    body = (await world.call(RequestCode.GET_TIMER_CHECK_POINT)).body
    world.core.timers.progress.save()
    written = (world.core.store.layout.config / "timercheck").read_bytes()
    assert len(body) == 56
    mine, file = (
        timer_checkpoint.decode(body.ljust(4096, b"\0")),
        timer_checkpoint.decode(written),
    )
    assert mine[:4] == file[:4]


async def test_what_rocketlens_does_not_have_is_an_empty_table(world):
    metrics = json.loads((await world.call(RequestCode.GET_TIMER_METRICS)).body)
    modes = json.loads((await world.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
    assert metrics["timingCount"] == modes["messageRequestModeMap"] == {}


READ_BY_TOOLS = (
    "putTps getTransferredTps getTransferedTps sendThreadPoolQueueSize pullThreadPoolQueueSize "
    "sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills "
    "pageCacheLockTimeMills earliestMessageTimeStamp commitLogDiskRatio brokerVersionDesc "
    "msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow "
    "msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow brokerActive "
    "timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps"
)


async def test_everything_that_tools_read_is_there(world):
    await world.send()
    await world.send(properties=properties_of(DELAY=2))
    await world.pull()
    answer = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(answer.body)["table"]
    assert set(READ_BY_TOOLS.split()) <= set(table)
    assert table["msgPutTotalTodayNow"] == "2"
    assert table["msgGetTotalTodayNow"] == "1"
    assert table["earliestMessageTimeStamp"] == str(NOW_MS)
    assert table["commitLogMaxOffset"] == str(world.core.store.end_offset)
    assert table["putMessageSizeTotal"] == str(world.core.store.end_offset)
    assert table["putMessageAverageSize"] == str(world.core.store.end_offset / 2)
    assert re.fullmatch(
        r"Total : \d+\.\d [TG]iB, Free : \d+\.\d [TGM]iB\.", table["commitLogDirCapacity"]
    )
    assert table["scheduleMessageOffset_2"] == "0,1"
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"


class CountedDisk(Disk):
    """Counts how often it is measured."""

    def __init__(self):
        self.measured = 0

    def space(self, path):
        self.measured += 1
        return super().space(path)


def test_the_disk_is_measured_once_a_second_however_often_it_is_asked_for(tmp_path):
    disk = CountedDisk()

    async def test(world):
        for _ in range(100):
            answer = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert 0 < float(json.loads(answer.body)["table"]["commitLogDiskRatio"]) < 1
        assert disk.measured == 1
        world.clock.now_ms += 1000
        await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert disk.measured == 2

    in_broker(tmp_path, test, disk=disk)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB")]
)
def test_sizes_read_as_rocketmqs(size, text):
    assert _in_units(size, 1000, _DECIMAL) == text


@pytest.mark.parametrize(
    ("size", "text"), [(1023, "1023 B"), (1536, "1.5 KiB"), (252 << 30, "252.0 GiB")]
)
def test_binary_sizes_read_as_rocketmqs(size, text):
    assert _in_units(size, 1024, _BINARY) == text


NAME = re.compile(r"(rocketmq|rocketlens)_[a-z_]+")


async def values_of(core, reader=None):
    """Return each sample's value by its name and the labels that are its own."""
    values = {}
    for metric in await metrics.collect(core, reader or metrics.CauseReader()):
        assert NAME.fullmatch(metric.name)
        assert metric.documentation.endswith(".")
        for sample in metric.samples:
            node = [sample.labels.pop(label) for label in metrics.NODE_LABELS]
            assert node == ["DefaultCluster", "broker", "broker-a"]
            values[sample.name, *sample.labels.values()] = sample.value
    return values


async def test_the_values_are_those_of_the_broker(world):
    for _ in range(3):
        assert (await world.send("Orders", b"body")).code == 0
    await beat(world, "c1", "Orders")
    offset = {"consumerGroup": "readers", "topic": "Orders", "queueId": 0, "commitOffset": 1}
    assert (await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **offset)).code == 0
    core = world.core
    values = await values_of(core)
    assert values["rocketmq_messages_in_total", "Orders"] == 3
    assert values["rocketlens_messages_put_total",] == 3
    assert values["rocketmq_consumer_lag_messages", "Orders", "readers"] == 2
    assert values["rocketmq_topic_number",] == len(core.topics.topics)
    assert values["rocketmq_storage_size_bytes",] == core.store.end_offset > 0
    assert values["rocketmq_throughput_in_total",] == core.store.end_offset
    assert values["rocketlens_connections",] == 1
    assert values["rocketlens_store_writable",] == 1
    assert 0 < values["rocketlens_disk_used_ratio",] < 1
    consumers = [key for key in values if key[0] == "rocketmq_consumer_connections"]
    assert [key[1] for key in consumers] == ["readers"]
    assert metrics.problems(core) == []


def of_dead_letters(values):
    return {key[0]: value for key, value in values.items() if key[1:] == ("readers",)}


async def test_dead_letters_are_counted_by_group_with_the_times_of_the_oldest_and_newest(world):
    assert (await world.send("Orders", b"no dead letter")).code == 0
    assert of_dead_letters(await values_of(world.core)) == {}
    for _ in range(3):
        assert (await world.send("%DLQ%readers", b"body")).code == 0
        world.clock.now_ms += 60_000
    first_s = world.stored("%DLQ%readers")[0].store_timestamp_ms / 1000
    assert of_dead_letters(await values_of(world.core)) == {
        "rocketlens_dead_letters": 3,
        "rocketmq_send_to_dlq_messages_total": 3,
        "rocketlens_dead_letters_oldest_timestamp_seconds": first_s,
        "rocketlens_dead_letters_newest_timestamp_seconds": first_s + 120,
    }


async def test_dead_letters_that_were_deleted_are_counted_as_ever_stored(world, monkeypatch):
    for _ in range(3):
        assert (await world.send("%DLQ%readers", b"body")).code == 0
    queues = world.core.store.queues
    monkeypatch.setattr(queues, "min_offset", queues.max_offset, raising=False)
    assert of_dead_letters(await values_of(world.core)) == {
        "rocketlens_dead_letters": 0,
        "rocketmq_send_to_dlq_messages_total": 3,
    }


async def dead_letters(world, *failures):
    """Store dead letters of readers, one second apart, with the text of an exception each."""
    for failure in failures:
        text = {"CONSUME_FAILURE": f"readers 0 pod {failure}"} if failure else {}
        properties = properties_of(RETRY_TOPIC="Orders", **text)
        assert (await world.send("%DLQ%readers", j=1, properties=properties)).code == 0
        world.clock.now_ms += 1_000


def by_cause(values, name=""):
    name = f"rocketlens_dead_letters_by_cause{name}"
    return {key[2]: value for key, value in values.items() if key[:2] == (name, "readers")}


async def test_dead_letters_are_counted_by_cause_each_read_once(world, monkeypatch):
    reader = metrics.CauseReader()
    await dead_letters(world, "Timeout: 17 ms", "KeyError: 'a'", "Timeout: 18 ms", "")
    first_s = world.stored("%DLQ%readers")[0].store_timestamp_ms / 1000
    values = await values_of(world.core, reader)
    counts = {"Timeout: # ms": 2, "KeyError: 'a'": 1, "topic Orders": 1}
    assert by_cause(values) == by_cause(values, "_last_hour") == counts
    times = [by_cause(values, f"_{each}_timestamp_seconds") for each in ("oldest", "newest")]
    assert [each["Timeout: # ms"] for each in times] == [first_s, first_s + 2]

    read = []
    monkeypatch.setattr(metrics, "decode", lambda given: read.append(1) or decode(given))
    world.clock.now_ms += 3_600_000
    await dead_letters(world, "KeyError: 'a'")
    values = await values_of(world.core, reader)
    assert by_cause(values)["KeyError: 'a'"] == 2
    assert by_cause(values, "_last_hour")["KeyError: 'a'"] == 1
    assert len(read) == 1


async def test_one_answer_reads_a_bounded_number_of_dead_letters(world, monkeypatch):
    monkeypatch.setattr(metrics, "_MAX_LETTERS_READ", 2)
    reader = metrics.CauseReader()
    await dead_letters(world, *["Timeout"] * 5)
    counts = [sum(by_cause(await values_of(world.core, reader)).values()) for _ in range(4)]
    assert counts == [2, 4, 5, 5]


async def test_of_many_causes_those_with_most_dead_letters_are_labels(world):
    letters = [f"Rare{'x' * each}" for each in range(30)] + ["Often"] * 2
    await dead_letters(world, *letters)
    counts = by_cause(await values_of(world.core))
    assert (len(counts), counts["Often"], counts["others"]) == (21, 2, 11)


async def test_causes_of_dead_letters_that_were_deleted_are_not_counted(world, monkeypatch):
    reader = metrics.CauseReader()
    await dead_letters(world, "Old", "New")
    assert by_cause(await values_of(world.core, reader)) == {"Old": 1, "New": 1}
    monkeypatch.setattr(world.core.store.queues, "min_offset", lambda *_: 1, raising=False)
    assert by_cause(await values_of(world.core, reader)) == {"New": 1}


async def test_alert_rules_of_the_documentation_name_values_and_labels_that_there_are(world):
    text = (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text("utf-8")
    block = text.partition("## Alerts")[2].partition("```yaml\n")[2].partition("```")[0]
    assert (await world.send("%DLQ%readers", b"body")).code == 0
    labels = {
        sample.name: set(sample.labels)
        for metric in await metrics.collect(world.core, metrics.CauseReader())
        for sample in metric.samples
    }
    (group,) = yaml.safe_load(block)["groups"]
    assert len(group["rules"]) >= 3
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        (name,) = re.findall(r"\b(?:rocketlens|rocketmq)_\w+", rule["expr"])
        assert {*re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])} <= labels[name]


async def test_a_new_broker_has_all_values(world):
    values = await values_of(world.core)
    for value in metrics.VALUES:
        assert (f"{value.name}_total" if value.is_counter else value.name,) in values


async def test_values_by_topic_and_group_are_bounded_and_the_others_counted(world, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.life.metrics.MAX_METRIC_SERIES", 2)
    for number in range(5):
        assert (await world.send(f"T{number}", b"body")).code == 0
    values = await values_of(world.core)
    assert sum(key[0] == "rocketmq_messages_in_total" for key in values) == 2
    assert values["rocketlens_metrics_left_out",] == 3


async def test_the_table_of_values_is_collected_while_others_change_it(world, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIECE_S", -1.0)
    for number in range(5):
        assert (await world.send(f"T{number}", b"body")).code == 0
    collecting = asyncio.ensure_future(values_of(world.core))
    number = 5
    while not collecting.done():
        assert (await world.send(f"T{number}", b"body")).code == 0
        number += 1
    assert (await collecting)["rocketmq_messages_in_total", "T0"] == 1


async def test_a_broker_that_refuses_messages_or_is_registered_nowhere_is_not_ready(world):
    core = world.core
    core.store._appender.refusal = StoreFull("the broker's disk is full")
    assert metrics.problems(core) == ["messages are refused: the broker's disk is full"]
    assert (await values_of(core))["rocketlens_store_writable",] == 0
    core.store._appender.refusal = None
    server = "127.0.0.1:1"
    core.settings = core.settings.with_broker(namesrvAddr=server)
    core.config = core.settings.broker
    core.name_servers.failures[server] = "refused"
    assert metrics.problems(core) == ["registered at none of 1 name servers"]


def test_rates_are_over_ten_seconds_a_minute_and_ten(tmp_path):
    clock = Clock()
    stats = BrokerStats(clock)
    for second in range(700):
        clock.now_ms += 1000
        stats.put_total += 100 if second >= 690 else 10
        stats.sample()
    assert stats.rates()["putTps"] == "100.0 25.0 11.5"


def test_at_midnight_the_counts_of_the_day_are_kept():
    clock = Clock()
    stats = BrokerStats(clock)
    for day in (1, 2):
        stats.put_total += 5
        clock.now_ms = NOW_MS + day * 86_400_000
        stats.sample()
    stats.put_total += 5
    assert (stats.put_until_previous_midnight, stats.put_until_midnight, stats.put_total) == (
        5,
        10,
        15,
    )

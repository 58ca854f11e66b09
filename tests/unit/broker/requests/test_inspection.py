"""What tools look at."""

import json
import os

import pytest

from rocketlens.broker.access_config import AuthConfig
from rocketlens.broker.config import BrokerConfig
from rocketlens.formats import java_properties, timer_checkpoint
from rocketlens.model.config_keys import keys_of
from rocketlens.model.text.json_dialect import loads_file
from rocketlens.store.disk import Disk
from rocketlens.store.write.config import StoreConfig
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, in_broker, properties_of


@within(in_broker, "tmp_path")
async def test_all_topics_are_told_with_their_version(world, /):
    await world.send()
    answer = json.loads((await world.call(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    assert answer["topicConfigTable"].keys() == world.core.topics.topics.keys()
    assert answer["topicConfigTable"]["Orders"]["writeQueueNums"] == 4
    assert answer["topicConfigTable"]["TBW102"]["perm"] == 7
    version = world.core.topics.table.data_version
    assert answer["dataVersion"] == version.encode()


@within(in_broker, "tmp_path")
async def test_rocketmqs_own_topics_are_told(world, /):
    answer = await world.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    topics = json.loads(answer.body)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} < set(topics)


@within(in_broker, "tmp_path")
async def test_the_configuration_is_told_and_never_changed_from_afar(world, /):
    code = RequestCode.UPDATE_BROKER_CONFIG
    answer = await world.call(code, b"flushDiskType=SYNC_FLUSH\nbrokerName=x\n")
    assert (answer.code, "cannot be updated from afar" in answer.remark) == (16, True)
    told = await world.call(RequestCode.GET_BROKER_CONFIG)
    lines = told.body.decode().splitlines()
    assert {"brokerName=broker-a", "flushDiskType=ASYNC_FLUSH", "traceOn=true"} <= set(lines)
    assert json.loads(told.ext_fields["version"])["counter"] == 0


@within(in_broker, "tmp_path")
async def test_the_configuration_has_each_key_with_the_value_in_effect(world, /):
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


@within(in_broker, "tmp_path")
async def test_a_count_that_is_not_kept_is_refused_in_rocketmqs_words(world, /):
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Orders"}
    answer = await world.call(RequestCode.VIEW_BROKER_STATS_DATA, **fields)
    expected = (1, "The stats <TOPIC_PUT_NUMS> <Orders> not exist")
    assert (answer.code, answer.remark) == expected


@pytest.mark.parametrize(("index", "count", "given"), [(0, 3, 3), (3, 100, 5), (7, 1, 1)])
def test_entries_of_a_queue_are_given_as_they_are(tmp_path, index, count, given):
    async def test(world):
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

    in_broker(tmp_path, test)


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


@within(in_broker, "tmp_path", disk=FullDisk(), mappedFileSizeCommitLog=16384)
async def test_a_full_disk_is_no_reason_to_delete_messages_because_somebody_asks(world, /, caplog):
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


@within(in_broker, "tmp_path")
async def test_entries_that_are_not_there_are_refused(world, /):
    code = RequestCode.QUERY_CONSUME_QUEUE
    fields = {"topic": "Orders", "queueId": 0, "index": 1, "count": 1}
    answer = await world.call(code, **fields)
    assert (answer.code, answer.remark) == (1, "0@Orders is not exist!")
    await world.send()
    answer = await world.call(code, **fields)
    assert (answer.code, answer.remark) == (0, "Index 1 of 0@Orders is not exist!")


@within(in_broker, "tmp_path")
async def test_offsets_are_those_of_the_files(world, /):
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


@within(in_broker, "tmp_path")
async def test_progress_of_timers_is_what_the_file_has(world, /):
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


@within(in_broker, "tmp_path")
async def test_what_rocketlens_does_not_have_is_an_empty_table(world, /):
    metrics = json.loads((await world.call(RequestCode.GET_TIMER_METRICS)).body)
    modes = json.loads((await world.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
    assert metrics["timingCount"] == modes["messageRequestModeMap"] == {}

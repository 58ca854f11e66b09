"""What a broker tells of itself."""

import json
import re

import pytest

from rocketlens.broker.requests.runtime import _size, _size_1024
from rocketlens.store.disk import Disk
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, in_broker, properties_of

READ_BY_TOOLS = (
    "putTps getTransferredTps getTransferedTps sendThreadPoolQueueSize pullThreadPoolQueueSize "
    "sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills "
    "pageCacheLockTimeMills earliestMessageTimeStamp commitLogDiskRatio brokerVersionDesc "
    "msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow "
    "msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow brokerActive "
    "timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps"
)


@within(in_broker, "tmp_path")
async def test_everything_that_tools_read_is_there(world, /):
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
    assert _size(size) == text


@pytest.mark.parametrize(
    ("size", "text"), [(1023, "1023 B"), (1536, "1.5 KiB"), (252 << 30, "252.0 GiB")]
)
def test_binary_sizes_read_as_rocketmqs(size, text):
    assert _size_1024(size) == text

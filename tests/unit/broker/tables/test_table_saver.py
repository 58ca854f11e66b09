"""Tables are written beside the requests: none waits that need not, and nothing is forgotten."""

import asyncio
import errno
import json
import threading

import pytest

from rocketlens.store.disk import Disk
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, running

FIELDS = {
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": False,
}


class HangingDisk(Disk):
    """A write of the table ``held`` waits until ``may_write``; ``failures`` writes fail.

    ``began``: a write of that table waits. ``written``: the names of all tables written.
    """

    def __init__(self):
        self.held = None
        self.may_write = threading.Event()
        self.began = threading.Event()
        self.failures = 0
        self.written = []

    def write_durably(self, path, content):
        if path.parent.name != "config" and path.name != self.held:
            super().write_durably(path, content)
            return
        if path.name == self.held:
            self.began.set()
            self.may_write.wait()
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "full", str(path))
        self.written.append(path.name)
        super().write_durably(path, content)


def create(world, topic):
    return asyncio.create_task(
        world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **FIELDS, topic=topic)
    )


def topics_on_disk(world):
    file = world.core.store.layout.config / "topics.json"
    return json.loads(file.read_text())["topicConfigTable"]


async def began(disk):
    await asyncio.get_running_loop().run_in_executor(None, disk.began.wait)


def test_others_are_answered_while_a_write_hangs_and_the_one_it_is_for_when_it_ended(tmp_path):
    disk = HangingDisk()

    async def test(world):
        await world.send()
        disk.held = "topics.json"
        try:
            made = create(world, "Made")
            await began(disk)
            assert (await world.pull()).code == 0
            assert (await world.send()).code == 0
            assert not made.done()
            assert "Made" not in topics_on_disk(world)
        finally:
            disk.may_write.set()
        assert (await made).code == 0
        assert "Made" in topics_on_disk(world)

    in_broker(tmp_path, test, disk)


def test_a_send_to_a_topic_of_its_own_making_is_answered_when_the_topic_is_written(tmp_path):
    disk = HangingDisk()

    async def test(world):
        disk.held = "topics.json"
        try:
            sent = asyncio.create_task(world.send("New"))
            await began(disk)
            assert (await world.pull()).code == 17
            assert not sent.done()
        finally:
            disk.may_write.set()
        assert (await sent).code == 0
        assert "New" in topics_on_disk(world)

    in_broker(tmp_path, test, disk)


def test_of_changes_that_wait_for_a_write_only_the_last_is_written(tmp_path):
    disk = HangingDisk()

    async def test(world):
        offsets = world.core.offsets
        disk.held = "consumerOffset.json"
        try:
            offsets.put("g", "T", 0, 0)
            saves = [world.core.saver.save(offsets)]
            await began(disk)
            for number in range(1, 100):
                offsets.put("g", "T", 0, number)
                saves.append(world.core.saver.save(offsets))
        finally:
            disk.may_write.set()
        await asyncio.gather(*saves)
        assert disk.written.count("consumerOffset.json") == 2
        assert not offsets.is_changed

    in_broker(tmp_path, test, disk)


def test_what_could_not_be_written_is_written_with_the_next_save(tmp_path, caplog):
    disk = HangingDisk()

    async def test(world):
        disk.failures = 1
        answer = await create(world, "Made")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "the change of topic Made could not be written" in answer.remark
        assert "Made" not in topics_on_disk(world)
        assert "could not be written" in caplog.text
        world.service._save()
        await world.core.saver.save(world.core.topics.table)
        assert "Made" in topics_on_disk(world)

    in_broker(tmp_path, test, disk)


GROUP_BODY = b'{"groupName":"readers"}'
CHANGES = {
    "a group": (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP_BODY),
    "a group that is deleted": (
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        {"groupName": "readers", "cleanOffset": True},
        b"",
    ),
    "a topic that is deleted": (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}, b""),
    "an offset that is reset": (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "Orders", "group": "readers", "timestamp": 0, "isForce": True},
        b"",
    ),
    "offsets that are copied": (
        RequestCode.CLONE_GROUP_OFFSET,
        {"srcGroup": "readers", "destGroup": "others", "topic": "Orders", "offline": True},
        b"",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_could_not_be_written_is_answered_with_an_error(tmp_path, change):
    disk = HangingDisk()
    code, fields, body = CHANGES[change]

    async def test(world):
        await world.send()
        await world.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP_BODY)
        world.core.offsets.put("readers", "Orders", 0, 1)
        disk.failures = 100
        answer = await world.call(code, body, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "could not be written to the disk" in answer.remark
        disk.failures = 0

    in_broker(tmp_path, test, disk)


def test_what_is_sent_while_a_deletion_is_written_is_deleted_with_its_topic(tmp_path):
    disk = HangingDisk()

    async def test(world):
        await world.send()
        disk.held = "deleted.json"
        try:
            deletion = asyncio.create_task(
                world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
            )
            await began(disk)
            assert (await world.send()).code == 0
        finally:
            disk.may_write.set()
        assert (await deletion).code == 0
        mark = world.core.store.deleted.marks["Orders"]
        assert mark.end_offset == world.core.store.end_offset

    in_broker(tmp_path, test, disk)


async def test_a_stop_writes_what_was_not_written_and_what_waits(tmp_path):
    disk = HangingDisk()
    async with running(tmp_path, disk=disk) as world:
        world.core.offsets.put("g", "T", 0, 0)
        world.core.delay_offsets.put(1, 0)
        disk.failures = 1
        world.core.saver.save(world.core.delay_offsets)
        world.core.saver.save(world.core.topics.table)
        world.core.groups.table.put("g")
    async with running(tmp_path) as world:
        assert world.core.offsets.get("g", "T", 0) == 0
        assert world.core.delay_offsets.table == {1: 0}
        assert "g" in world.core.groups.table.entries


def test_no_table_waits_for_another_one(tmp_path):
    disk = HangingDisk()

    async def test(world):
        world.core.offsets.put("g", "T", 0, 0)
        disk.held = "consumerOffset.json"
        try:
            saved = world.core.saver.save(world.core.offsets)
            await began(disk)
            assert (await create(world, "Made")).code == 0
            assert "Made" in topics_on_disk(world)
            assert not saved.done()
        finally:
            disk.may_write.set()
        assert await saved

    in_broker(tmp_path, test, disk)


class Unwritable:
    """A table that no file can be made of."""

    is_changed = True

    def snapshot(self):
        def write():
            raise ValueError("this is no table")

        return write


@within(in_broker, "tmp_path")
async def test_a_table_that_cannot_be_written_at_all_holds_up_no_other(world, /, caplog):
    core = world.core
    core.offsets.put("g", "T", 0, 5)
    ended = await asyncio.gather(core.saver.save(Unwritable()), core.saver.save(core.offsets))
    assert ended == [False, True]
    assert "this is no table" in caplog.text

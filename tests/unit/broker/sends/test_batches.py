"""Batches whose members are stored by compiled code: what is there when something fails."""

import shutil

import pytest

import rocketlens
from rocketlens.broker.sends import send_runs as batches
from tests.support.async_tests import within
from tests.support.broker_world import create_topic, in_broker
from tests.support.failing_disks import FailingDisk

MEMBERS = [(b"body %d" % number, f"KEYS\x01all\x02N\x01{number}\x02") for number in range(6)]


async def first_sends(world):
    """Send what makes a queue known, and load the kernels."""
    await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
    await world.send(properties="KEYS\x01all\x02")
    world.core.load_kernels()
    stored, store = [], world.core.batches.store
    world.core.batches.store = lambda *given, **more: (
        stored.append(store(*given, **more)) or stored[-1]
    )
    return stored


def outcome(directory, full_at, *, is_compiled):
    """What a broker answers to batches when its disk is full for a moment, and what it has."""

    async def test(world):
        await first_sends(world)
        if not is_compiled:
            world.core.batches = None
        answers = [await world.send_batch(MEMBERS) for _ in range(4)]
        records = [(each.body, each.queue_offset) for each in world.stored("Orders")]
        said = [
            (each.code, (each.remark or "").replace(str(directory), ""), each.ext_fields)
            for each in answers
        ]
        prefix = world.core.store_host.hex().upper()
        for _, _, fields in said:
            if "msgId" in fields:
                fields["msgId"] = fields["msgId"].replace(prefix, "")
        return said, records

    disk = FailingDisk(full_at=full_at)
    return in_broker(directory, test, disk=disk, mappedFileSizeConsumeQueue=400), disk.reserves


def test_a_batch_is_stored_whole_or_refused_wherever_the_disk_is_full(tmp_path):
    (answers, _), reserves = outcome(tmp_path / "first", (), is_compiled=True)
    assert {code for code, _, _ in answers} == {0}
    is_refused = set()
    for number in range(3, reserves + 1):
        full = outcome(tmp_path / f"{number}", {number}, is_compiled=True)[0]
        assert full == outcome(tmp_path / f"python-{number}", {number}, is_compiled=False)[0]
        is_refused |= {code for code, _, _ in full[0]}
    assert len(is_refused) > 1


@pytest.mark.parametrize("written", [0, 2, 6])
def test_a_broker_that_is_killed_in_a_batch_has_the_first_members(tmp_path, monkeypatch, written):
    def die(log, count, *others):
        assert count == len(MEMBERS)
        commit(log, written, *others)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        commit(log, count, *others)

    async def test(world):
        stored = await first_sends(world)
        monkeypatch.setattr(batches, "commit_members", die)
        assert (await world.send_batch(MEMBERS)).code == 0
        assert stored[0] is not None

    commit = batches.commit_members
    in_broker(tmp_path, test)
    with rocketlens.open_store(tmp_path / "copy") as reader:
        answer = reader.query_message("Orders", "all")
        assert (len(answer.messages), answer.complete) == (1 + written, True)


@pytest.mark.parametrize(
    ("properties", "code", "is_compiled"),
    [
        ("DELAY\x013\x02", 13, False),
        ("KEYS\x01all\x02DELAY\x013", 13, False),
        ("KEYS\x01all\x02DELAY\x010\x02", 0, False),
        ("MYDELAY\x013\x02", 0, False),
        ("DELAYS\x013\x02DELA\x01Y\x02", 0, True),
        ("KEYS\x01DELAY\x02", 0, True),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_delay_of_a_member_is_a_property_whatever_its_body_says(
    world, /, properties, code, is_compiled
):
    stored = await first_sends(world)
    answer = await world.send_batch([*MEMBERS, (b"DELAY\x013\x02", properties)])
    assert (answer.code, stored[-1] is not None) == (code, is_compiled), answer

"""Running push consumers in Java consume again what their group is reset to, on our broker."""

import asyncio

import pytest

from rocketlens import Message, MQAdmin, Producer
from tests.peer.java_member import JavaMember
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("tool", ["ours", "theirs"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_java_consumer_goes_on_where_its_group_is_reset_to(
    peer, our_name_server, tmp_path, version, tool
):
    topic, group = f"Reset-{tool}-{version[0]}", f"g_reset_{tool}_{version[0]}"

    async def reset(admin, timestamp_ms):
        """Return where the queues go on, as the tool has it."""
        if tool == "ours":
            found = await admin.reset_offset_by_time(group, topic, timestamp_ms)
            return sorted(found.values())
        command = ("resetOffsetByTime", "-n", our_name_server, "-g", group, "-t", topic)
        printed = await asyncio.to_thread(peer.mqadmin, version, *command, "-s", str(timestamp_ms))
        lines = [line.split() for line in printed.splitlines() if line.startswith("broker-a")]
        return sorted(int(words[2]) for words in lines)

    async def main(java):
        async with (
            MQAdmin(our_name_server) as admin,
            Producer(our_name_server, send_timeout_s=PATIENCE_S) as producer,
        ):
            await admin.create_topic(topic, 4)
            queues = await producer.write_queues(topic)

            async def send(numbers):
                sent = []
                for number in numbers:
                    queue = queues[number % 4]
                    sent.append(await producer.send(Message(topic, str(number)), queue=queue))
                return sent

            sent = await send(range(200))
            await until(lambda: set(java.bodies) == set(range(200)))
            middle = await admin.view_message(sent[100].offset_msg_id)
            before = len(java.bodies)
            offsets = await reset(admin, middle.store_timestamp_ms)
            # What was stored in the same millisecond comes, too.
            assert all(0 < each <= 25 for each in offsets), offsets
            assert len(offsets) == 4
            await until(lambda: set(range(100, 200)) <= set(java.bodies[before:]))
            await send(range(200, 208))
            await until(lambda: set(range(200, 208)) <= set(java.bodies))
            return set(java.bodies[before:])

    java = JavaMember(peer, version, tmp_path, our_name_server, group, topic)
    try:
        again = asyncio.run(main(java))
    finally:
        java.kill()
    assert 0 not in again, "it goes on where it was reset to, not at the beginning"

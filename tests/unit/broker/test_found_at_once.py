"""Between a send that is answered and a message that is found there is no time at all."""

import asyncio
import itertools

import pytest

from rocketlens.broker.lookup import live_index, search
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.testing import cluster

AT_ONCE = 8


async def send_and_look_up(producer, admin, number):
    """Send a message, and find it by all three ids."""
    key = f"ORDER-{number}"
    sent = await producer.send(Message("Orders", b"%d" % number, tags="TagA", keys=key))
    by_offset_id, by_unique_key, by_key = await asyncio.gather(
        admin.view_message(sent.offset_msg_id),
        admin.query_message_by_unique_key("Orders", sent.msg_id),
        admin.query_message("Orders", key),
    )
    for found in (by_offset_id, *by_unique_key, *by_key):
        assert found.offset_msg_id == sent.offset_msg_id
        assert (found.msg_id, found.body) == (sent.msg_id, b"%d" % number)
    assert len(list(by_unique_key)) == len(list(by_key)) == 1


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_message_is_found_by_all_three_ids_once_its_send_is_answered(count, monkeypatch):
    # Index files are opened anew again and again, and memory drops what they cover.
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    monkeypatch.setattr(search, "READ_INTERVAL_S", 0.02)

    async def main(name_server):
        async with Producer(name_server) as producer, MQAdmin(name_server) as admin:
            numbers = itertools.count()

            async def worker():
                while (number := next(numbers)) < count:
                    await send_and_look_up(producer, admin, number)

            await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    with cluster(build_index=True, maxHashSlotNum=500, maxIndexNum=2000) as running:
        asyncio.run(main(running.name_server))

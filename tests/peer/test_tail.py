"""A topic of a real broker, followed without a trace."""

import asyncio

import pytest

from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.model.rocketmq import SYSTEM_GROUPS, TOOLS_GROUP
from rocketlens.model.text import json_dialect
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_real_broker_is_followed_and_keeps_nothing_of_it(peer, version, tmp_path):
    with peer.start(version, tmp_path) as broker:
        asyncio.run(follow(broker.namesrv_address))
        connections = peer.mqadmin(
            version, "consumerConnection", "-n", broker.namesrv_address, "-g", TOOLS_GROUP
        )
        # It writes its tables when it stops.
        broker.stop()
        config = broker.store / "config"
        offsets = json_dialect.loads_file((config / "consumerOffset.json").read_bytes())
        assert offsets["offsetTable"] == {}
        # 5.x keeps how far each group pulled last, that of its own tools included.
        pulled = offsets.get("pullOffsetTable", {})
        assert set(pulled) <= {f"Orders@{TOOLS_GROUP}"}
        # 4.9 writes this file when a group is made, and no other was.
        groups = config / "subscriptionGroup.json"
        assert not groups.exists() or set(
            json_dialect.loads_file(groups.read_bytes())["subscriptionGroupTable"]
        ) <= {*SYSTEM_GROUPS}
        assert f"%RETRY%{TOOLS_GROUP}" not in (config / "topics.json").read_text(encoding="utf-8")
    assert "#ClientId" not in connections


async def follow(name_server):
    """Follow by an expression, which the broker is not allowed to evaluate."""
    async with (
        Producer(name_server, send_timeout_s=PATIENCE_S) as producer,
        MQAdmin(name_server) as admin,
    ):
        await producer.send(Message("Orders", "old", properties={"n": "1"}))
        async with (
            asyncio.timeout(PATIENCE_S),
            admin.tail("Orders", follow=True, sql="n > 0") as tail,
        ):
            assert (await anext(tail)).body == b"old"
            for number in range(40):
                properties = {"n": str(number % 2)}
                await producer.send(Message("Orders", f"{number}", properties=properties))
                if number % 2:
                    assert (await anext(tail)).body == b"%d" % number

"""A message is sent again as it was, or not at all."""

from dataclasses import replace

import pytest

from rocketlens.client.resend.message_copy import message_again
from rocketlens.errors import BadInput
from tests.support.fake_cluster import ask, sends


def test_a_message_is_sent_again_with_everything_it_had():
    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        broker.store("T", b"x" * 9, keys="k1 k2", unique_key="U1", flag=7, more={"colour": "red"})
        found = await admin.view_message("T", "U1")
        for _ in range(2):
            result = await admin.resend(found)
            assert result.msg_id == "U1"
        assert len(sends(broker)) == 2
        again = broker.records[-1]
        first = broker.records[0]
        assert (again.topic, again.body, again.flag) == (first.topic, first.body, first.flag)
        assert b"colour\x01red" in again.properties
        assert b"KEYS\x01k1 k2" in again.properties
        assert again.physical_offset != first.physical_offset

    ask(scenario)


def test_what_cannot_be_sent_as_it_was_is_refused():
    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        broker.store("T", unique_key="U1", more={"TRAN_MSG": "true"})
        found = await admin.view_message("T", "U1")
        with pytest.raises(BadInput, match="transaction"):
            await admin.resend(found)
        with pytest.raises(BadInput, match="cannot be sent again"):
            message_again(replace(found, body_error="not zlib"))
        assert sends(broker) == []

    ask(scenario)

"""Records of an answer are believed only as far as they check out."""

import pytest

from rocketlens.errors import AnswerIncomplete
from rocketlens.model.text.java import index_hash
from tests.support.fake_cluster import ask, bodies, damage_body


def test_hash_twins_are_told_apart():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        assert index_hash("T#Aa") == index_hash("T#BB")
        broker.store("T", b"mine", keys="Aa", unique_key="X-Aa")
        broker.store("T", b"twin", keys="BB", unique_key="X-BB")
        assert bodies(await admin.query_message("T", "Aa")) == [b"mine"]
        assert bodies(await admin.query_message_by_unique_key("T", "X-BB")) == [b"twin"]

    ask(scenario)


def test_a_damaged_record_costs_one_record_and_is_reported():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        stored = [broker.store("T", b"body-%d" % n, keys="k") for n in range(3)]
        damage_body(broker, stored[1])
        answer = await admin.query_message("T", "k")
        assert bodies(answer) == [b"body-0", b"body-2"]
        assert not answer.complete
        assert "checksum" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            await admin.view_message(stored[1].offset_msg_id)

    ask(scenario)

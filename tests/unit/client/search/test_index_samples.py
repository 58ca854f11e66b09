from rocketlens.wire.codes import RequestCode
from tests.support.fake_cluster import ask


def store(broker, count=40, topic="T"):
    for number in range(count):
        broker.store(topic, b"%d" % number, keys=f"k{number}", unique_key=f"{topic}{number}")


def test_an_index_that_lost_messages_makes_an_answer_by_key_incomplete_and_an_exhaustive_one_not():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        store(broker)
        broker.index_begin = broker.records[30].physical_offset
        for topic in ("T", None):
            answer = await admin.find("k2", topic)
            assert not answer.complete
            assert not answer.messages
            assert "its index lacks messages that its queues have, such as T/0/" in (
                answer.failures[0].error
            )
            assert not (await admin.find("k39", topic)).complete
            answer = await admin.find("k2", topic, exhaustive=True)
            assert answer.complete
            assert [each.body for each in answer] == [b"2"]

    ask(scenario)


def test_an_answer_without_messages_relies_on_the_index_which_was_tried():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        store(broker)
        answer = await admin.query_message("T", "k-none")
        assert answer.complete
        assert "as it has 8 of 8 sampled" in answer.coverage[0].relies_on
        assert (await admin.query_message("T", "k1")).coverage[0].relies_on is None
        # The index is tried once for all questions of some seconds.
        asked = broker.codes().count(RequestCode.QUERY_MESSAGE)
        await admin.query_message("T", "k2")
        assert broker.codes().count(RequestCode.QUERY_MESSAGE) == asked + 1
        exhaustive = await admin.find("k-none", "T", exhaustive=True)
        assert exhaustive.coverage[0].relies_on is None

    ask(scenario)


def test_an_index_that_cannot_be_tried_is_named():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"a", keys="k")
        answer = await admin.query_message("T", "k-none")
        assert answer.complete
        assert "which was not tried" in answer.coverage[0].relies_on
        # Nor can that of an empty topic, which needs none.
        cluster.name_servers[0].topics["E"] = cluster.name_servers[0].topics["T"]
        assert (await admin.query_message("E", "k")).coverage[0].relies_on is None

    ask(scenario)


def test_a_message_that_is_deleted_meanwhile_is_no_gap_in_the_index():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        store(broker, 1)
        query = broker.query

        def deleted(header, command):
            if header.key == "T0":
                broker.queues.clear()
                broker.index_begin = len(broker.log)
            return query(header, command)

        broker.query = deleted
        assert (await admin.query_message("T", "k-none")).complete

    ask(scenario)

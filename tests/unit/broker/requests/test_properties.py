"""Properties of messages as they are stored."""

from rocketlens.model import properties as props
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of


def test_properties_stand_as_a_real_broker_stores_them(tmp_path, golden):
    """The golden store's own records, sent again as their producer sent them."""
    added = ("MSG_REGION", "TRACE_ON", "CLUSTER")

    async def test(world):
        from rocketlens.query.offline import open_store

        with open_store(golden("5.5.0").store) as store:
            scanned = store.scan("OrderTopic")
            messages = [m for m in scanned if "CLUSTER" in m.properties and not m.reconsume_times]
        for message in messages[:50]:
            sent = {name: message.properties[name] for name in sorted(message.properties)}
            sent = {name: text for name, text in sent.items() if name not in added}
            await world.send("Again", properties=properties_of(**sent))
        expected = [props.format_properties(message.properties) for message in messages[:50]]
        assert [record.properties.decode() for record in world.stored("Again")] == expected

    in_broker(tmp_path, test)


@within(in_broker, "tmp_path")
async def test_a_message_without_a_unique_key_gets_one(world, /):
    answers = [await world.send() for _ in range(2)]
    keys = [answer.ext_fields["transactionId"] for answer in answers]
    assert len(set(keys)) == 2
    stored = [props.parse(each.properties.decode()) for each in world.stored("Orders")]
    assert [each["UNIQ_KEY"] for each in stored] == keys

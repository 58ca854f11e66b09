"""What a pull brought, as listeners get it."""

from rocketlens.client.consume.received import as_sent, received
from tests.unit.client.consume.consumer_messages import encoded, message


def test_all_records_of_an_answer_are_read_in_order():
    found = received(encoded(3) + encoded(4, b"y" * 100))
    assert [(each.queue_offset, each.body) for each in found.messages] == [
        (3, b"x"),
        (4, b"y" * 100),
    ]
    assert found.damage is None
    assert received(b"").messages == []


def test_what_stands_before_damage_is_read_and_the_damage_named():
    whole = encoded(3) + encoded(4)
    for cut in (1, 30, len(encoded(4)) - 1):
        found = received(whole[:-cut])
        assert [each.queue_offset for each in found.messages] == [3]
        assert found.damage


def test_a_body_without_its_checksum_is_delivered_as_in_java():
    record = bytearray(encoded(3, b"body"))
    record[record.index(b"body")] ^= 1
    [found] = received(bytes(record)).messages
    assert found.body == b"cody"


def test_a_message_of_the_retry_topic_shows_the_topic_it_was_sent_to():
    retried = message(0, topic="%RETRY%g", retry_topic="T")
    assert as_sent(retried, "g", "").topic == "T"
    assert as_sent(retried, "other", "").topic == "%RETRY%g"
    assert as_sent(message(0, topic="%RETRY%g"), "g", "").topic == "%RETRY%g"


def test_no_topic_shows_its_namespace():
    assert as_sent(message(0, topic="ns%T"), "ns%g", "ns").topic == "T"
    retried = message(0, topic="%RETRY%ns%g", retry_topic="ns%T")
    assert as_sent(retried, "ns%g", "ns").topic == "T"


def test_both_ids_are_there():
    found = message(5, uniq_key="7F000001" * 4)
    assert found.unique_key == found.msg_id == "7F000001" * 4
    assert found.offset_msg_id == "7F00000100002A9F0000000000001388"

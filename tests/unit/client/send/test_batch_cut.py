"""How messages are cut into batches."""

from rocketlens.client.send.message import Message
from rocketlens.client.send.send_request import BATCH_BYTES, BATCH_MESSAGES, cut_batches


def batches_of(*messages):
    """The numbers of messages in batches."""
    rows = list(enumerate(messages))
    return [[number for number, _ in batch] for batch in cut_batches(rows, lambda row: row[1])]


def message(size=1, **more):
    return Message("Orders", b"x" * size, **more)


def test_a_batch_has_so_many_messages_and_bytes_at_most_and_all_are_in_order():
    many = batches_of(*[message()] * (2 * BATCH_MESSAGES + 1))
    assert [len(batch) for batch in many] == [BATCH_MESSAGES, BATCH_MESSAGES, 1]
    assert [number for batch in many for number in batch] == list(range(2 * BATCH_MESSAGES + 1))
    half = BATCH_BYTES // 2
    assert batches_of(message(half), message(half), message()) == [[0, 1], [2]]
    assert batches_of(message(BATCH_BYTES + 1), message(BATCH_BYTES), message()) == [[0], [1], [2]]
    assert batches_of() == []


def test_a_message_with_a_delay_is_alone():
    late, timed = message(delay_level=3), message(deliver_at=4_000_000_000_000)
    assert batches_of(message(), late, message(), message(), timed) == [[0], [1], [2, 3], [4]]

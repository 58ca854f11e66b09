"""Retries and dead letters say why a listener of this package failed."""

import asyncio

import pytest

from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.send.message import Message
from rocketlens.model.life import ConsumeFailure, cause_of, failure_of
from rocketlens.testing import cluster
from tests.support.patience import PATIENCE_S
from tests.support.story_world import copy


@pytest.fixture(scope="module")
def rocketmq():
    with cluster() as running:
        yield running


class OutOfStock(Exception):
    """What the listener raises."""


def given_back(rocketmq, topic, delay_level, error, **options):
    """Have a group fail with one message, and return its copy."""
    with rocketmq.producer() as producer:
        producer.send(Message(topic, "1", keys=topic))

    async def work():
        done = asyncio.Event()

        async def listener(messages, context):
            context.delay_level = delay_level
            done.set()
            raise error

        consumer = PushConsumer(rocketmq.name_server, group=f"g-{topic}", begin="first", **options)
        consumer.subscribe(topic)
        consumer.listen(listener)
        async with consumer, asyncio.timeout(PATIENCE_S):
            await done.wait()

    asyncio.run(work())
    where = f"%DLQ%g-{topic}" if delay_level < 0 else "SCHEDULE_TOPIC_XXXX"
    with rocketmq.admin() as admin:
        (message,) = admin.find(topic, where, kind="key").messages
    return message


@pytest.mark.parametrize("delay_level", [-1, 0, 18])
def test_a_copy_says_which_exception_it_was_and_where(rocketmq, monkeypatch, delay_level):
    monkeypatch.setattr("socket.gethostname", lambda: "pod-7")
    error = OutOfStock("no 4711 left\nin store \x01 9")
    message = given_back(rocketmq, f"T{delay_level}", delay_level, error)
    group = f"g-T{delay_level}"
    assert failure_of(message) == ConsumeFailure(group, 0, "pod-7", "OutOfStock: no 4711 left")
    assert cause_of(message) == "OutOfStock: no # left"
    assert message.reconsume_times == 1
    assert message.properties["RETRY_TOPIC"] == f"T{delay_level}"
    if delay_level >= 0:
        assert message.properties["DELAY"] == str(delay_level or 3)
    with rocketmq.admin() as admin:
        (sent,) = admin.find(f"T{delay_level}", f"T{delay_level}", only_delivered=True).messages
        story = admin.story(message.msg_id)
    assert message.born_timestamp_ms == sent.born_timestamp_ms
    (told,) = [each for each in story.groups if each.group == group]
    assert told.failure == "OutOfStock: no 4711 left"
    assert any("it failed on pod-7: OutOfStock: no 4711 left" in e.text for e in story.events)


def test_one_setting_switches_it_off(rocketmq):
    message = given_back(rocketmq, "Off", -1, OutOfStock("no"), record_failures=False)
    assert "CONSUME_FAILURE" not in message.properties
    assert cause_of(message) == "topic Off"


def test_a_failure_is_bounded_and_one_line():
    class Odd(Exception):
        def __str__(self):
            raise ValueError

    def of(error):
        return ConsumeFailure.of("g", 2, "a host " * 100, error)

    assert of(Odd()).error == "Odd"
    assert of(OutOfStock()).error == "OutOfStock"
    assert len(of(OutOfStock("x" * 10_000)).error) == 300
    assert of(OutOfStock("a\ud800\x02b")).error == "OutOfStock: a  b"
    parts = str(of(OutOfStock("no"))).split(" ", 3)
    assert (parts[0], parts[1], len(parts[2]) <= 100, parts[3]) == (
        "g",
        "2",
        True,
        "OutOfStock: no",
    )


@pytest.mark.parametrize(
    ("value", "times"),
    [
        ("g 1 host ValueError: a", 3),
        ("other 2 host ValueError: a", 3),
        ("g two host ValueError: a", 3),
        ("g 2 host", 3),
        ("", 3),
    ],
)
def test_what_an_earlier_attempt_or_another_group_left_is_no_failure(value, times):
    properties = {"CONSUME_FAILURE": value, "RETRY_TOPIC": "T"}
    letter = copy("%DLQ%g", 0, 3, properties, reconsume_times=times)
    assert failure_of(letter) is None
    assert cause_of(letter) == "topic T"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("KeyError: 'a1'", "KeyError: 'a#'"),
        ("order 4,711.50 of 2026-11-28", "order # of #-#-#"),
        ("id 6f1c0e5a-9d1b-4c1e-8f00-112233445566 x", "id # x"),
        ("0A0B0C0D0E0F is gone", "# is gone"),
        ("deadbeef is a word", "deadbeef is a word"),
    ],
)
def test_causes_have_no_numbers(text, cause):
    properties = {"CONSUME_FAILURE": f"g 2 host {text}", "RETRY_TOPIC": "T"}
    assert cause_of(copy("%DLQ%g", 0, 3, properties, reconsume_times=3)) == cause

"""Settings of consumers are checked when they are made, whichever consumer they are for."""

import pytest

from rocketlens import (
    LitePullConsumer,
    PushConsumer,
    SyncLitePullConsumer,
    SyncPushConsumer,
    limits,
)
from rocketlens.client.consume.allocation import allocate_averagely, allocate_by_circle
from rocketlens.client.consume.consumer_settings import (
    ConsumerSettings,
    LitePullSettings,
    PushSettings,
)
from rocketlens.errors import BadInput, WrongType

CONSUMERS = [PushConsumer, LitePullConsumer, SyncPushConsumer, SyncLitePullConsumer]
PUSH = [PushConsumer, SyncPushConsumer]
WRONG = [
    (CONSUMERS, {"group": ""}, "group"),
    (CONSUMERS, {"group": "a b"}, "group"),
    (CONSUMERS, {"begin": "middle"}, "begin 'middle': expected one of last, first, timestamp"),
    (CONSUMERS, {"pull_batch": 0}, "pull_batch 0: expected 1 to"),
    (CONSUMERS, {"pull_batch": limits.MAX_PULL_BATCH + 1}, "pull_batch"),
    (CONSUMERS, {"instance_name": "a b"}, "instance_name 'a b': use letters"),
    (PUSH, {"concurrency": 0}, "concurrency 0: expected 1 to"),
    (PUSH, {"batch": limits.MAX_CONSUME_BATCH + 1}, "batch"),
]


@pytest.mark.parametrize(
    ("consumer", "wrong", "text"), [(each, *row) for some, *row in WRONG for each in some]
)
def test_a_setting_that_is_out_of_range_is_refused_by_each_consumer(consumer, wrong, text):
    with pytest.raises(BadInput, match=text):
        consumer("127.0.0.1:9876", **{"group": "g"} | wrong)


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize(
    "wrong", [{"group": 5}, {"begin_timestamp_ms": "now"}, {"pull_batch": "9"}]
)
def test_a_setting_of_a_wrong_type_is_refused(consumer, wrong):
    with pytest.raises(WrongType, match=next(iter(wrong))):
        consumer("127.0.0.1:9876", **{"group": "g"} | wrong)


def test_settings_say_how_much_of_a_queue_is_held_and_how_queues_are_shared():
    settings = ConsumerSettings(
        group="g",
        max_cached_messages_of_queue=1,
        max_cached_bytes_of_queue=2,
        max_span_of_queue=3,
    )
    assert settings.bounds == (1, 2, 3)
    assert settings.strategy is allocate_averagely
    by_circle = PushSettings(group="g", allocate=allocate_by_circle)
    assert by_circle.strategy is allocate_by_circle
    assert LitePullSettings(group="g", broadcasting=True).strategy is None

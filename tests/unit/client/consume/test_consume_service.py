"""What is logged of listeners that fail: enough to mend them, and not a page for each attempt.

Rates as RocketMQ's tools show them: of the last minute, and failures of the last hour.
Retries and dead letters say why a listener of this package failed.
"""

import asyncio
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consume_service import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerCalls,
    ListenerFailures,
    ListenerHung,
)
from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.consume.session import ConsumeRates
from rocketlens.client.send.message import Message
from rocketlens.model.life import ConsumeFailure, cause_of, failure_of
from rocketlens.testing import cluster
from tests.support.clocks import Seconds
from tests.support.patience import PATIENCE_S
from tests.support.story_world import copy


@pytest.fixture
def failures():
    return ListenerFailures("billing")


def charge(messages, context):
    raise ValueError(f"no card for {messages[0]}")


async def charge_later(messages, context):
    await asyncio.sleep(0)
    charge(messages, context)


def refund(messages, context):
    raise KeyError(messages[0])


def raised_by(listener, message="order 1"):
    """Return what a listener raises, called as consumers call it."""

    async def main():
        calls = ListenerCalls(listener, 1, 60.0)
        try:
            await calls.call((message,), ConsumeContext(MessageQueue("T", "b", 0)))
        except (ValueError, KeyError) as error:
            # Consumers call it from our own code, not from a test.
            return error.with_traceback(error.__traceback__.tb_next)
        finally:
            calls.close()

    return asyncio.run(main())


def lines_of(record):
    return logging.Formatter().format(record).splitlines()


@pytest.mark.parametrize("listener", [charge, charge_later])
def test_the_first_failure_has_its_traceback_without_our_frames(failures, caplog, listener):
    failures.add(raised_by(listener), "ID-1")
    (record,) = caplog.records
    lines = lines_of(record)
    assert lines[0] == "group billing: a listener failed at ID-1"
    assert lines[-1] == "ValueError: no card for order 1"
    files = set(re.findall(r'File "([^"]+)"', record.exc_text))
    assert files == {__file__}


def test_the_same_failure_again_is_one_line_with_its_number(failures, caplog):
    for number in range(1, 5):
        failures.add(raised_by(charge, f"order {number}"), f"ID-{number}")
    assert [len(lines_of(record)) > 1 for record in caplog.records] == [True, False, False, False]
    assert re.fullmatch(
        r"group billing: a listener failed at ID-4: ValueError: no card for order 4 "
        rf"\({re.escape(__file__)}:\d+\), 4 times now",
        caplog.records[-1].getMessage(),
    )


def test_each_kind_of_failure_has_one_traceback(failures, caplog):
    for number, listener in enumerate((charge, refund, refund, charge)):
        failures.add(raised_by(listener), f"ID-{number}")
    has_traceback = [record.exc_info is not None for record in caplog.records]
    assert has_traceback == [True, True, False, False]
    assert "2 times now" in caplog.records[-1].getMessage()


def test_an_error_of_our_own_is_one_line(failures, caplog):
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(limits.__getattribute__, "NO_SUCH_LIMIT").exception()
    failures.add(error, "ID-1")
    (record,) = caplog.records
    assert len(lines_of(record)) == 1
    assert "AttributeError" in record.getMessage()


def test_kinds_of_failures_are_bounded(failures, caplog, monkeypatch):
    monkeypatch.setattr("rocketlens.client.consume.consume_service.MAX_FAILURE_KINDS", 1)
    for listener in (charge, refund, charge):
        failures.add(raised_by(listener), "ID")
    assert len(failures._counts) == 1
    assert caplog.records[-1].exc_info is not None


CONTEXT = ConsumeContext(MessageQueue("T", "b", 0))
DONE = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def call(listener, timeout_s=60.0):
    async def main():
        calls = ListenerCalls(listener, 2, timeout_s)
        try:
            return await calls.call(("message",), CONTEXT)
        finally:
            calls.close()

    return asyncio.run(main())


def test_an_async_listener_runs_in_the_event_loop():
    async def listener(messages, context):
        assert threading.current_thread() is threading.main_thread()
        return messages, context

    assert call(listener) == (("message",), CONTEXT)


def test_a_plain_listener_runs_in_a_thread():
    def listener(messages, context):
        assert threading.current_thread() is not threading.main_thread()
        return messages, context

    assert call(listener) == (("message",), CONTEXT)


def test_an_object_that_is_called_asynchronously_is_an_async_listener():
    class Listener:
        async def __call__(self, *_):
            return threading.current_thread() is threading.main_thread()

    assert call(Listener()) is True


def test_a_plain_function_that_returns_an_awaitable_is_awaited():
    async def later():
        return DONE

    assert call(lambda *_: later()) is DONE


def test_what_a_listener_raises_is_raised():
    def listener(*_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        call(listener)


def test_an_async_listener_that_hangs_is_cancelled():
    ended = []

    async def listener(*_):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ListenerHung):
        call(listener, timeout_s=0.01)
    assert ended == [True]


def test_a_timeout_of_the_listeners_own_is_its_own():
    async def listener(*_):
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        call(listener)


async def test_so_many_plain_calls_run_at_once():
    together = threading.Barrier(2, timeout=PATIENCE_S)
    calls = ListenerCalls(lambda *_: together.wait(), 2, 60)
    await asyncio.gather(calls.call((), CONTEXT), calls.call((), CONTEXT))
    calls.close()


def test_rates_are_of_the_last_minute():
    clock = Seconds()
    rates = ConsumeRates(clock)
    rates.pulled(60, 0.002)
    rates.pulled(60, 0.004)
    rates.consumed(30, 0, 0.010)
    rates.consumed(0, 6, 0.030)
    status = rates.status()
    assert status.pull_tps == 2.0
    assert round(status.pull_rt, 6) == 3.0
    assert status.consume_ok_tps == 0.5
    assert status.consume_failed_tps == 0.1
    assert round(status.consume_rt, 6) == 20.0
    assert status.consume_failed_msgs == 6
    clock.now_s += 61
    status = rates.status()
    assert (status.pull_tps, status.pull_rt, status.consume_ok_tps) == (0.0, 0.0, 0.0)
    assert status.consume_failed_msgs == 6
    clock.now_s += 3600
    assert rates.status().consume_failed_msgs == 0


def test_hours_of_work_keep_an_hour_of_counts():
    clock = Seconds()
    rates = ConsumeRates(clock)
    for _ in range(5000):
        clock.now_s += 10
        rates.consumed(1, 1, 0.0)
    assert len(rates._slots) <= 361
    assert rates.status().consume_failed_msgs <= 361


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

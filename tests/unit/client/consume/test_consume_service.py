"""What is logged of listeners that fail: enough to mend them, and not a page for each attempt."""

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
from tests.support.patience import PATIENCE_S


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

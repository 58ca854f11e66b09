"""Listeners may be async or plain, and never block the event loop."""

import asyncio
import threading

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consume_service import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerCalls,
    ListenerHung,
)
from tests.support.patience import PATIENCE_S

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

"""Synchronous callers."""

import asyncio
import concurrent.futures
import threading
import traceback

import pytest

from rocketlens.errors import BadInput, ConnectFailed, WrongUse
from rocketlens.net.event_loop import run
from rocketlens.net.sync import LoopThread


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


async def fail():
    raise ZeroDivisionError("by zero")


def test_a_result_or_an_error_comes_back_to_the_caller():
    with LoopThread() as thread:
        assert thread.run(double(21)) == 42
        with pytest.raises(ZeroDivisionError, match="by zero"):
            thread.run(fail())


def test_the_traceback_of_an_error_of_ours_is_one_screen():
    async def refuse():
        raise ConnectFailed("127.0.0.1:1", "refused") from OSError("refused")

    with LoopThread() as thread, pytest.raises(ConnectFailed) as raised:
        thread.run(refuse())
    lines = traceback.format_exception(raised.value)
    assert len("".join(lines).splitlines()) < 12
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None


def test_many_threads_may_call_at_once():
    with LoopThread() as thread, concurrent.futures.ThreadPoolExecutor(8) as callers:
        answers = callers.map(lambda number: thread.run(double(number)), range(200))
        assert list(answers) == [2 * number for number in range(200)]


def test_a_call_from_within_its_own_loop_is_refused_instead_of_hanging():
    with LoopThread() as thread:

        async def nested():
            return thread.run(double(1))

        with pytest.raises(BadInput, match="would never return"):
            thread.run(nested())


def test_closing_cancels_what_runs_ends_the_thread_and_may_be_repeated():
    before = threading.active_count()
    thread = LoopThread()
    started = threading.Event()
    outcome = []

    async def forever():
        started.set()
        await asyncio.Event().wait()

    def call():
        try:
            thread.run(forever())
        except concurrent.futures.CancelledError:
            outcome.append("cancelled")

    caller = threading.Thread(target=call)
    caller.start()
    started.wait()
    thread.close()
    caller.join()
    thread.close()
    assert outcome == ["cancelled"]
    assert threading.active_count() == before
    with pytest.raises(WrongUse, match="closed"):
        thread.run(double(1))


def test_run_gives_what_a_coroutine_gives():
    assert run(double(4)) == 8


def test_without_uvloop_asyncios_own_loop_is_used(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def loop_module():
        return type(asyncio.get_running_loop()).__module__

    assert run(loop_module()).startswith("asyncio.")

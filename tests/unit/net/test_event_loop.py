"""The loop that servers run in, synchronous callers of it, and work in pieces and in threads.

What systemd is told.
"""

import asyncio
import concurrent.futures
import gc
import platform
import socket
import subprocess
import sys
import threading
import traceback
from functools import partial

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, ConnectFailed, ConnectionLost, WrongUse
from rocketlens.net.event_loop import (
    READY,
    SWITCH_INTERVAL_S,
    StopRequest,
    keep_objects,
    notify,
    run,
)
from rocketlens.net.pace import Pace, WorkThreads, in_thread
from rocketlens.net.sync import LoopThread
from tests.support.patience import PATIENCE_S


def test_no_thread_keeps_a_servers_loop_from_running_for_long():
    before = sys.getswitchinterval()

    async def main():
        return sys.getswitchinterval()

    try:
        assert abs(run(main()) - SWITCH_INTERVAL_S) < 1e-6
    finally:
        sys.setswitchinterval(before)


def test_a_server_does_not_collect_what_it_has_loaded_and_other_programs_collect_all():
    before = sys.getswitchinterval()
    gc.unfreeze()

    async def main():
        keep_objects()
        return gc.get_freeze_count()

    try:
        keep_objects()
        assert gc.get_freeze_count() == 0
        assert run(main()) > 1000
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()


class Unprintable:
    """A result whose text must not be made: it could take any amount of memory."""

    def __repr__(self):
        raise AssertionError("a text of the result was made")


def test_a_result_is_given_without_making_a_text_of_it():
    made = Unprintable()

    async def give():
        return made

    before = sys.getswitchinterval()
    try:
        assert run(give()) is made
    finally:
        sys.setswitchinterval(before)


LARGE_BLOCKS = """
import ctypes
from rocketlens.net.event_loop import return_large_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
assert return_large_memory()
large = bytes(24 << 20)
del large
heap_bytes = libc.mallinfo2().arena
kept = [bytes(2 << 20) for _ in range(8)]
assert libc.mallinfo2().arena == heap_bytes, "they are taken from the heap"
assert libc.mallinfo2().hblkhd >= 16 << 20
kept.clear()
assert libc.mallinfo2().hblkhd < 2 << 20, "they are not returned"
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_of_memory_are_returned_whatever_was_freed_before():
    # In a process of its own: it changes how all of it allocates.
    subprocess.run([sys.executable, "-c", LARGE_BLOCKS], check=True)


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        if request.param == "file":
            path = address = str(tmp_path / "notify")
        else:
            path, address = f"@{tmp_path}/notify", f"\0{tmp_path}/notify"
        listener.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def test_the_service_manager_is_told(manager):
    assert notify(READY)
    assert manager.recv(100) == b"READY=1"


def test_a_stop_is_told_once_it_is_requested(manager):
    StopRequest().ask("SIGTERM")
    assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("path", ["", "relative", "/no/such/socket", "@" + "x" * 200])
def test_without_a_service_manager_nothing_happens(path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    assert not notify(READY)


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


@pytest.mark.parametrize(("piece_s", "expected"), [(-1.0, 3), (3600.0, 0)])
async def test_others_have_a_turn_once_a_piece_took_its_time_and_not_before(
    monkeypatch, piece_s, expected
):
    monkeypatch.setattr(limits, "MAX_PIECE_S", piece_s)
    turns = []

    async def others():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    pace = Pace()
    for _ in range(3):
        await pace.turn()
    task.cancel()
    assert len(turns) == expected


async def test_a_result_and_an_error_come_back_from_a_thread():
    assert await in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)
    # The thread that raised goes on.
    assert await asyncio.gather(*(in_thread(lambda: 1) for _ in range(10))) == [1] * 10


def test_work_is_done_by_as_many_threads_as_are_allowed_and_none_keeps_a_process_from_ending():
    threads = WorkThreads(2, "test")
    together = threading.Barrier(2)

    def work():
        # Each waits for another, so that both threads must be there.
        together.wait(PATIENCE_S)
        return threading.current_thread()

    made = {future.result(60) for future in [threads.submit(work) for _ in range(10)]}
    assert {each.name for each in made} == {"rocketlens-test-1", "rocketlens-test-2"}
    assert all(each.daemon for each in made)


def test_work_that_is_cancelled_before_it_began_is_not_done():
    threads = WorkThreads(1, "test")
    release = threading.Event()
    done = []
    first = threads.submit(lambda: release.wait(PATIENCE_S))
    dropped, last = (threads.submit(partial(done.append, each)) for each in ("dropped", "last"))
    assert dropped.cancel()
    release.set()
    assert first.result(60)
    assert last.result(60) is None
    assert done == ["last"]


class Connection:
    address = "10.0.0.1:9"
    is_open = True


async def test_work_for_a_connection_that_ended_before_its_turn_is_not_begun():
    threads, owner, begun = WorkThreads(1, "test"), Connection(), []
    held_up = threading.Event()
    first = asyncio.ensure_future(in_thread(held_up.wait, threads))
    second = asyncio.ensure_future(in_thread(lambda: begun.append(1), threads, owner=owner))
    await asyncio.sleep(0)
    owner.is_open = False
    held_up.set()
    await first
    with pytest.raises(ConnectionLost):
        await second
    owner.is_open = True
    await in_thread(lambda: begun.append(2), threads, owner=owner)
    assert begun == [2]


def test_owners_have_turns_and_none_has_two_threads():
    threads = WorkThreads(2, "test")
    greedy_may_go_on, begun = threading.Event(), []

    def work(name):
        begun.append(name)
        if name.startswith("greedy"):
            assert greedy_may_go_on.wait(PATIENCE_S)

    greedy = [threads.submit(partial(work, f"greedy {n}"), "greedy") for n in range(4)]
    # The other thread is free for others, however much this one has sent before them.
    for number in range(3):
        threads.submit(partial(work, f"other {number}"), f"other {number}").result(60)
    assert sorted(begun) == ["greedy 0", "other 0", "other 1", "other 2"]
    holds_up, may_end = threading.Event(), threading.Event()

    def hold_up():
        holds_up.set()
        assert may_end.wait(PATIENCE_S)

    other = threads.submit(hold_up)
    assert holds_up.wait(PATIENCE_S)
    late = [threads.submit(partial(work, f"late {n}"), "late") for n in range(2)]
    greedy_may_go_on.set()
    for future in (*greedy, *late):
        future.result(60)
    may_end.set()
    other.result(60)
    # One piece of each in turn.
    assert begun[4:] == ["greedy 1", "late 0", "greedy 2", "late 1", "greedy 3"]

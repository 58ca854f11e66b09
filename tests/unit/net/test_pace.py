"""Work in pieces on the event loop, and work in threads beside it."""

import asyncio
import threading
from functools import partial

import pytest

from rocketlens import limits
from rocketlens.errors import ConnectionLost
from rocketlens.net.pace import Pace, WorkThreads, in_thread
from tests.support.async_tests import within
from tests.support.patience import PATIENCE_S
from tests.unit.net.loopback import run


@pytest.mark.parametrize(("piece_s", "expected"), [(-1.0, 3), (3600.0, 0)])
def test_others_have_a_turn_once_a_piece_took_its_time_and_not_before(
    monkeypatch, piece_s, expected
):
    monkeypatch.setattr(limits, "MAX_PIECE_S", piece_s)

    async def main():
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

    run(main)


@within(run)
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


def test_work_for_a_connection_that_ended_before_its_turn_is_not_begun():
    threads, owner, begun = WorkThreads(1, "test"), Connection(), []
    held_up = threading.Event()

    async def main():
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

    run(main)


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

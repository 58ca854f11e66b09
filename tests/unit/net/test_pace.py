"""Work in pieces on the event loop, and work in threads beside it."""

import asyncio
import threading

import pytest

from rocketlens import limits
from rocketlens.errors import ConnectionLost
from rocketlens.net.pace import Pace, WorkThreads, in_thread
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


def test_a_result_and_an_error_come_back_from_a_thread():
    async def main():
        assert await in_thread(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)
        # The thread that raised goes on.
        assert await asyncio.gather(*(in_thread(lambda: 1) for _ in range(10))) == [1] * 10

    run(main)


def test_work_is_done_by_as_many_threads_as_are_allowed_and_none_keeps_a_process_from_ending():
    threads = WorkThreads(2)
    together = threading.Barrier(2)

    def work():
        # Each waits for another, so that both threads must be there.
        together.wait(60)
        return threading.current_thread()

    made = {future.result(60) for future in [threads.submit(work) for _ in range(10)]}
    assert len(made) == 2
    assert all(each.daemon for each in made)


def test_work_that_is_cancelled_before_it_began_is_not_done():
    threads = WorkThreads(1)
    release = threading.Event()
    done = []
    first = threads.submit(release.wait, 60)
    dropped, last = (threads.submit(done.append, each) for each in ("dropped", "last"))
    assert dropped.cancel()
    release.set()
    assert first.result(60)
    assert last.result(60) is None
    assert done == ["last"]


class Connection:
    address = "10.0.0.1:9"
    is_open = True


def test_work_for_a_connection_that_ended_before_its_turn_is_not_begun():
    threads, owner, begun = WorkThreads(1), Connection(), []
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

"""The process that builds index files beside a broker, played by small programs."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from rocketlens.broker.life.index_process import IndexProcess, next_wait_s
from tests.support.patience import PATIENCE_S

READY = "print('ready: yes', flush=True)"
WAIT_FOR_END = "import sys; sys.stdin.read()"


def program(*statements):
    return [sys.executable, "-c", "; ".join(statements)]


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the process has no event for it
            await asyncio.sleep(0)


@pytest.mark.parametrize("loop_name", ["asyncio", "ours"])
def test_it_runs_until_it_is_stopped(loop_name, tmp_path):
    ended = tmp_path / "ended"

    async def main():
        index = IndexProcess(
            program(READY, WAIT_FOR_END, f"import pathlib; pathlib.Path({str(ended)!r}).touch()")
        )
        assert index.state == "stopped"
        index.start()
        assert index.state in ("starting", "stopped")
        await until(lambda: index.state == "running")
        await index.stop()
        assert (index.state, index.failures) == ("stopped", 0)
        await index.stop()

    run_in(loop_name, main())
    assert ended.exists()


def run_in(loop_name, main):
    if loop_name == "asyncio":
        asyncio.run(main)
    else:
        from rocketlens.net.event_loop import new_event_loop

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main)


async def test_one_that_fails_is_started_again_later_each_time_and_its_last_words_are_the_reason(
    tmp_path,
):
    count = tmp_path / "count"
    states = []
    index = IndexProcess(
        program(
            "import pathlib, sys",
            f"file = pathlib.Path({str(count)!r})",
            "number = len(file.read_text()) if file.exists() else 0",
            "file.write_text('x' * (number + 1))",
            READY,
            "number < 3 and sys.exit('noise\\nno room on the disk')",
            WAIT_FOR_END,
        ),
        waits_s=lambda *_: 0.01,
    )
    index.start()
    for failures in (1, 2, 3):
        await until(lambda failures=failures: index.failures == failures)
        states.append(index.state)
    await until(lambda: index.state == "running")
    await index.stop()
    assert all(state.endswith("no room on the disk") for state in states)
    assert len(count.read_text()) == 4


def test_the_wait_doubles_up_to_a_minute_and_begins_anew_after_a_steady_run():
    wait_s, waits = 0.0, []
    for ran_s in (0, 3, 3, 3, 3, 3, 3, 3, 60, 3):
        wait_s = next_wait_s(wait_s, ran_s)
        waits.append(wait_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]


async def test_one_that_cannot_be_started_is_tried_again():
    index = IndexProcess(["/nowhere/at/all"], waits_s=lambda *_: 0.01)
    index.start()
    await until(lambda: index.failures == 3)
    assert "No such file" in index.state
    await index.stop()


async def test_one_that_does_not_end_with_its_input_is_killed():
    index = IndexProcess(program(READY, "import signal", "signal.pause()"))
    index.start()
    await until(lambda: index.state == "running")
    await index.stop(0.05)
    assert index.state == "stopped"


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_what_it_started_ends_with_it_even_if_that_leads_a_group_of_its_own(tmp_path, end):
    pid_file = tmp_path / "pid"
    # As Spark's JVM does, it keeps the standard output open as long as it runs.
    child = program(
        "import os, pathlib, signal",
        f"pathlib.Path({str(pid_file)!r}).write_text(f'{{os.getpid()}} {{os.getppid()}}.')",
        "signal.pause()",
    )
    start = f"import signal, subprocess; subprocess.Popen({child!r}, process_group=0)"
    index = IndexProcess(program(start, "signal.pause()"), waits_s=lambda *_: 3600.0)
    index.start()
    await until(lambda: pid_file.exists() and pid_file.read_text().endswith("."))
    pid, parent = map(int, pid_file.read_text().removesuffix(".").split())
    async with asyncio.timeout(PATIENCE_S):
        if end == "kill":
            os.kill(parent, signal.SIGKILL)
            await until(lambda: index.watch(0, 0) or index.failures == 1)
        await index.stop(0)
    assert index.was_killed == (end == "stop")
    await until(lambda: not Path(f"/proc/{pid}/fd/1").exists())


async def test_one_whose_end_was_waited_for_in_vain_can_still_be_killed():
    index = IndexProcess(program(READY, "import signal", "signal.pause()"))
    index.start()
    await until(lambda: index.state == "running")
    stopping = asyncio.create_task(index.stop(3600))
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    await index.stop(0)
    assert index.state == "stopped"
    assert index.was_killed


async def test_one_that_hangs_while_there_is_something_to_index_is_killed_and_started_again():
    now_s = [0.0]
    index = IndexProcess(
        program(READY, "import signal", "signal.pause()"),
        waits_s=lambda *_: 0.01,
        clock=lambda: now_s[0],
    )

    def watch(passed_s, safe_offset, log_end):
        now_s[0] += passed_s
        index.watch(safe_offset, log_end)

    index.start()
    await until(lambda: index.state == "running")
    watch(1, 100, 100)
    watch(1000, 100, 100)
    watch(50, 100, 200)
    watch(20, 150, 200)
    watch(59, 150, 200)
    assert index.state == "running"
    watch(2, 150, 200)
    await until(lambda: index.failures == 1)
    await until(lambda: index.state == "running")
    # It gets twice as long now, for it may just be slow, and as long as one that starts.
    watch(181, 150, 200)
    watch(178, 150, 200)
    assert (index.state, index.failures) == ("running", 1)
    watch(2, 150, 200)
    await until(lambda: index.failures == 2)
    assert "it hung" in index.state or index.state in ("starting", "running")
    await index.stop()


async def test_one_that_waits_to_be_started_again_is_stopped_at_once():
    index = IndexProcess(program("pass"), waits_s=lambda *_: 3600.0)
    index.start()
    await until(lambda: index.failures == 1)
    async with asyncio.timeout(PATIENCE_S):
        await index.stop()


def state_after_the_end_of(*lines):
    """Return what is said of a program that ended, while it waits to be started again."""

    async def main():
        index = IndexProcess(program(*lines), waits_s=lambda *_: 60.0)
        index.start()
        await until(lambda: index.failures == 1)
        state = index.state
        await index.stop()
        return state

    return asyncio.run(main())


def test_the_reason_of_a_killed_process_is_its_signal_and_not_what_it_said_last():
    state = state_after_the_end_of(
        "import os, signal, sys",
        "print('starting Spark on local[*] ...', file=sys.stderr, flush=True)",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert state == "starts again in 60 s: it was killed by SIGKILL"


def test_the_reason_is_what_the_program_said_and_not_what_its_jvm_wrote_behind():
    state = state_after_the_end_of(
        "import sys",
        "print('rocketlens: no room on the disk', file=sys.stderr)",
        "print('WARN ShutdownHookManager: bye', file=sys.stderr)",
        "sys.exit(2)",
    )
    assert state == "starts again in 60 s: rocketlens: no room on the disk"

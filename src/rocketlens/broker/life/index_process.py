"""Runs the process that builds index files for a broker, and restarts it.

The process prints ``ready`` in its first line, and runs until its standard input is closed. So it
never outlives the broker, not even a killed one. If it ends earlier, it prints the reason to
standard error. A failed process is restarted after 1 s, then 2 s, and so on up to a minute; after
it ran for a minute, the wait is 1 s again. Meanwhile look-ups search the log itself.

A process that hangs is detected by its progress: if the index files do not grow for a minute (three
until it prints ``ready``) although they lack log, it is killed and restarted. The time doubles with
each kill without progress in between, because the machine can be slow.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

MAX_BUILDER_HUNG_S: Final = 3600.0
"""Maximum seconds without progress before a builder of index files is killed."""
MAX_BUILDER_RESTART_S: Final = 60.0
"""Maximum seconds before a builder that ended is restarted."""
_log: Final = logging.getLogger("rocketlens.broker")

FIRST_WAIT_S: Final = 1.0
STEADY_S: Final = 60.0
"""Seconds of running after which the next restart is quick again."""
STOP_S: Final = 2.0
"""Seconds until the end after its input is closed. It can be killed at any point."""
HUNG_S: Final = 60.0
"""Seconds in which the index files must grow if they lack log."""
HUNG_STARTING_S: Final = 180.0
"""The same before the first progress: Spark and its workers start."""
_LINE_CHARACTERS: Final = 500
OWN_LINE: Final = "rocketlens: "
"""The prefix of notes and errors of our commands."""


def next_wait_s(before_s: float, ran_s: float) -> float:
    """Return the next wait after a process ran for ``ran_s``; ``before_s`` is 0 at first."""
    if before_s == 0 or ran_s >= STEADY_S:
        return FIRST_WAIT_S
    return min(2 * before_s, MAX_BUILDER_RESTART_S)


class IndexProcess:
    """Runs a command, and restarts it when it ends. Belongs to the running event loop.

    ``state`` is one line for operators: ``starting``, ``running``, ``starts again in 4 s: REASON``,
    or ``stopped``.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        waits_s: Callable[[float, float], float] = next_wait_s,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.state = "stopped"
        self.failures = 0
        self.was_killed = False
        """True if :meth:`stop` had to kill the process. The next start repairs the files."""
        self._safe_offset = -1
        self._moved_s = 0.0
        self._hung_count = 0
        self._is_hung = False
        self._has_indexed = False
        """True if the index files have grown since the process started."""
        self._command: Final = tuple(command)
        self._waits_s: Final = waits_s
        self._clock: Final = clock
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: Final = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def watch(self, safe_offset: int, log_end: int) -> None:
        """Kill a hanging process, and the children of one that ended. Call this every few seconds.

        Index files cover the log to ``safe_offset``, and can cover it to ``log_end``.
        """
        now_s, process = self._clock(), self._process
        if process is not None and process.returncode is not None:
            # Its children keep the pipes open, so `_run_once` still waits.
            _kill(process)
            return
        if safe_offset != self._safe_offset or safe_offset >= log_end or process is None:
            if safe_offset > self._safe_offset >= 0:
                self._hung_count, self._has_indexed = 0, True
            self._safe_offset, self._moved_s = safe_offset, now_s
            return
        allowed_s = HUNG_S if self._has_indexed else HUNG_STARTING_S
        allowed_s = min(allowed_s * 2**self._hung_count, MAX_BUILDER_HUNG_S)
        if now_s - self._moved_s > allowed_s and not self._is_hung:
            self._hung_count += 1
            self._is_hung = True
            _kill(process)

    async def stop(self, within_s: float = STOP_S) -> None:
        """Close the input of the process, and kill it ``within_s`` seconds later."""
        task = self._task
        if task is None:
            return
        self._ending.set()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(within_s):
                await asyncio.shield(task)
        except TimeoutError:
            if process is not None:
                self.was_killed = True
                _kill(process)
            await task
        self._task = None
        self.state = "stopped"

    async def _run(self) -> None:
        wait_s = 0.0
        while not self._ending.is_set():
            self.state = "starting"
            began = self._clock()
            try:
                reason = await self._run_once()
            except OSError as error:
                reason = str(error)
            if self._ending.is_set():
                return
            self.failures += 1
            wait_s = self._waits_s(wait_s, self._clock() - began)
            self.state = f"starts again in {wait_s:.0f} s: {reason}"
            _log.warning("the index builder ended and %s", self.state)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()

    async def _run_once(self) -> str:
        """Run the process until it ends; return its last line of output."""
        # In its own session: Ctrl-C in a terminal reaches only the broker, which stops it.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        if self._ending.is_set() and process.stdin is not None:
            process.stdin.close()
        self._moved_s, self._is_hung, self._has_indexed = self._clock(), False, False
        _log.info("the index builder is started: process %d", process.pid)
        last_line, _, code = await asyncio.gather(
            complaint_of(process.stderr, "index builder"), self._wait_ready(process), process.wait()
        )
        self._process = None
        if self._is_hung:
            return "it hung: the index files did not grow, though there was something to index"
        if code < 0:
            # Its last line is not the reason.
            return f"it was killed by {_signal_name(-code)}"
        return last_line or f"exit code {code}"

    async def _wait_ready(self, process: Process) -> None:
        async for line in pipe_lines(process.stdout):
            if line.startswith("ready"):
                self.state = "running"
                _log.info("the index builder is %s", line)


def _kill(process: Process) -> None:
    """Kill the process with its JVM and workers, which are in its session.

    The JVM and the daemon of workers lead their own process groups, and notice the end of the
    process late. Until then they could write files of the broker or of the next process.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Without /proc, the others end when their standard input is closed.
    for directory in Path("/proc").glob("[0-9]*"):
        pid = int(directory.name)
        # It may have ended.
        with suppress(OSError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def complaint_of(stream: asyncio.StreamReader | None, name: str) -> str:
    """Return the last line of the program itself, or of all: its JVM writes to the same pipe."""
    last = own = ""
    async for line in pipe_lines(stream):
        last = line or last
        own = line if line.startswith(OWN_LINE) else own
        if line:
            _log.debug("%s: %s", name, line)
    return own or last


async def pipe_lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    assert stream is not None  # noqa: S101 - it is a pipe
    rest = b""
    while block := await stream.read(65_536):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")[:_LINE_CHARACTERS].strip()
        rest = rest[-_LINE_CHARACTERS:]
    yield rest.decode("utf-8", "replace").strip()

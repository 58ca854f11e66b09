"""Runs the process that builds index files beside a broker, and restarts it.

The process prints ``ready`` in its first line, runs as long as its standard input is open, and
prints the reason on standard error if it ends earlier. So it never outlives the broker, not even a
killed one. A failed process is restarted after 1 s, then 2 s, and so on up to a minute; after a
minute's run the wait is 1 s again. Meanwhile the index falls behind, but no message is lost to
look-ups: they search the log.

A process that hangs does not end, so its progress is watched. If there is something to index and
the index files have not grown for a minute (three until it prints ``ready``), it is killed and
restarted. Each time that this does not help, the time is doubled, because the machine may just be
slow.
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
"""Seconds without a word after which a builder of index files is ended; at first it is less."""
MAX_BUILDER_RESTART_S: Final = 60.0
"""Seconds until a builder of index files that ended is started again; at first it is less."""
_log: Final = logging.getLogger("rocketlens.broker")

FIRST_WAIT_S: Final = 1.0
STEADY_S: Final = 60.0
"""Seconds of running after which the next restart is quick again."""
STOP_S: Final = 2.0
"""Seconds that a process may take to end after its input is closed. It may be cut off at any
point.
"""
HUNG_S: Final = 60.0
"""Seconds in which the index files must grow if there is something to index."""
HUNG_STARTING_S: Final = 180.0
"""The same before the first progress: Spark and its workers start."""
_LINE_CHARACTERS: Final = 500
OWN_LINE: Final = "rocketlens: "
"""How notes and errors of our commands begin."""


def next_wait_s(before_s: float, ran_s: float) -> float:
    """Return the seconds to wait after a process that ran for ``ran_s``.

    ``before_s``: seconds waited before it was started; 0 for the first.
    """
    if before_s == 0 or ran_s >= STEADY_S:
        return FIRST_WAIT_S
    return min(2 * before_s, MAX_BUILDER_RESTART_S)


class IndexProcess:
    """Runs a command, and restarts it when it ends; belongs to the running event loop.

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
        """Prepare to run ``command``, a program and its arguments."""
        self.state = "stopped"
        self.failures = 0
        self.was_killed = False
        """Whether :meth:`stop` had to kill the process; the next start repairs what it left."""
        self._safe_offset = -1
        self._moved_s = 0.0
        self._hung_count = 0
        self._is_hung = False
        self._has_indexed = False
        """Whether the index files have grown since the process started."""
        self._command: Final = tuple(command)
        self._waits_s: Final = waits_s
        self._clock: Final = clock
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: Final = asyncio.Event()

    def start(self) -> None:
        """Start the process, and restart it until :meth:`stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def watch(self, safe_offset: int, log_end: int) -> None:
        """Kill the process if it hangs, and what it left if it ended; must be called every few
        seconds.

        ``safe_offset``: the physical offset that index files cover; ``log_end``: the one they can
        reach.
        """
        now_s, process = self._clock(), self._process
        if process is not None and process.returncode is not None:
            # What it started has its pipes as well, so its end was not noticed.
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
        """Stop the process: close its input, and kill it ``within_s`` seconds later."""
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
        """Run the process until it ends; return its last line of output.

        :raises OSError: if it cannot be started.
        """
        # In its own session, so that Ctrl-C in a terminal reaches only the broker, which then stops
        # it.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        if self._ending.is_set() and process.stdin is not None:
            process.stdin.close()
        self._moved_s, self._is_hung, self._has_indexed = self._clock(), False, False
        _log.info("the index builder is started: process %d", process.pid)
        last_line, _, code = await asyncio.gather(
            complaint_of(process.stderr, "index builder"), self._hear(process), process.wait()
        )
        self._process = None
        if self._is_hung:
            return "it hung: the index files did not grow, though there was something to index"
        if code < 0:
            # What it printed before is not why it ended.
            return f"it was killed by {_signal_name(-code)}"
        return last_line or f"exit code {code}"

    async def _hear(self, process: Process) -> None:
        """Set the state when the process prints that it is ready."""
        async for line in pipe_lines(process.stdout):
            if line.startswith("ready"):
                self.state = "running"
                _log.info("the index builder is %s", line)


def _kill(process: Process) -> None:
    """Kill the process with its JVM and workers: they are in its session.

    The JVM and the daemon of workers lead groups of their own, and take some time to notice that
    the process has ended. Until then they could write what the broker or the next process writes.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Where there is no /proc, the others end with their standard input.
    for directory in Path("/proc").glob("[0-9]*"):
        pid = int(directory.name)
        # It may have ended meanwhile.
        with suppress(OSError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def complaint_of(stream: asyncio.StreamReader | None, name: str) -> str:
    """Return the last line that the program itself wrote, or the last of all: Spark and its JVM
    write to the same pipe. Each line goes to the log as one of ``name``.
    """
    last = own = ""
    async for line in pipe_lines(stream):
        last = line or last
        own = line if line.startswith(OWN_LINE) else own
        if line:
            _log.debug("%s: %s", name, line)
    return own or last


async def pipe_lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    """Yield the lines of a pipe, each cut to a bounded length."""
    assert stream is not None  # noqa: S101 - it is a pipe
    rest = b""
    while block := await stream.read(65_536):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")[:_LINE_CHARACTERS].strip()
        rest = rest[-_LINE_CHARACTERS:]
    yield rest.decode("utf-8", "replace").strip()

"""The process that builds index files beside a broker: started, watched, started again.

It is a program that says ``ready`` in its first line, runs for as long as its standard input is
open, and gives the reason on its standard error if it ends before. So it never outlives the
broker, not even one that was killed. A process that failed is started again after 1 s, then 2 s,
and so on up to a minute; one that ran for a minute begins at 1 s again. Meanwhile the index falls
behind, and nothing else: what it lacks is found in the log.

One that hangs does not end, so it is watched: while there is something to index and it has brought
nothing into the index files for a minute (three until it says ``ready``) it is killed, and started
again. Each time that this does not help it gets twice as long, for the machine may just be slow.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from rocketlens import limits

_log: Final = logging.getLogger("rocketlens.broker")

FIRST_WAIT_S: Final = 1.0
STEADY_S: Final = 60.0
"""Who ran for so long and then failed is started again as quickly as after a first failure."""
STOP_S: Final = 2.0
"""How long a process may take to end after its input did; whatever it was doing can be cut off."""
HUNG_S: Final = 60.0
"""How long a process may bring nothing into the index files though there is something to index."""
HUNG_STARTING_S: Final = 180.0
"""The same for one that brought nothing yet: Spark and its workers start, kernels compile."""
_LINE_CHARACTERS: Final = 500


def next_wait_s(before_s: float, ran_s: float) -> float:
    """Return how long to wait after a process ended that ran for ``ran_s``.

    ``before_s``: how long was waited before it was started; 0 for the first.
    """
    if before_s == 0 or ran_s >= STEADY_S:
        return FIRST_WAIT_S
    return min(2 * before_s, limits.MAX_BUILDER_RESTART_S)


class IndexProcess:
    """Runs a command again and again; belongs to the running event loop.

    ``state`` is one line for people: ``starting``, ``running``, ``starts again in 4 s: REASON``,
    or ``stopped``.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        waits_s: Callable[[float, float], float] = next_wait_s,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Prepare; nothing runs yet. ``command``: program and arguments."""
        self.state = "stopped"
        self.failures = 0
        self.was_killed = False
        """Whether :meth:`stop` had to kill it: what it left is for the next start to mend."""
        self._safe_offset = -1
        self._moved_s = 0.0
        self._hung_count = 0
        self._is_hung = False
        self._has_indexed = False
        """Whether the process that runs brought something into the index files."""
        self._command: Final = tuple(command)
        self._waits_s: Final = waits_s
        self._clock: Final = clock
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: Final = asyncio.Event()

    def start(self) -> None:
        """Run it from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def watch(self, safe_offset: int, log_end: int) -> None:
        """Kill it if it hangs. To be called every few seconds.

        ``safe_offset``: how far index files are; ``log_end``: how far they could be.
        """
        now_s, process = self._clock(), self._process
        if safe_offset != self._safe_offset or safe_offset >= log_end or process is None:
            if safe_offset > self._safe_offset >= 0:
                self._hung_count, self._has_indexed = 0, True
            self._safe_offset, self._moved_s = safe_offset, now_s
            return
        allowed_s = HUNG_S if self._has_indexed else HUNG_STARTING_S
        allowed_s = min(allowed_s * 2**self._hung_count, limits.MAX_BUILDER_HUNG_S)
        if now_s - self._moved_s > allowed_s and process.returncode is None and not self._is_hung:
            self._hung_count += 1
            self._is_hung = True
            _kill(process)

    async def stop(self, within_s: float = STOP_S) -> None:
        """End it: by the end of its input, or killed ``within_s`` later. Once is enough."""
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
            if process is not None and process.returncode is None:
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
        """Run it until it ends; return the last line that it said about that.

        :raises OSError: when it cannot be started.
        """
        # In a session of its own a terminal's Ctrl-C is for the broker, which then stops it.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        if self._ending.is_set() and process.stdin is not None:
            process.stdin.close()
        self._moved_s, self._is_hung, self._has_indexed = self._clock(), False, False
        said, _, code = await asyncio.gather(
            _last_line(process.stderr), self._hear(process), process.wait()
        )
        self._process = None
        if self._is_hung:
            return "it hung: nothing came into the index files, though there was something to index"
        return said or f"exit code {code}"

    async def _hear(self, process: Process) -> None:
        """Note when it says that it is ready."""
        async for line in _lines(process.stdout):
            if line.startswith("ready"):
                self.state = "running"


def _kill(process: Process) -> None:
    """Kill it with the JVM and its workers: it leads a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _last_line(stream: asyncio.StreamReader | None) -> str:
    last = ""
    async for line in _lines(stream):
        last = line or last
    return last


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    """Return the lines of a pipe, each cut to a bounded length."""
    assert stream is not None  # noqa: S101 - it is a pipe
    rest = b""
    while block := await stream.read(65_536):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")[:_LINE_CHARACTERS].strip()
        rest = rest[-_LINE_CHARACTERS:]
    yield rest.decode("utf-8", "replace").strip()

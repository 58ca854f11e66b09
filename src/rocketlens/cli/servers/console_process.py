"""Runs the console of ``rocketlens serve`` as a process, so that searches never block the broker.

The process ends when its standard input ends, even if the server is killed. `serve` imports this
module when it runs, because importing asyncio is slow.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from rocketlens.broker.life.index_process import OWN_LINE, complaint_of, pipe_lines
from rocketlens.errors import BadInput
from rocketlens.net.event_loop import SOCKET_VARIABLE, within

_log: Final = logging.getLogger("rocketlens.server")
_READY: Final = "ready: "
_STOP_S: Final = 4.0
"""Seconds for running requests and jobs when the servers stop."""


class ConsoleProcess:
    """Runs a console until the servers stop; belongs to the running event loop."""

    def __init__(self, bind: str, users: str | None) -> None:
        """Listen on ``[IP:]PORT``; `users` is a users file."""
        named = () if users is None else ("--users", users)
        self._options: Final = ("--bind", bind, *named)
        self._process: Process | None = None
        self._complaint: asyncio.Task[str] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, name_server: str) -> str:
        """Start the console of a name server's cluster; return its address once it is ready.

        :raises BadInput: if it cannot be started, with the error that it printed.
        """
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "rocketlens.main", "console", "--until-stdin-ends"),
            *("--namesrv", name_server, *self._options),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Ctrl-C in a terminal reaches only the servers, which then stop the console.
            start_new_session=True,
            # Only the servers notify systemd.
            env={name: value for name, value in os.environ.items() if name != SOCKET_VARIABLE},
        )
        self._complaint = asyncio.create_task(complaint_of(process.stderr, "console"))
        async for line in pipe_lines(process.stdout):
            if line.startswith(_READY):
                self._watch = asyncio.create_task(self._report_end(process))
                return line.removeprefix(_READY).partition(",")[0]
        code = await process.wait()
        why = (await self._complaint).removeprefix(OWN_LINE)
        raise BadInput(f"--console: {why or f'the console ended with exit code {code}'}")

    async def stop(self, hurried: asyncio.Event) -> None:
        """Close its input, and kill it after `_STOP_S` seconds or once `hurried` is set."""
        process = self._process
        if process is None:
            return
        if self._watch is not None:
            self._watch.cancel()
        if process.stdin is not None:
            process.stdin.close()
        await within(process.wait(), _STOP_S, hurried)
        if process.returncode is None:
            process.kill()
            await process.wait()
        if self._complaint is not None:
            await self._complaint

    async def _report_end(self, process: Process) -> None:
        code = await process.wait()
        why = await self._complaint if self._complaint is not None else ""
        _log.error("the console ended: %s; the servers continue", why or f"exit code {code}")

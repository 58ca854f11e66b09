"""The event loop of a server: uvloop if it is installed, otherwise asyncio's.

Under systemd with ``Type=notify``, a server sends its state as a datagram to the socket in
``NOTIFY_SOCKET``. Source: ``sd_notify(3)``.
"""

import asyncio
import faulthandler
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from rocketlens import limits

MAX_HUNG_STOP_S: Final = 25.0
"""Seconds from a signal to the end of a server with a hanging disk. Kubernetes kills after 30."""
T = TypeVar("T")

_log: Final = logging.getLogger("rocketlens.server")

SWITCH_INTERVAL_S: Final = 0.0002
"""Seconds for which another thread may keep a server's event loop from running Python code.

Python's default of 5 ms is the time of a hundred requests, and the loop waits that long whenever it
returns from the network while a thread reads the log.
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ALLOCATION: Final = {
    _M_MMAP_THRESHOLD: 1024 * 1024,
    _M_TRIM_THRESHOLD: 4 * 1024 * 1024,
    _M_ARENA_MAX: 2,
}
"""Memory allocation of the Linux C library in a server.

Blocks of a MiB and more, such as bodies of large requests, get their own pages, which are returned
when freed. By default, after the first freed block, the library takes blocks of up to 32 MiB from
its heap, which grows by the blocks between them: under hostile requests a broker took twice the
memory. Buffers of ordinary requests are smaller. A heap for each thread would keep the thread's
largest use.
"""

CANCEL_PATIENCE_S: Final = 0.5
"""Seconds for cancelled work to end."""
SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


_ASKED: Final = threading.Event()
"""Set when a signal has requested a server of this process to stop."""
_IS_SERVER: Final = threading.Event()
_HAS_ENDED: Final = threading.Event()
_HUNG_EXIT_CODE: Final = 2
END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Requests a server to stop: the first request sets ``ended``, the second ``hurried``."""

    def __init__(self, ended: asyncio.Event | None = None) -> None:
        self.ended: Final = ended or asyncio.Event()
        self.hurried: Final = asyncio.Event()

    def ask(self, why: str = "requested") -> None:
        """Request the server to stop; a second request tells it not to wait for clients."""
        _ASKED.set()
        if self.hurried.is_set():
            return
        if self.ended.is_set():
            self.hurried.set()
            _log.info("stops without waiting for clients: %s", why)
            _end_process_after(limits.MAX_STOP_S)
        else:
            _log.info("stopping: %s", why)
            notify(STOPPING)
            _end_process_after(MAX_HUNG_STOP_S)
        self.ended.set()


def _end_process_after(wait_s: float) -> None:
    """End the process of a server if it still runs after ``wait_s`` seconds.

    A thread waits for that, because the event loop may hang in a call to the disk.
    """

    def wait() -> None:
        if _HAS_ENDED.wait(wait_s):
            return
        _log.error(
            "the stop took longer than %g s, a disk or a name server may not answer: the process "
            "ends as after a kill, and the store is recovered at the next start",
            wait_s,
        )
        faulthandler.dump_traceback()
        # The log file may be on the hanging disk.
        last_lines = threading.Thread(target=logging.shutdown, daemon=True)
        last_lines.start()
        last_lines.join(limits.MAX_UNREGISTER_S)
        os._exit(_HUNG_EXIT_CODE)

    if _IS_SERVER.is_set():
        threading.Thread(target=wait, name="rocketlens-stop", daemon=True).start()


def end_on_signals(end_event: asyncio.Event | None = None) -> StopRequest:
    """Handle SIGTERM, SIGINT and SIGHUP in the running event loop; return the events they set.

    A SIGHUP that the process was started to ignore, as by ``nohup``, stays ignored. Outside the
    main thread signals cannot be handled, so only the caller sets ``ended``.
    """
    ending = StopRequest(end_event)
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError, NotImplementedError):
        for number in END_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, ending.ask, number.name)
    return ending


async def within(
    work: Coroutine[Any, Any, T], timeout_s: float | None, cut: asyncio.Event | None = None
) -> T | None:
    """Run ``work`` for at most ``timeout_s`` seconds, and no longer than until ``cut`` is set.

    Then it is cancelled, and None is returned. Raises the errors of ``work``.
    """
    task = asyncio.get_running_loop().create_task(work)
    watch = None if cut is None else asyncio.get_running_loop().create_task(cut.wait())
    waits: set[asyncio.Task[Any]] = {task} if watch is None else {task, watch}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if watch is not None:
            watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_PATIENCE_S)
    return task.result() if task.done() and not task.cancelled() else None


def return_large_memory() -> bool:
    """Return large blocks of memory to the system when they are freed.

    Return True if the C library supports that; only that of most Linux systems does.
    """
    import ctypes

    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(set_option(option, value) for option, value in _ALLOCATION.items())


def keep_objects() -> None:
    """Exempt existing objects from garbage collection; no effect outside of :func:`run`.

    Call it after a server has loaded its tables and kernels. A full collection visits every object
    while no other thread runs: with 50,000 topics and the modules of the kernels it took up to 0.1
    s, several times a minute under load.
    """
    if _IS_SERVER.is_set():
        gc.freeze()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in a new event loop, as ``asyncio.run`` does; for a whole process.

    Sets the switch interval of threads to :data:`SWITCH_INTERVAL_S`, and the allocation of memory.
    Once a signal has stopped the server, further signals are ignored: they would change the exit
    code while everything is closed.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return_large_memory()
    _ASKED.clear()
    _HAS_ENDED.clear()
    _IS_SERVER.set()
    results: list[T] = []

    async def keep_result() -> None:
        results.append(await main)

    # Kept outside the task: asyncio and signal format the task and its result at the end, and the
    # text of a response of 512 MiB takes 4 GiB.
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            try:
                runner.run(keep_result())
            finally:
                _IS_SERVER.clear()
                if _ASKED.is_set():
                    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    finally:
        _HAS_ENDED.set()
    return results[0]


def notify(state: str) -> bool:
    """Send a state; return True if it was sent. A missing service manager is not an error."""
    path = os.environ.get(SOCKET_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    # An abstract socket starts with a zero byte.
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        # A full socket must not block the server.
        sender.settimeout(0)
        sender.sendto(state.encode(), address)
        return True
    return False

"""Threads for plain listeners, of messages and of transactions: a listener may block its thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final


class ListenerThreads:
    """Daemon threads for plain listeners: a process exits without waiting for one that hangs."""

    def __init__(self, count: int) -> None:
        """Create no thread yet; each of the first calls starts one."""
        self._count: Final = count
        self._threads = 0
        self._calls: Final[SimpleQueue[tuple[Future[object], Callable[[], object]] | None]] = (
            SimpleQueue()
        )

    async def call(self, work: Callable[[], object]) -> object:
        """Call a function in a thread, and return what it returns; of one event loop."""
        future: Future[object] = Future()
        if self._threads < self._count:
            self._threads += 1
            name = f"rocketlens-listener-{self._threads}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._calls.put((future, work))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let each thread end once it is idle; nothing may be called any more."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            future, work = given
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - its caller gets it
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del given, future, work

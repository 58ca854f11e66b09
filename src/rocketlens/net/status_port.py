"""A port for monitoring: ``/metrics`` for Prometheus, ``/livez`` and ``/readyz`` for supervisors.

``/livez`` answers 503 if a server of this process does not react within some seconds: restart it.
``/readyz`` answers 503, with the reason, if one is not ready.

It answers HTTP in its own thread and event loop, so that a hanging server is detected, and slow,
hostile or many scrapers cost clients nothing: connections, request bytes and times are bounded,
each connection gets one answer, and values are collected at most once a second. They are collected
in their server's event loop, which owns its tables.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from rocketlens import __version__
from rocketlens.errors import BadInput, WrongUse
from rocketlens.model.message import Host
from rocketlens.net.server import reason_of
from rocketlens.net.sync import LoopThread

if TYPE_CHECKING:
    from prometheus_client import Metric

MAX_STATUS_REQUEST_BYTES: Final = 8_192
"""The largest size of a request to that port."""
MAX_STATUS_CONNECTIONS: Final = 32
"""Open connections to the port for metrics and health; more are closed. RocketMQ: no limit."""
T = TypeVar("T")

_log: Final = logging.getLogger("rocketlens.server")

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_S: Final = 5.0
"""Seconds for a request to arrive."""
_RESPONSE_S: Final = 10.0
"""Seconds for a response to be read."""
_REACTION_S: Final = 5.0
"""Seconds for a server to react."""
_FRESH_S: Final = 1.0
"""Seconds for which collected values are returned again."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class StatusSource(NamedTuple):
    """The metrics and problems of a server."""

    name: str
    loop: asyncio.AbstractEventLoop | None
    """The event loop in which the functions are called; None for that of the port."""
    collect: "Callable[[], Coroutine[Any, Any, Iterable[Metric]]]"
    problems: Callable[[], Sequence[str]]
    """Returns why the server is not ready; empty if it is."""


class Reply(NamedTuple):
    """A status code and a body."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class StatusPort:
    """The port; a context manager. Any thread may open it, add sources and close it."""

    def __init__(self, address: str, port: int, *, clock: Callable[[], float] = monotonic) -> None:
        """Listen on ``port``, 0 for any free one.

        :raises BadInput: if the address cannot be bound.
        """
        self._sources: Final[list[StatusSource]] = []
        self._clock: Final = clock
        self._answering: Final[set[asyncio.Task[None]]] = set()
        self._collected: tuple[float, Reply] | None = None
        self._thread: Final = LoopThread("rocketlens-status")
        try:
            self._server: Final = self._thread.run(self._listen(address, port))
        except OSError as error:
            self._thread.close()
            where = Host(address, port)
            raise BadInput(f"cannot listen on {where}: {reason_of(error)}") from None
        self.address: Final = Host(*self._server.sockets[0].getsockname()[:2])
        _log.info("metrics and health on http://%s: /metrics, /livez, /readyz", self.address)

    def add(self, source: StatusSource) -> None:
        """Answer for one more server."""
        self._sources.append(source)

    def close(self) -> None:
        with suppress(WrongUse):
            self._thread.run(self._close())
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self, address: str, port: int) -> asyncio.Server:
        # Created here, because it belongs to this loop.
        self._collecting = asyncio.Lock()
        return await asyncio.start_server(
            self._accept, address, port, limit=MAX_STATUS_REQUEST_BYTES
        )

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._answering):
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection; beyond the bound, close it at once."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio calls it in one
        self._answering.add(task)
        try:
            if len(self._answering) <= MAX_STATUS_CONNECTIONS:
                await self._answer(reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
            _log.debug("no answer on the port for metrics: %r", error)
        finally:
            self._answering.discard(task)
            # Do not wait for unread bytes.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_REQUEST_S):
            head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("ascii", "replace")
        reply = await self._reply(method, path)
        lines = (
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
            "Cache-Control: no-store",
            "Connection: close",
        )
        writer.write("\r\n".join((*lines, "", "")).encode())
        if method != b"HEAD":
            writer.write(reply.body)
        writer.write_eof()
        async with asyncio.timeout(_RESPONSE_S):
            await writer.drain()
            # Until the peer closes: an abort would discard unread bytes.
            await reader.read(1)

    async def _reply(self, method: bytes, path: str) -> Reply:
        if method not in (b"GET", b"HEAD"):
            return Reply(405 if method.isalpha() else 400, b"GET or HEAD\n")
        if path == "/metrics":
            return await self._metrics()
        if path == "/livez":
            return _verdict(await self._not_alive())
        if path == "/readyz":
            return _verdict(await self._not_ready())
        return Reply(404, b"/metrics, /livez, /readyz\n")

    async def _metrics(self) -> Reply:
        async with self._collecting:
            if self._collected and self._clock() - self._collected[0] < _FRESH_S:
                return self._collected[1]
            try:
                collected = [
                    await _in_loop_of(source, source.collect()) for source in self._sources
                ]
            except TimeoutError:
                return Reply(503, b"a server does not react\n")
            reply = Reply(200, await asyncio.to_thread(exposition, collected), _CONTENT_TYPE)
            self._collected = self._clock(), reply
            return reply

    async def _not_alive(self) -> list[str]:
        problems: list[str] = []
        for source in self._sources:
            try:
                await _in_loop_of(source, asyncio.sleep(0))
            except TimeoutError:
                problems.append(f"{source.name}: does not react")
        return problems

    async def _not_ready(self) -> list[str]:
        async def problems_of(source: StatusSource) -> Sequence[str]:
            return source.problems()

        problems = [] if self._sources else ["starting"]
        for source in self._sources:
            try:
                reasons = await _in_loop_of(source, problems_of(source))
            except TimeoutError:
                reasons = ["does not react"]
            problems.extend(f"{source.name}: {problem}" for problem in reasons)
        return problems


async def _in_loop_of(source: StatusSource, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in the event loop of a source.

    :raises TimeoutError: if it does not end within some seconds, or the loop is closed.
    """
    if source.loop is None:
        async with asyncio.timeout(_REACTION_S):
            return await work
    try:
        future = asyncio.run_coroutine_threadsafe(work, source.loop)
    except RuntimeError:
        work.close()
        raise TimeoutError from None
    async with asyncio.timeout(_REACTION_S):
        return await asyncio.wrap_future(future)


def _verdict(problems: Sequence[str]) -> Reply:
    if not problems:
        return Reply(200, b"ok\n")
    return Reply(503, "".join(f"{problem}\n" for problem in problems).encode("utf-8", "replace"))


def exposition(collected: "Iterable[Iterable[Metric]]", *, of_process: bool = True) -> bytes:
    """Return metrics as text, merged by name; ``of_process`` adds those of this process."""
    from prometheus_client import ProcessCollector, generate_latest
    from prometheus_client.core import InfoMetricFamily

    merged: dict[str, Metric] = {}
    for metric in (each for metrics in collected for each in metrics):
        first = merged.setdefault(metric.name, metric)
        if first is not metric:
            first.samples.extend(metric.samples)
    if of_process:
        version = {"version": __version__}
        merged["build"] = InfoMetricFamily("rocketlens_build", "The version.", value=version)
        with suppress(OSError):
            merged |= {each.name: each for each in ProcessCollector(registry=None).collect()}
    source: Any = SimpleNamespace(collect=merged.values)
    return generate_latest(source)

"""Serves the console over HTTP, with uvicorn."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import uvicorn

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.net.event_loop import StopRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_KEEP_ALIVE_S: Final = 30
_STOP_S: Final = 3
"""Seconds for answers that are under way when the server stops."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle none."""
        yield


@contextlib.contextmanager
def listening(bound: Host) -> Iterator[socket.socket]:
    """Return a socket that is bound to an address; port 0 is any free one.

    :raises BadInput: if it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in bound.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bound.address, bound.port))
            # At once: a program that reads that the console is ready can connect.
            listener.listen(limits.MAX_CONSOLE_CONNECTIONS)
        except OSError as error:
            raise BadInput(f"cannot listen on {bound}: {error.strerror or error}") from error
        yield listener


async def serve(app: "ASGIApp", listener: socket.socket, ending: StopRequest) -> None:
    """Serve until a stop is requested; a second request does not wait for answers."""
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            limit_concurrency=limits.MAX_CONSOLE_CONNECTIONS,
            h11_max_incomplete_event_size=limits.MAX_CONSOLE_HEAD_BYTES,
        )
    )

    async def stop() -> None:
        await ending.ended.wait()
        server.should_exit = True
        await ending.hurried.wait()
        server.force_exit = True

    stopping = asyncio.create_task(stop())
    try:
        await server.serve(sockets=[listener])
    finally:
        stopping.cancel()

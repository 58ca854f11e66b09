"""Serves the console over HTTP, with uvicorn, which the options of `run` must not cost."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import uvicorn

from rocketlens import limits
from rocketlens.console.connections import (
    KEEP_ALIVE_S,
    ConnectionRules,
    ConsoleConnection,
    ProxyNetwork,
)
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.net.event_loop import StopRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_SWEEP_S: Final = 1.0
"""Seconds between two looks for connections that take too long."""
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


async def serve(
    app: "ASGIApp",
    listener: socket.socket,
    ending: StopRequest,
    proxies: Sequence[ProxyNetwork] = (),
) -> None:
    """Serve until a stop is requested; a second request does not wait for answers.

    :param proxies: Whose X-Forwarded-For and X-Forwarded-Proto are believed.
    """
    rules = ConnectionRules(proxies)
    server = _Server(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(ConsoleConnection, rules=rules)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(map(str, proxies)),
            h11_max_incomplete_event_size=limits.MAX_CONSOLE_HEAD_BYTES,
        )
    )

    async def stop() -> None:
        await ending.ended.wait()
        server.should_exit = True
        await ending.hurried.wait()
        server.force_exit = True

    async def sweep() -> None:
        present = cast("set[ConsoleConnection]", server.server_state.connections)
        while True:
            await asyncio.sleep(_SWEEP_S)
            rules.end_slow(present)

    beside = [asyncio.create_task(stop()), asyncio.create_task(sweep())]
    try:
        await server.serve(sockets=[listener])
    finally:
        for each in beside:
            each.cancel()

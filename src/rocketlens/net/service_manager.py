"""Notices to systemd from a server that it runs with ``Type=notify``.

A datagram to the socket that ``NOTIFY_SOCKET`` names; without it nothing is sent. Source:
``sd_notify(3)``.
"""

import os
import socket
from contextlib import suppress
from typing import Final

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str) -> bool:
    """Send a state; return whether it was sent. A service manager that is gone is not an error."""
    path = os.environ.get(SOCKET_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    # An abstract socket begins with a zero byte.
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        # A full socket holds up no server.
        sender.settimeout(0)
        sender.sendto(state.encode(), address)
        return True
    return False

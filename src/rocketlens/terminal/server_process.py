"""A server as a process: how it reports that it is ready."""


def print_ready(line: str) -> None:
    """Print that a server is ready, and tell systemd if it runs the server."""
    from rocketlens.net.event_loop import READY, notify

    print(f"ready: {line}", flush=True)
    notify(READY)

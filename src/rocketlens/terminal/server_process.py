"""A server as a process: how it reports that it is ready, and how it ends."""

import os
import sys

from rocketlens.terminal.exit_code import ExitCode


def print_ready(line: str) -> None:
    """Print that a server is ready, and tell systemd if it runs the server."""
    from rocketlens.net.event_loop import READY, notify

    print(f"ready: {line}", flush=True)
    notify(READY)


def end_process() -> ExitCode:
    """Return the exit code of a server that has stopped; or end the process at once if a thread is
    still loading kernels.

    Nothing needs that thread any more, and the compiler in it would crash while the process is torn
    down around it.
    """
    import logging

    from rocketlens.store.read.kernel_loader import KERNELS

    if KERNELS.is_loading:
        sys.stdout.flush()
        # Lines of the log are written by a thread.
        logging.shutdown()
        sys.stderr.flush()
        os._exit(ExitCode.OK)
    return ExitCode.OK

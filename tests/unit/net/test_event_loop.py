"""The loop that servers run in.

What systemd is told.
"""

import gc
import platform
import socket
import subprocess
import sys

import pytest

from rocketlens.net.event_loop import (
    READY,
    SWITCH_INTERVAL_S,
    StopRequest,
    keep_objects,
    notify,
    run,
)


def test_no_thread_keeps_a_servers_loop_from_running_for_long():
    before = sys.getswitchinterval()

    async def main():
        return sys.getswitchinterval()

    try:
        assert abs(run(main()) - SWITCH_INTERVAL_S) < 1e-6
    finally:
        sys.setswitchinterval(before)


def test_a_server_does_not_collect_what_it_has_loaded_and_other_programs_collect_all():
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()

    async def main():
        keep_objects()
        return gc.get_freeze_count()

    try:
        keep_objects()
        assert gc.get_freeze_count() == frozen
        assert run(main()) > frozen + 1000
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()


class Unprintable:
    """A result whose text must not be made: it could take any amount of memory."""

    def __repr__(self):
        raise AssertionError("a text of the result was made")


def test_a_result_is_given_without_making_a_text_of_it():
    made = Unprintable()

    async def give():
        return made

    before = sys.getswitchinterval()
    try:
        assert run(give()) is made
    finally:
        sys.setswitchinterval(before)


LARGE_BLOCKS = """
import ctypes
from rocketlens.net.event_loop import return_large_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
assert return_large_memory()
large = bytes(24 << 20)
del large
heap_bytes = libc.mallinfo2().arena
kept = [bytes(2 << 20) for _ in range(8)]
assert libc.mallinfo2().arena == heap_bytes, "they are taken from the heap"
assert libc.mallinfo2().hblkhd >= 16 << 20
kept.clear()
assert libc.mallinfo2().hblkhd < 2 << 20, "they are not returned"
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_of_memory_are_returned_whatever_was_freed_before():
    # In a process of its own: it changes how all of it allocates.
    subprocess.run([sys.executable, "-c", LARGE_BLOCKS], check=True)


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        if request.param == "file":
            path = address = str(tmp_path / "notify")
        else:
            path, address = f"@{tmp_path}/notify", f"\0{tmp_path}/notify"
        listener.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def test_the_service_manager_is_told(manager):
    assert notify(READY)
    assert manager.recv(100) == b"READY=1"


def test_a_stop_is_told_once_it_is_requested(manager):
    StopRequest().ask("SIGTERM")
    assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("path", ["", "relative", "/no/such/socket", "@" + "x" * 200])
def test_without_a_service_manager_nothing_happens(path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    assert not notify(READY)

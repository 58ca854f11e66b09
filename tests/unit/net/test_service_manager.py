"""What systemd is told."""

import socket

import pytest

from rocketlens.net.event_loop import StopRequest
from rocketlens.net.service_manager import READY, notify


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

"""A console whose answers nobody reads: it keeps little of them, and serves others."""

import http.client
import json
import os
import socket
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketlens.console.room import MAX_USER_EXPORTS
from tests.support.console_users import HASH, PASSWORD
from tests.support.made_stores import Sent, make_store

COUNT = 6
BODY_BYTES = 16 << 20
"""More than the buffers of a connection take."""
MOST_GROWN_BYTES = 300 << 20
LONGEST_WAIT_S = 120


@pytest.fixture
def console(tmp_path):
    """Give the process of a console with two users, and its port."""
    sent = [Sent(keys=f"all ORDER-{n}", body=b"%06d" % n * (BODY_BYTES // 6)) for n in range(COUNT)]
    store = make_store(tmp_path / "store", sent, segment_bytes=32 << 20).path
    users = tmp_path / "users.toml"
    user = f'password = "{HASH}"\ngrants = [{{ role = "viewer" }}]\n'
    users.write_text(f"[users.li]\n{user}[users.wu]\n{user}")
    users.chmod(0o600)
    words = [sys.executable, "-m", "rocketlens", "console", "--store", str(store)]
    words += ["--users", str(users), "--bind", "127.0.0.1:0"]
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=state) as process:
        try:
            address = process.stdout.readline().split()[1].rstrip("/,")
            yield process, int(address.rpartition(":")[2])
        finally:
            process.terminate()


def head_for(name):
    return {"Authorization": "Basic " + b64encode(f"{name}:{PASSWORD}".encode()).decode()}


def asked(port, name, path):
    """Give the status and the content of an answer that is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_WAIT_S)
    connection.request("GET", path, headers=head_for(name))
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found.status, content


def unread(port, name, path):
    """Give a socket on which an answer was asked for."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(LONGEST_WAIT_S)
    made.connect(("127.0.0.1", port))
    lines = [f"GET {path} HTTP/1.1", "host: 127.0.0.1"]
    lines += [f"{key}: {value}" for key, value in head_for(name).items()]
    made.sendall("\r\n".join([*lines, "", ""]).encode())
    return made


def anonymous_bytes(process):
    """Give the memory of a process that is not of a file."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


@pytest.mark.slow
def test_unread_exports_and_bodies_of_one_user_take_little_memory_and_no_turn_of_others(
    console, record_property
):
    process, port = console
    for path in ("search?q=ORDER-1", "export?q=ORDER-1", "message/store/Orders/-/0/1"):
        assert asked(port, "li", f"/api/{path}")[0] == 200
    before = anonymous_bytes(process)
    paths = ["/api/export?q=all"] * 30
    paths += [f"/api/message/store/Orders/-/0/{n}/body" for n in range(COUNT)] * 10
    with ExitStack() as opened:
        waiting = [opened.enter_context(unread(port, "li", path)) for path in paths]
        statuses = [int(each.recv(12)[9:]) for each in waiting]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) == MAX_USER_EXPORTS
        grown = anonymous_bytes(process) - before
        status, content = asked(port, "wu", "/api/search?q=ORDER-1")
        assert (status, len(json.loads(content)["messages"])) == (200, 1)
        assert asked(port, "wu", "/api/message/store/Orders/-/0/1/body")[0] == 200
    record_property("grown_mib", grown >> 20)
    assert grown < MOST_GROWN_BYTES

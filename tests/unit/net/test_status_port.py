"""The port for metrics and health: right answers, and nothing that a scraper can do to others."""

import asyncio
import http.client
import socket
import threading
from contextlib import suppress

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from rocketlens.errors import BadInput
from rocketlens.net import status_port
from rocketlens.net.status_port import StatusPort, StatusSource
from rocketlens.net.sync import LoopThread
from tests.support.patience import PATIENCE_S
from tests.unit.net.loopback import until


class Server:
    """A server that says what a test wants, in a thread of its own."""

    def __init__(self, name="broker x"):
        self.name = name
        self.found = []
        self.collected = 0
        self.thread = LoopThread("server")

    async def source(self):
        return StatusSource(self.name, asyncio.get_running_loop(), self.collect, lambda: self.found)

    async def collect(self):
        self.collected += 1
        gauge = GaugeMetricFamily("rocketlens_connections", "Open.", labels=["node_type"])
        gauge.add_metric([self.name], 3)
        counter = CounterMetricFamily("rocketlens_refused", "Refused.", labels=["node_type"])
        counter.add_metric([self.name], 4)
        return [gauge, counter]


@pytest.fixture
def server():
    made = Server()
    yield made
    made.thread.close()


@pytest.fixture
def port(server):
    with StatusPort("127.0.0.1", 0) as port:
        port.add(server.thread.run(server.source()))
        yield port


def ask(port, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection(*port.address, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def samples_of(text):
    return {
        (sample.name, sample.labels.get("node_type")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_values_of_several_servers_are_one_family_each(port, server):
    other = Server("nameserver")
    try:
        port.add(other.thread.run(other.source()))
        status, text, headers = ask(port)
    finally:
        other.thread.close()
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = samples_of(text)
    assert values["rocketlens_connections", "broker x"] == 3
    assert values["rocketlens_connections", "nameserver"] == 3
    assert values["rocketlens_refused_total", "broker x"] == 4
    assert values["rocketlens_build_info", None] == 1
    assert values["process_open_fds", None] > 0
    assert text.count("# TYPE rocketlens_connections gauge") == 1


def test_values_are_collected_once_a_second_however_often_they_are_asked_for(server):
    now_s = [0.0]
    with StatusPort("127.0.0.1", 0, clock=lambda: now_s[0]) as port:
        port.add(server.thread.run(server.source()))
        for _ in range(5):
            assert ask(port)[0] == 200
        assert server.collected == 1
        now_s[0] = 1.0
        assert ask(port)[0] == 200
        assert server.collected == 2


def test_ready_is_what_can_do_its_work_and_the_reason_is_told_otherwise(port, server):
    assert ask(port, "/readyz")[:2] == (200, "ok\n")
    server.found = ["messages are refused: the disk is full"]
    assert ask(port, "/readyz")[:2] == (503, "broker x: messages are refused: the disk is full\n")
    assert ask(port, "/livez")[:2] == (200, "ok\n")


def test_before_there_is_a_server_it_is_alive_and_not_ready():
    with StatusPort("127.0.0.1", 0) as port:
        assert ask(port, "/livez")[0] == 200
        assert ask(port, "/readyz")[:2] == (503, "starting\n")


def test_a_server_that_hangs_or_is_gone_is_neither_alive_nor_ready(port, server, monkeypatch):
    monkeypatch.setattr(status_port, "_REACTION_S", 0.05)
    is_over, hangs = threading.Event(), threading.Event()

    async def hang():
        hangs.set()
        is_over.wait()

    hung = server.thread.submit(hang())
    hangs.wait()
    assert ask(port, "/livez")[:2] == (503, "broker x: does not react\n")
    assert ask(port, "/readyz")[:2] == (503, "broker x: does not react\n")
    assert ask(port)[0] == 503
    is_over.set()
    hung.result()
    server.thread.close()
    assert ask(port, "/livez")[:2] == (503, "broker x: does not react\n")
    assert ask(port)[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../x", 404),
        ("POST", "/metrics", 405),
        ("G-T", "/", 400),
    ],
)
def test_what_is_not_served_is_refused(port, method, path, status):
    assert ask(port, path, method)[0] == status


def test_a_query_is_passed_over_and_head_has_no_body(port):
    assert ask(port, "/livez?verbose=1")[0] == 200
    status, body, headers = ask(port, "/livez", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "3")


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET " + b"x" * 20_000, b"\0" * 9_000]
)
def test_garbage_is_closed_without_an_answer_or_with_a_refusal(port, sent):
    with socket.create_connection(port.address) as connection:
        connection.sendall(sent)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        received = b""
        with suppress(ConnectionError):
            received = connection.recv(100)
        assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
    assert ask(port, "/livez")[0] == 200


def test_more_connections_than_allowed_are_closed_and_those_there_stay(port, monkeypatch):
    monkeypatch.setattr("rocketlens.net.status_port.MAX_STATUS_CONNECTIONS", 3)
    silent = [socket.create_connection(port.address) for _ in range(3)]
    try:
        # Each has been accepted when it is answered.
        for each in silent:
            each.sendall(b"GET /li")
        with socket.create_connection(port.address) as one_more, suppress(ConnectionError):
            assert one_more.recv(1) == b""
        for each in silent:
            each.sendall(b"vez HTTP/1.1\r\n\r\n")
            assert each.recv(12) == b"HTTP/1.1 200"
    finally:
        for each in silent:
            each.close()


def test_a_request_that_does_not_arrive_and_an_answer_that_is_not_taken_end(
    port, server, monkeypatch
):
    monkeypatch.setattr(status_port, "_REQUEST_S", 0.05)
    monkeypatch.setattr(status_port, "_RESPONSE_S", 0.05)
    with socket.create_connection(port.address) as slow:
        slow.sendall(b"GET /metr")
        with suppress(ConnectionError):
            assert slow.recv(1) == b""

    async def much():
        gauge = GaugeMetricFamily("large", "Large.", labels=["name"])
        for number in range(10_000):
            gauge.add_metric([f"{number:0500}"], 1)
        return [gauge]

    server.collect = much
    port.add(server.thread.run(server.source()))
    with socket.create_connection(port.address) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        received = len(deaf.recv(1))
        # Everything else stays unread until the other end gives up.
        port._thread.run(until(lambda: not port._answering))
        with suppress(ConnectionError):
            while block := deaf.recv(1 << 20):
                received += len(block)
        assert received < 5_000_000


def test_a_port_that_is_taken_is_refused_with_its_address(port):
    with pytest.raises(BadInput, match=f"cannot listen on {port.address}: "):
        StatusPort(*port.address)

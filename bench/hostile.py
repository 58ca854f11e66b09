"""Latencies of an honest client during attacks, on both event loops.

``rocketlens serve`` and each attack run in processes of their own. The honest client is a producer
that sends one message after another, and asks the name server for a route now and then. Run as a
program, this module is an attack: see `ATTACKS`.
"""

import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from rocketlens.wire.connection import Connection, encode_command

READY = re.compile(r"ready: name server (\S+), broker (\S+) ")
TOPIC = "HostileBench"
LOOPS = {"uvloop": "", "asyncio": "sys.modules['uvloop'] = None; "}
PROGRAM = "import sys; {}from rocketlens.main import main; sys.exit(main())"
ROUTE_EVERY = 10
"""Sends between two questions for a route."""
TIMEOUT_S = 20.0
FRAME_BYTES = 16 * 1024 * 1024 - 4096
MIN_SAMPLES = 100


class Latencies(NamedTuple):
    """Milliseconds of an honest client."""

    sends: list[float]
    routes: list[float]

    @property
    def worst_p99(self) -> float:
        return max(p99(self.sends), p99(self.routes))


def p99(samples: list[float]) -> float:
    """Return the 99th percentile; the largest value of fewer than 100."""
    if len(samples) < MIN_SAMPLES:
        return max(samples)
    return statistics.quantiles(samples, n=100)[98]


class Peer:
    """A connection that sends frames and reads answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection: Connection[int] = Connection()

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        self.socket.sendall(self.connection.request(code, fields, body, context=0)[1])
        while True:
            received = self.socket.recv(1 << 18)
            if not received:
                raise ConnectionError("the server closed the connection")
            for event in self.connection.receive(received):
                return event.command  # type: ignore[union-attr]


def send_fields(topic: str = TOPIC) -> dict[str, str]:
    return {
        "a": "bench",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "KEYS\x01k\x02",
        "j": "0",
        "k": "false",
    }


# Attacks: each has the addresses of name server and broker, and goes on until it is killed.


def one_way_flood(_: str, broker: str) -> None:
    """One-way sends, as fast as possible."""
    peer = Peer(broker)
    peer.socket.settimeout(None)
    frame = encode_command(RemotingCommand(310, 1, ONE_WAY_FLAG, None, send_fields(), b"x" * 100))
    while True:
        peer.socket.sendall(frame * 1000)


def in_flight(_: str, broker: str, count: int = 10_000) -> None:
    """Sends, 10,000 of them in flight."""
    peer = Peer(broker)
    peer.socket.settimeout(None)
    room = threading.Semaphore(count // 100)
    answered = 0

    def read() -> None:
        nonlocal answered
        while received := peer.socket.recv(1 << 18):
            before = answered
            answered += len(peer.connection.receive(received))
            for _ in range(answered // 100 - before // 100):
                room.release()

    threading.Thread(target=read, daemon=True).start()
    while True:
        room.acquire()
        requests = [
            peer.connection.request(310, send_fields(), b"x" * 100, context=0)[1]
            for _ in range(100)
        ]
        peer.socket.sendall(b"".join(requests))


def unread_questions(_: str, broker: str, connections: int = 1) -> None:
    """Code 28, 1,000 pipelined requests whose answers are not read."""
    frame = encode_command(RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO), 1))
    while True:
        peers = [Peer(broker) for _ in range(connections)]
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends:
            for peer in peers:
                peer.socket.settimeout(0.01)
                with suppress(OSError):
                    peer.socket.sendall(frame * 1000)
        for peer in peers:
            peer.socket.close()


def many_unread_questions(namesrv: str, broker: str) -> None:
    """The same on 50 connections."""
    unread_questions(namesrv, broker, 50)


def large_json(namesrv: str, _: str, body: bytes | None = None) -> None:
    """Registrations (103) of 16 MiB of JSON."""
    entry = (
        '"{0}":{{"attributes":{{}},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":'
        '"SINGLE_TAG","topicName":"{0}","topicSysFlag":0,"writeQueueNums":8}}'
    )
    if body is None:
        entries = ",".join(entry.format(f"t{n:06}") for n in range(FRAME_BYTES // 175))
        body = (
            '{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,'
            f'"timestamp":1}},"topicConfigTable":{{{entries[: FRAME_BYTES - 300]}'
        ).encode()
        body = body[: body.rindex(b',"t')] + b'}},"filterServerList":[]}'
    fields = {
        "brokerName": "hostile",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:2",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    while True:
        with suppress(OSError):
            Peer(namesrv).ask(int(RequestCode.REGISTER_BROKER), fields, body)


def odd_json(namesrv: str, broker: str) -> None:
    """Registrations of 16 MiB of JSON whose keys have no quotes."""
    members = ",".join(f"{n}:{n}" for n in range(1_000_000, 1_000_000 + FRAME_BYTES // 16 - 64))
    large_json(namesrv, broker, f'{{"x":{{{members}}}}}'.encode())


def flat_json(namesrv: str, broker: str) -> None:
    """Registrations of 16 MiB of empty lists."""
    large_json(namesrv, broker, b'{"x":[' + b"[]," * (FRAME_BYTES // 3 - 64) + b"[]]}")


def topic_json(namesrv: str, _: str) -> None:
    """Registrations of a topic (217) with 16 MiB of JSON."""
    queue = '{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}'
    queues = ",".join([queue] * (FRAME_BYTES // len(queue) - 200_00))
    body = f'{{"brokerDatas":[],"queueDatas":[{queues}]}}'.encode()
    while True:
        with suppress(OSError):
            Peer(namesrv).ask(217, {"topic": "hostile"}, body)


def heartbeats(_: str, broker: str) -> None:
    """Heartbeats of 1 MiB, ten at once."""
    groups = ",".join(f'{{"groupName":"g{n:05}{"x" * 60}"}}' for n in range(11_000))
    body = f'{{"clientID":"c","producerDataSet":[{groups}]}}'.encode()
    peer = Peer(broker)
    while True:
        requests = [peer.connection.request(34, {}, body, context=0)[1] for _ in range(9)]
        peer.socket.sendall(b"".join(requests))
        peer.ask(34, {}, body)


ATTACKS: dict[str, Callable[[str, str], None]] = {
    "one-way flood": one_way_flood,
    "10,000 sends in flight": in_flight,
    "unread code 28": unread_questions,
    "unread code 28, 50 connections": many_unread_questions,
    "16 MiB of topics, 103": large_json,
    "16 MiB of unquoted keys, 103": odd_json,
    "16 MiB of empty lists, 103": flat_json,
    "16 MiB of queues, 217": topic_json,
    "1 MiB heartbeats": heartbeats,
}


@contextmanager
def served(directory: Path, loop: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Run ``rocketlens serve`` on one of the loops; yield both addresses and the process."""
    command = [sys.executable, "-c", PROGRAM.format(LOOPS[loop]), "serve", "--home", str(directory)]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--index-builder", "inline"]
    with (directory / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        ready = READY.match(process.stdout.readline() if process.stdout else "")
        if ready is None:
            raise RuntimeError((directory / "serve.log").read_text())
        yield ready[1], ready[2], process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def attacking(name: str, namesrv: str, broker: str) -> Iterator[None]:
    """Run an attack, or none."""
    if name not in ATTACKS:
        yield
        return
    command = [sys.executable, "-m", "bench.hostile", name, namesrv, broker]
    attack = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        # It has begun when it has done what takes it long: to make its bodies.
        time.sleep(2.0)
        yield
    finally:
        attack.kill()
        attack.wait()


def latencies(namesrv: str, broker: str, seconds: float) -> Latencies:
    """Send and query for `seconds`; a missing answer counts with its time-out."""
    sends: list[float] = []
    routes: list[float] = []
    ends = time.monotonic() + seconds
    peers = {broker: Peer(broker), namesrv: Peer(namesrv)}
    number = 0
    while time.monotonic() < ends:
        number += 1
        is_route = number % ROUTE_EVERY == 0
        address, taken = (namesrv, routes) if is_route else (broker, sends)
        begun = time.perf_counter()
        try:
            if is_route:
                peers[address].ask(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), {"topic": TOPIC})
            else:
                peers[address].ask(310, send_fields(), b"x" * 100)
        except OSError:
            peers[address] = Peer(address)
        taken.append((time.perf_counter() - begun) * 1000)
    return Latencies(sends, routes or [0.0])


def measure(
    directory: Path, loop: str, seconds: float, chosen: list[str]
) -> Iterator[tuple[str, Latencies]]:
    """Measure the quiet server, then each attack."""
    directory.mkdir(parents=True, exist_ok=True)
    with served(directory, loop) as (namesrv, broker, _):
        latencies(namesrv, broker, 1.0)
        for name in ("quiet", *chosen):
            with attacking(name, namesrv, broker):
                yield name, latencies(namesrv, broker, seconds)


def seconds_to_stop(directory: Path, loop: str, floods: int) -> float:
    """Return the seconds of SIGTERM during `count` one-way floods."""
    directory.mkdir(parents=True, exist_ok=True)
    with served(directory, loop) as (namesrv, broker, process):
        command = [sys.executable, "-m", "bench.hostile", "one-way flood", namesrv, broker]
        attacks = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(floods)]
        try:
            time.sleep(3.0)
            begun = time.monotonic()
            process.terminate()
            process.wait()
            return time.monotonic() - begun
        finally:
            for each in attacks:
                each.kill()
                each.wait()


if __name__ == "__main__":
    os.nice(5)
    ATTACKS[sys.argv[1]](sys.argv[2], sys.argv[3])

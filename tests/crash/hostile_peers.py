"""Clients that do their worst, in a process of their own: ``python hostile_peers.py PORT SEED``.

Each attack has one connection or some, lasts a moment and begins again; several go on at once. The
process ends when its input does.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from contextlib import suppress

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import encode_command
from tests.support.broker_world import properties_of, send_fields, text_of

MIB = 1024 * 1024
ATTACKS_AT_ONCE = 3
LASTS_S = 2.0
ONE_WAY = 2
TOPIC = "Hostile"


def request(code, fields, body=b"", *, flag=0, opaque=1):
    """The bytes of one request."""
    texts = {name: text_of(value) for name, value in fields.items() if value is not None}
    return encode_command(RemotingCommand(int(code), opaque, flag, None, texts, body))


def send_request(flag=0):
    properties = properties_of(UNIQ_KEY="F" * 32, KEYS="hot")
    return request(
        RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, properties), bytes(200), flag=flag
    )


def query_tags():
    fields = {"topic": TOPIC, "key": "absent", "maxNum": 64, "indexType": "T"}
    times = {"beginTimestamp": 0, "endTimestamp": 2**62}
    return request(RequestCode.QUERY_MESSAGE, fields | times)


def query_hot_key():
    fields = {"topic": TOPIC, "key": "hot", "maxNum": 64}
    times = {"beginTimestamp": 0, "endTimestamp": 2**62}
    return request(RequestCode.QUERY_MESSAGE, fields | times)


def heartbeat(randomness, size):
    groups = [{"groupName": f"g{randomness.randrange(10**9)}"} for _ in range(size // 40)]
    body = json.dumps({"clientID": "hostile", "producerDataSet": groups}).encode()
    return request(RequestCode.HEART_BEAT, {}, body)


class Attacks:
    """What one thread does, one after the other, in an order of its own."""

    def __init__(self, port, seed):
        self.address = ("127.0.0.1", port)
        self.randomness = random.Random(seed)

    def connect(self):
        return socket.create_connection(self.address, 10)

    def pour(self, content, lasts_s=LASTS_S):
        """Send the same again and again, and read nothing."""
        with self.connect() as peer:
            peer.settimeout(0.2)
            until_s = time.monotonic() + lasts_s
            while time.monotonic() < until_s:
                with suppress(TimeoutError):
                    peer.sendall(content)

    def one_way_flood(self):
        self.pour(send_request(flag=ONE_WAY) * 100)

    def sends_in_flight(self):
        self.pour(send_request() * 1_000)

    def unread_figures(self):
        self.pour(request(RequestCode.GET_BROKER_RUNTIME_INFO, {}) * 1_000)

    def tag_scans(self):
        self.pour(query_tags() * 200)

    def hot_keys(self):
        self.pour(query_hot_key() * 200)

    def many_groups(self):
        self.pour(heartbeat(self.randomness, MIB // 2))

    def large_frames(self):
        head = struct.pack(">ii", 15 * MIB, 100)
        with self.connect() as peer:
            peer.sendall(head + bytes(10 * MIB))

    def many_connections(self):
        peers = [self.connect() for _ in range(200)]
        for peer in peers:
            peer.close()

    def garbage(self):
        for _ in range(50):
            with self.connect() as peer:
                peer.sendall(self.randomness.randbytes(self.randomness.randrange(1, 2_000)))

    def run(self, ended):
        kinds = (
            self.one_way_flood,
            self.sends_in_flight,
            self.unread_figures,
            self.tag_scans,
            self.hot_keys,
            self.many_groups,
            self.large_frames,
            self.many_connections,
            self.garbage,
        )
        while not ended.is_set():
            # The broker may end any connection, and refuse any.
            with suppress(OSError):
                self.randomness.choice(kinds)()


def main():
    port, seed = map(int, sys.argv[1:])
    ended = threading.Event()
    threads = [
        threading.Thread(target=Attacks(port, seed + number).run, args=(ended,))
        for number in range(ATTACKS_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()

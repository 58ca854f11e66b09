"""Pulls that our broker holds, all for one queue: their memory, and the CPU of waking them."""

import os
import selectors
import socket
import statistics
from collections.abc import Iterator
from pathlib import Path

from bench.broker import anonymous_mib, our_broker
from bench.report import goal, table
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.client.send.message import Message
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import (
    PULL_MESSAGE,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
)
from rocketlens.wire.connection import decode_command, encode_command
from rocketlens.wire.frame import FrameSplitter

CONNECTIONS, PULLS_OF_EACH, ROUNDS = 1_000, 10, 4
WANTED_MIB = 100
TOPIC, GROUP = "BenchHeld", "TOOLS_CONSUMER"


def report(directory: Path) -> Iterator[str]:
    """Hold 10,000 pulls, and wake all of them by one message, several times.

    Memory includes that of the connections, and of modules that the broker loads meanwhile.
    """
    count = CONNECTIONS * PULLS_OF_EACH
    with our_broker(directory) as ours, SyncProducer(ours.namesrv) as producer:
        with SyncMQAdmin(ours.namesrv) as admin:
            admin.create_topic(TOPIC, 1)
        (queue,) = producer.write_queues(TOPIC)
        sent = producer.send(Message(TOPIC, bytes(100)), queue=queue)
        host, port = OffsetMessageId.decode(sent.offset_msg_id).store_host
        before = anonymous_mib(ours.process)
        peers = [socket.create_connection((host, port)) for _ in range(CONNECTIONS)]
        seconds, mib = [], []
        for offset in range(1, ROUNDS + 1):
            _pull(peers, offset)
            mib.append(anonymous_mib(ours.process) - before)
            began = _cpu_seconds(ours.process)
            producer.send(Message(TOPIC, bytes(100)), queue=queue)
            _read(peers, [PULLS_OF_EACH] * CONNECTIONS)
            seconds.append(_cpu_seconds(ours.process) - began)
        for each in peers:
            each.close()
    rows = [(f"{count:,}", f"{max(mib):.0f}", f"{statistics.median(seconds) * 1e6 / count:.0f}")]
    yield from table(("held pulls", "MiB", "CPU us each, to wake them"), rows)
    text = f"{count:,} held pulls of {CONNECTIONS:,} connections: {max(mib):.0f} MiB"
    yield goal(is_met=max(mib) < WANTED_MIB, text=f"{text}, wanted under {WANTED_MIB}")


def _pull(peers: list[socket.socket], offset: int) -> None:
    """Send pulls, then a request on each connection, whose answer shows that they are held."""
    header = PULL_MESSAGE.request.encode(
        PullMessageRequest(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=0,
            queue_offset=offset,
            max_message_nums=32,
            sys_flag=SUSPEND_FLAG | SUBSCRIPTION_FLAG,
            suspend_timeout_ms=600_000,
            subscription="*",
        )
    )
    pulls = b"".join(
        encode_command(RemotingCommand(RequestCode.PULL_MESSAGE, number, ext_fields=header))
        for number in range(PULLS_OF_EACH)
    )
    last = encode_command(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, PULLS_OF_EACH))
    for each in peers:
        each.sendall(pulls + last)
    _read(peers, [1] * len(peers))


def _read(peers: list[socket.socket], wanted: list[int]) -> None:
    """Read `count` successful answers of each connection."""
    left = dict(zip(peers, wanted, strict=True))
    splitters = {each: FrameSplitter() for each in peers}
    with selectors.DefaultSelector() as selector:
        for each in peers:
            selector.register(each, selectors.EVENT_READ)
        while left:
            for key, _ in selector.select():
                peer: socket.socket = key.fileobj  # type: ignore[assignment]  # as registered
                for frame in splitters[peer].feed(peer.recv(1 << 20)):
                    code = decode_command(frame).code
                    if code != ResponseCode.SUCCESS:
                        raise ValueError(f"the broker answered {code}")
                    left[peer] -= 1
                if not left[peer]:
                    selector.unregister(peer)
                    del left[peer]


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

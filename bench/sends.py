"""Processor time of a message at our broker, over a raw socket, with 1,000 in flight.

Sends alone, signed sends, and batches of 32. The time is that of all threads of the broker's
process, from schedstat, and therefore comparable on a busy machine.
"""

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.history import Row
from bench.report import goal, table
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.command import RemotingCommand
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.support.binary_header import encode_command

IN_FLIGHT = 1_000
AT_ONCE = 100
QUEUES = 4
BODY = b"x" * 100
BATCH_MEMBERS = 32
SECRET = "bench-secret"  # noqa: S105 - of no broker but the one below
ACCOUNT = (
    f"accounts:\n- {{accessKey: bench-app, secretKey: {SECRET}, topicPerms: [BenchTopic=PUB]}}\n"
)
GOAL_US = 12.0
LOADED_SECONDS = 2.0


def properties_of(number: int, *, is_plain: bool = True) -> str:
    """Return the properties of a message; some batch members are not plain, with a delay of 0."""
    key = f"UNIQ_KEY\x017F000001{number:024X}\x02"
    text = f"KEYS\x01order-{number:08d}\x02{key}WAIT\x01true\x02TAGS\x01paid\x02"
    return text if is_plain else f"{text}DELAY\x010\x02"


def frame(code: int, number: int, codec: int, body: bytes, **changes: str) -> bytes:
    """Return a send to one of four queues, as a Java producer of 5.5 writes it."""
    fields = {
        "a": "bench-producers",
        "b": "BenchTopic",
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(number % QUEUES),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": properties_of(number),
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
        **changes,
    }
    if "AccessKey" in fields:
        fields = signed_fields(fields, body, fields["AccessKey"], SECRET)
    return encode_command(RemotingCommand(code, number, 0, None, fields, body), codec)


def frames(count: int, codec: int, *, is_plain: bool, **changes: str) -> list[bytes]:
    """Return ``count`` sends to four queues by turns."""
    sent = []
    if codec and not is_plain:
        changes["z"] = ""
    for number in range(count):
        one = frame(310, number, codec, BODY, **changes)
        if not codec and not is_plain:
            head = one.index(b"{") + 1
            lengths = (int.from_bytes(one[at : at + 4]) + 1 for at in (0, 4))
            one = b"".join(each.to_bytes(4) for each in lengths) + b"{ " + one[head:]
        sent.append(one)
    return sent


def batches(count: int, *, is_plain: bool) -> list[bytes]:
    """Return ``count`` messages of 200 bytes in batches."""
    sent = []
    for number in range(count // BATCH_MEMBERS):
        first = number * BATCH_MEMBERS
        texts = (
            properties_of(first + member, is_plain=is_plain) for member in range(BATCH_MEMBERS)
        )
        body = batch_body.encode(BatchMember(0, 2 * BODY, text.encode()) for text in texts)
        sent.append(frame(320, number, 0, body, i="WAIT\x01true\x02", m="true"))
    return sent


def thread_seconds(process: int) -> dict[str, float]:
    """Return the processor time of each thread of a process, by number and name."""
    seconds = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        name = (task / "comm").read_text().strip()
        seconds[f"{task.name} {name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def used_seconds(before: dict[str, float], after: dict[str, float]) -> float:
    """Return the time used in between by threads that still run."""
    return sum(seconds - before.get(name, 0.0) for name, seconds in after.items())


def wait_until_idle(process: int) -> None:
    """Wait until an unused broker uses no CPU."""
    is_idle = False
    while not is_idle:
        before = thread_seconds(process)
        time.sleep(LOADED_SECONDS)
        is_idle = used_seconds(before, thread_seconds(process)) < 0.02 * LOADED_SECONDS


class Sender:
    """Sends over one raw socket; answers are counted by their lengths, not parsed."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.answered = 0

    def send(self, parts: list[bytes]) -> None:
        """Send all, and wait for all answers."""
        room = threading.Semaphore(IN_FLIGHT // AT_ONCE)
        self.answered = 0

        def read() -> None:
            held = b""
            while self.answered < len(parts):
                held += self.socket.recv(1 << 18)
                answered = before = self.answered
                position = 0
                while len(held) - position >= 4:
                    length = int.from_bytes(held[position : position + 4])
                    if len(held) - position < 4 + length:
                        break
                    position += 4 + length
                    answered += 1
                held = held[position:]
                self.answered = answered
                for _ in range(answered // AT_ONCE - before // AT_ONCE):
                    room.release()

        reader = threading.Thread(target=read)
        reader.start()
        for start in range(0, len(parts), AT_ONCE):
            room.acquire()
            self.socket.sendall(b"".join(parts[start : start + AT_ONCE]))
        reader.join()


def measure(directory: Path, count: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return microseconds per message by way and kind, a value for each round, by turns.

    Requests that no RocketMQ client writes (a space or another field in the header, a delay of 0 in
    a batch) are handled one by one.
    """
    figures: dict[tuple[str, str], list[float]] = {}
    namesrv = OurNameServer()
    settings = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000}
    conf = directory / "home" / "conf" / "plain_acl.yml"
    conf.parent.mkdir(parents=True)
    conf.write_text(ACCOUNT)
    conf.chmod(0o600)
    signed = {"aclEnable": "true", "rocketmqHome": directory / "home"}
    address = str(namesrv.address)
    brokers = [
        OurBroker(directory / "open", address, **settings),
        OurBroker(directory / "signed", address, **settings, **signed),
    ]
    of_user = {"AccessKey": "bench-app"}
    sent: list[dict[tuple[str, str], list[bytes]]] = [{}, {}]
    for way in ("one by one", "together"):
        is_plain = way == "together"
        sent[0][way, "JSON"] = frames(count, 0, is_plain=is_plain)
        sent[0][way, "binary"] = frames(count, 1, is_plain=is_plain)
        sent[0][way, "batches"] = batches(count, is_plain=is_plain)
        sent[1][way, "signed"] = frames(count, 0, is_plain=is_plain, **of_user)
    try:
        senders = [Sender(broker.address) for broker in brokers]
        senders[0].send(sent[0]["together", "JSON"][:1000])
        senders[1].send(sent[1]["together", "signed"][:1000])
        for broker in brokers:
            wait_until_idle(broker.process.pid)
        for _ in range(rounds):
            for sender, broker, by_name in zip(senders, brokers, sent, strict=True):
                for name, parts in by_name.items():
                    before = thread_seconds(broker.process.pid)
                    sender.send(parts)
                    used = used_seconds(before, thread_seconds(broker.process.pid))
                    figures.setdefault(name, []).append(used * 1e6 / count)
    finally:
        for broker in brokers:
            broker.kill()
        namesrv.close()
    return figures


def report(directory: Path, *, is_quick: bool) -> Iterator[str | Row]:
    """Return the lines of the section."""
    figures = measure(directory, 20_000 if is_quick else 50_000, 5)
    rows = [
        (way, kind, f"{statistics.median(values):.1f}", f"{min(values):.1f}")
        for (way, kind), values in figures.items()
    ]
    yield from table(("sends, 1,000 in flight", "kind", "us a message", "least"), rows)
    for (way, kind), values in figures.items():
        yield Row(f"sends {way}, {kind}, cpu us", values)
    for kind in ("JSON", "binary", "signed", "batches"):
        used = statistics.median(figures["together", kind])
        text = f"{kind}: {used:.1f} us of processor a message, wanted {GOAL_US}"
        yield goal(is_met=used <= GOAL_US, text=text)

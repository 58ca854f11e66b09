"""Sends and look-ups of a Java client, on our servers and on the real ones.

Both sides run all the time, and the client loads them by turns, several rounds for each kind of
load. Results are medians over the rounds. CPU is that of the broker's process per message sent, and
therefore comparable on a busy machine.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.history import Row
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.server import RemotingServer
from rocketlens.net.sync import LoopThread
from rocketlens.wire.bodies.tables import BrokerData, QueueData, TopicRouteData
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import write_body
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import PeerFailed, RocketMQPeer, reap

PROGRAM = Path(__file__).parent / "java" / "BrokerLoad.java"
TOPIC = "BenchTopic"
METRICS = ("/s", "p50 us", "p99 us", "failed")
LOOK_UPS = ("queries", "busy")
KINDS = ("sync", "async", "batch", *LOOK_UPS)
# Sent for the warm-up, too.
SENT_IN_ALL = 1.25
SEGMENT_BYTES = 1 << 30
# What RocketMQ has unless told otherwise.
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


class Running(NamedTuple):
    """A running broker: its side, name server, process and start time."""

    side: str
    namesrv: str
    process: int
    start_seconds: float


class Figures:
    """Measured values by side and by ``load metric``, one for each round."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, list[float]]] = {
            side: defaultdict(list) for side in ("ours", "theirs")
        }

    def median(self, side: str, name: str) -> float:
        return statistics.median(self.of[side][name])

    def better(self, name: str) -> float:
        """Return the ratio in our favour: above 1 is faster, or less."""
        ours, theirs = (self.median(side, name) for side in ("ours", "theirs"))
        return self._better(name, ours, theirs)

    def rows(self, section: str) -> Iterator[Row]:
        """Yield history rows: the ratio of each round, and our CPU."""
        for name, values in self.of["ours"].items():
            pairs = zip(values, self.of["theirs"][name], strict=True)
            ratios = [self._better(name, *pair) for pair in pairs]
            if any(ratios):
                yield Row(f"{section} {name}, x", ratios)
            if name.endswith("cpu us"):
                yield Row(f"{section} {name}", values)

    @staticmethod
    def _better(name: str, ours: float, theirs: float) -> float:
        better, worse = (ours, theirs) if name.endswith("/s") else (theirs, ours)
        return better / worse if worse else 0.0


class Client(NamedTuple):
    """The real Java client of one version."""

    peer: RocketMQPeer
    version: str

    def load(self, namesrv: str, count: int, *kinds: str) -> dict[str, list[float]]:
        """Run loads; return the values of `METRICS` for each."""
        said = self.peer.java(self.version, PROGRAM, namesrv, TOPIC, str(count), *kinds)
        lines = [line.split() for line in said.splitlines() if not line.startswith("#")]
        return {
            words[0]: [float(word) for word in words[1:]]
            for words in lines
            if len(words) == len(METRICS) + 1
        }


@contextmanager
def our_broker(directory: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        namesrv = OurNameServer()
        stack.callback(namesrv.close)
        began = time.monotonic()
        broker = OurBroker(directory, str(namesrv.address), **SETTINGS)
        stack.callback(reap, broker.process)
        seconds = time.monotonic() - began
        yield Running("ours", str(namesrv.address), broker.process.pid, seconds)
        broker.stop()


@contextmanager
def their_broker(directory: Path, client: Client) -> Iterator[Running]:
    began = time.monotonic()
    with client.peer.start(client.version, directory) as broker:
        seconds = time.monotonic() - began
        yield Running("theirs", broker.namesrv_address, broker.broker.pid, seconds)


def measure(client: Client, directory: Path, count: int, rounds: int) -> Figures:
    """Run every load on both brokers, by turns."""
    figures = Figures()
    with ExitStack() as stack:
        sides = [
            stack.enter_context(our_broker(directory / "ours")),
            stack.enter_context(their_broker(directory / "theirs", client)),
        ]
        for kind in KINDS:
            for _ in range(rounds):
                for running in sides:
                    _load(client, running, kind, count, figures.of[running.side])
        for running in sides:
            figures.of[running.side]["start s"].append(running.start_seconds)
            figures.of[running.side]["memory MiB"].append(anonymous_mib(running.process))
    return figures


def seconds_to_restart(directory: Path, rounds: int, *, is_killed: bool) -> float:
    """Return the median time of a restart on the store of :func:`measure`."""
    taken = []
    namesrv = OurNameServer()
    try:
        for _ in range(rounds):
            began = time.monotonic()
            broker = OurBroker(directory / "ours", str(namesrv.address), **SETTINGS)
            taken.append(time.monotonic() - began)
            if is_killed:
                broker.kill()
            else:
                broker.stop()
    finally:
        namesrv.close()
    return statistics.median(taken)


def batches_without_a_broker(client: Client, count: int, rounds: int) -> float:
    """Return messages per second in batches to a server that stores nothing: an upper bound."""
    thread, counts = LoopThread(), {"read_queue_nums": 8, "write_queue_nums": 8}
    fields = {"msgId": "0", "queueId": "0", "queueOffset": "0"}
    handlers: dict[int, Handler] = {
        **dict.fromkeys((RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT), _nothing),
        RequestCode.SEND_BATCH_MESSAGE: lambda _, __: Response(ext_fields=fields),
    }

    async def start() -> tuple[RemotingServer, str]:
        server = RemotingServer(handlers)
        address = str(server.listen("127.0.0.1", 0))
        queues = QueueData(broker_name="free", perm=6, topic_sys_flag=0, **counts)
        brokers = BrokerData(broker_name="free", broker_addrs={0: address}, cluster="free")
        route = write_body(TopicRouteData(queue_datas=(queues,), broker_datas=(brokers,)))
        handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, __: Response(body=route)
        return server, address

    server, address = thread.run(start())
    try:
        return statistics.median(
            client.load(address, count, "batch")["batch"][0] for _ in range(rounds)
        )
    finally:
        thread.run(server.stop(0))
        thread.close()


def _nothing(_: RemotingCommand, __: Channel) -> Response:
    return Response()


def failures_at_once(client: Client, directory: Path, count: int) -> int:
    """Look each message up by all three ids once its send is answered; return the failures.

    :raises PeerFailed: if the load did not end.
    """
    with our_broker(directory) as running:
        figures = client.load(running.namesrv, count, "found")
    if "found" not in figures:
        raise PeerFailed("the load of look-ups came to no end")
    return int(figures["found"][-1])


def _load(
    client: Client, running: Running, kind: str, count: int, into: dict[str, list[float]]
) -> None:
    """Run the load of one kind, and add its values under ``kind metric``."""
    before = cpu_seconds(running.process)
    # Look-ups need messages to look for.
    kinds = ("sync", kind) if kind in LOOK_UPS else (kind,)
    said = client.load(running.namesrv, count, *kinds)
    used = cpu_seconds(running.process) - before
    if kind in LOOK_UPS:
        del said["sync"]
    else:
        into[f"{kind} cpu us"].append(used * 1e6 / count / SENT_IN_ALL)
    for name, values in said.items():
        for metric, value in zip(METRICS, values, strict=True):
            into[f"{name} {metric}"].append(value)


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_mib(process: int) -> float:
    """Return the memory of a process without mapped files."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024

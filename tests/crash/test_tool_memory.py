"""Whatever a store or a cluster has in it, a command ends, says in a line why, and stays small.

Each command runs in a process of its own, and what that took at most is what the system says.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketlens.formats import commitlog_record
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.net.server import RemotingServer
from rocketlens.net.sync import LoopThread
from rocketlens.testing import cluster
from rocketlens.wire.bodies.tables import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.made_stores import Sent, make_store
from tests.support.wire_samples import COMMANDS
from tests.unit.conftest import record

MOST_MIB = 1_100
"""Clearly below 1.2 GiB, which is 1,229."""
REPOSITORY = Path(__file__).parents[2]
KEY = "bombed"
BOMBS = 64
DISPATCHED = b'{"table":{"commitLogMaxOffset":"1","dispatchBehindBytes":"0"}}'
"""The figures of a broker that has indexed all it has stored."""


# The system's figure for a child would count what its parent had when it was forked.
MEASURED = """
import atexit, sys
from pathlib import Path
from rocketlens.main import main
atexit.register(
    lambda: print(
        *(line for line in Path("/proc/self/status").open() if line.startswith("VmHWM:")),
        file=sys.stderr,
    )
)
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Ran:
    """What a command gave, and the most memory it had."""

    code: int
    err: str
    most_mib: float
    out_bytes: int
    end: str
    """Of standard output."""


@pytest.fixture
def tool(tmp_path):
    """Give ``tool(*arguments) -> Ran``, which holds every command to the bound."""

    def run(*arguments, most_mib=MOST_MIB):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
            done = subprocess.run(
                command, cwd=REPOSITORY, stdout=out, stderr=err, env=environment, check=False
            )
            size = out.seek(0, os.SEEK_END)
            out.seek(max(0, size - 300))
            end = out.read().decode("utf-8", "replace")
            err.seek(0)
            said, _, most = err.read(100_000).decode().rpartition("VmHWM:")
        done = Ran(done.returncode, said, int(most.split()[0]) / 1024, size, end)
        assert "this is a bug" not in done.err, done.err
        assert done.most_mib < most_mib, done
        return done

    return run


@pytest.fixture(scope="module")
def bomb():
    """63 MiB of zeros, in 64 KB."""
    return zlib.compress(bytes(63 << 20), 9)


@pytest.fixture(scope="module")
def bombed_cluster(bomb):
    """64 messages of 64 KB with one key, of 63 MiB of zeros each."""

    async def send(address):
        pool = ClientPool(lambda _: True)
        for number in range(BOMBS):
            named = properties_of(UNIQ_KEY=f"{number:032X}", KEYS=KEY)
            fields = send_fields("Bombs", named) | {"f": 1}
            texts = {name: text_of(value) for name, value in fields.items() if value is not None}
            answer = await pool.call(address, int(RequestCode.SEND_MESSAGE_V2), texts, bomb)
            assert answer.code == 0, answer.remark
        await pool.close()

    with cluster() as running:
        asyncio.run(send(running.broker))
        yield running


@pytest.fixture(scope="module")
def bombed_store(tmp_path_factory, bomb):
    """The same as a store."""
    messages = [Sent("Bombs", KEY, f"{n:032X}", body=bomb, sys_flag=1) for n in range(BOMBS)]
    return make_store(tmp_path_factory.mktemp("bombs"), messages, segment_bytes=16 << 20).path


BY_KEY = (KEY,)
BY_TIME = ("--topic", "Bombs", "--since", "2000-01-01")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "output", "question"),
    [
        ("store", "json", BY_KEY),
        ("store", "jsonl", BY_TIME),
        ("cluster", "table", BY_KEY),
        ("cluster", "json", BY_TIME),
        ("cluster", "jsonl", BY_KEY),
    ],
)
def test_bodies_that_grow_are_cut_to_the_newest_with_a_line(tool, request, where, output, question):
    if where == "store":
        source = "--store", request.getfixturevalue("bombed_store")
    else:
        source = "--namesrv", request.getfixturevalue("bombed_cluster").name_server
    done = tool("find", *question, *source, "-o", output)
    assert done.code == 0
    is_streamed = where == "store" and output == "jsonl" and question[0] == "--topic"
    assert ("more match: these are the newest" in done.err) == (not is_streamed)


def test_a_list_of_ids_holds_no_bodies(tool, bombed_cluster):
    where = "-n", bombed_cluster.name_server
    done = tool("mqadmin", "queryMsgByKey", *where, "-t", "Bombs", "-k", KEY, most_mib=200)
    assert done.code == 0
    assert f"{BOMBS - 1:032X}" in done.end


@pytest.mark.slow
def test_messages_are_printed_one_by_one_and_in_pieces(bombed_cluster):
    where = "-n", bombed_cluster.name_server
    command = [sys.executable, "-m", "rocketlens.main", "mqadmin", "printMsg", *where]
    with subprocess.Popen(
        [*command, "-t", "Bombs", "-d", "false"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as printing:
        # All of it would be 12 GB of numbers: the bodies of some messages will do.
        read = 0
        while read < 600 << 20:
            read += len(printing.stdout.read(1 << 20))
        status = Path(f"/proc/{printing.pid}/status").read_text(encoding="ascii")
        printing.kill()
    most_kib = int(status.partition("VmHWM:")[2].split()[0])
    assert most_kib / 1024 < 500


def test_one_of_them_is_shown(tool, bombed_store):
    for form in ("hex", "raw"):
        done = tool("show", f"{3:032X}", "--store", bombed_store, "--body", form, most_mib=400)
        assert done.code == 0
    done = tool("show", f"{3:032X}", "--store", bombed_store, "--body", "json", most_mib=400)
    assert done.code == 2
    assert "too many to show as JSON" in done.err


@contextmanager
def serving(answers):
    """Run a server that answers as told, in a thread; give its address."""
    thread = LoopThread("hostile")

    async def start():
        server = RemotingServer(answers)
        return server, str(server.listen("127.0.0.1", 0))

    server, address = thread.run(start())
    try:
        yield address
    finally:
        thread.run(server.stop(grace_s=0))
        thread.close()


def routed(route):
    """Answers of a name server that knows one topic, by anything."""
    body = write_body(route)
    info = ClusterInfo(broker_addr_table={each.broker_name: each for each in route.broker_datas})
    return {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda *_: Response(body=body),
        RequestCode.GET_BROKER_CLUSTER_INFO: lambda *_: Response(body=write_body(info)),
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda *_: Response(
            body=b'{"topicList":["T"]}'
        ),
    }


def route_of(address, brokers=1, queues=1):
    names = [f"broker-{number}" for number in range(brokers)]
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for name in names
        ),
        broker_datas=tuple(
            BrokerData(broker_name=name, broker_addrs={0: address}, cluster="C") for name in names
        ),
    )


@pytest.mark.parametrize("question", [("--topic", "T", "--since", "1h"), ("k", "--topic", "T")])
def test_a_route_of_more_queues_than_anybody_has_is_refused(tool, question):
    with serving(routed(route_of("127.0.0.1:9", brokers=2_000, queues=65_536))) as name_server:
        done = tool("find", *question, "--namesrv", name_server, most_mib=300)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert name_server in line
    assert "131072000 queues" in line


class EndlessBroker:
    """One whose queue goes on for ever: next is always the place behind, whatever is asked."""

    def __init__(self, max_offset, properties, *, is_empty=False):
        self.max_offset = max_offset
        self.properties = properties
        self.is_empty = is_empty

    def answers(self):
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda *_: Response(body=DISPATCHED),
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.GET_MAX_OFFSET: lambda *_: Response(
                ext_fields={"offset": str(self.max_offset)}
            ),
            RequestCode.GET_MIN_OFFSET: lambda *_: Response(ext_fields={"offset": "0"}),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda *_: Response(ext_fields={"offset": "0"}),
        }

    def pull(self, command, _):
        header = COMMANDS[RequestCode.PULL_MESSAGE].request.decode(command.ext_fields)
        offset = header.queue_offset
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(offset + 1),
            "minOffset": "0",
            "maxOffset": str(self.max_offset),
        }
        if self.is_empty:
            return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, fields)
        made = record(offset, queue_offset=offset, body=b"", properties=self.properties)
        return Response(ext_fields=fields, body=commitlog_record.encode(made))


LARGE = b"large\x01" + b"x" * 30_000
MANY = b"".join(b"n%04d\x01v%04d\x02" % (number, number) for number in range(2_500))


@pytest.mark.slow
@pytest.mark.parametrize("properties", [LARGE, MANY], ids=["one large property", "many properties"])
@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_a_queue_without_end_is_read_as_far_as_an_answer_can_hold(tool, properties, output):
    endless = EndlessBroker(2**62, properties)
    with serving(endless.answers()) as broker, serving(routed(route_of(broker))) as name_server:
        done = tool(
            "find", "--topic", "T", "--since", "2000-01-01", "--namesrv", name_server, "-o", output
        )
    assert done.code == 0
    assert "more match: these are the newest" in done.err


@pytest.mark.slow
def test_the_newest_of_a_queue_without_end_are_there_at_once(tool):
    endless = EndlessBroker(2**62, LARGE)
    with serving(endless.answers()) as broker, serving(routed(route_of(broker))) as name_server:
        where = ("--topic", "T", "--since", "2000-01-01", "--namesrv", name_server)
        done = tool("find", *where, "--max", "3", "-o", "jsonl", most_mib=200)
    assert done.code == 0
    assert done.end.count("\n") >= 1


def test_a_queue_of_empty_places_without_end_makes_the_answer_incomplete(tool):
    endless = EndlessBroker(2**62, b"", is_empty=True)
    with serving(endless.answers()) as broker, serving(routed(route_of(broker))) as name_server:
        where = ("--topic", "T", "--since", "2000-01-01", "--namesrv", name_server)
        done = tool("find", *where, most_mib=200)
    assert done.code == 3
    assert "nothing at 1001 consecutive offsets" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_very_many_small_messages_of_a_store_fit(tool, tmp_path, output):
    path = small_messages(tmp_path)
    for question in ((KEY, "--topic", "Small"), ("--topic", "Small")):
        done = tool("find", *question, "--store", path, "-o", output)
        assert done.code == 0
        assert done.out_bytes > 1 << 20


def small_messages(tmp_path, count=400_000):
    """Write a store of messages of 10 bytes, each with one key and a unique key."""
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    offset = 0
    with (log / f"{0:020}").open("wb") as file:
        for number in range(count):
            properties = properties_of(KEYS=KEY, UNIQ_KEY=f"{number:032X}").encode()
            made = record(
                offset,
                queue_offset=number,
                body=b"%010d" % number,
                topic="Small",
                properties=properties,
                store_timestamp_ms=1_790_000_000_000 + number,
            )
            encoded = commitlog_record.encode(made)
            file.write(encoded)
            offset += len(encoded)
        file.write(bytes(4096))
    return log.parent

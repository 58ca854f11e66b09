"""What the real tool prints of consumer groups, and what real consumers do when they are asked.

``python -m tests.peer.test_mqadmin_groups`` writes what the unit tests compare with anew.
"""

import re
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketlens import Message, MessageNotFound, SyncMQAdmin, SyncProducer, TrackType
from rocketlens.errors import BadInput, BrokerError
from rocketlens.main import main
from rocketlens.net.sync import LoopThread
from rocketlens.wire.bodies.clients import ConsumeResult
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import LOGGING_CHATTER, POLL_SECONDS, PeerFailed, RocketMQPeer, reap
from tests.support.group_world import command_lines, comparable, group_world
from tests.support.patience import PATIENCE_S

PRINTED = Path(__file__).parents[1] / "unit" / "mqadmin" / "printed"
MEMBERS = Path(__file__).parent / "java" / "GroupMembers.java"
READY_S = 300
VERSIONS = ("4.9.7", "5.5.0")


def printed_file(version):
    return PRINTED / f"groups-{version[:3]}.txt"


def real_output(peer, version):
    """What the real tool prints of each command to the cluster of fixed groups, as one text."""
    thread = LoopThread()
    world = group_world()
    cluster = thread.run(world.__aenter__())
    try:
        lines, commands = zip(*command_lines(cluster, version), strict=True)
        outputs = run_tool(peer, version, commands)
        blocks = [
            f"$ {line}\n{comparable(output, cluster)}\n"
            for line, output in zip(lines, outputs, strict=True)
        ]
    finally:
        thread.run(world.__aexit__(None, None, None))
        thread.close()
    return "".join(blocks)


def run_tool(peer, version, commands):
    """Run commands with the real tool in one process; return what each printed to stdout."""
    with tempfile.TemporaryDirectory(prefix="tool-") as home:
        tool = peer.tool(version, Path(home), with_errors=False)
        try:
            # The first one also waits for classes to be loaded, and may be too late then.
            tool.run(("topicList", *commands[0][1:3]), READY_S)
            outputs = [tool.run(tuple(words), READY_S) for words in commands]
            assert not tool.has_ended
        finally:
            tool.close()
    return ["\n".join(_without_chatter(lines)) for lines in outputs]


def _without_chatter(lines):
    return [line for line in lines if not LOGGING_CHATTER.search(line)]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_tool_prints_what_the_unit_tests_compare_with(peer, version):
    assert real_output(peer, version) == printed_file(version).read_text(encoding="utf-8")


class Members:
    """Java consumers in a process of their own, and what their listeners saw."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.is_over = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def wait_for(self, condition):
        """Wait until a condition on the lines holds."""
        with self.changed:
            self.changed.wait_for(lambda: condition(self.lines) or self.is_over, READY_S)
            if not condition(self.lines):
                raise PeerFailed("\n".join(self.lines[-30:]))

    def count(self, group, msg_id):
        """How often listeners of a group saw a message."""
        with self.changed:
            return sum(
                line.startswith(f"consumed {group} ") and line.endswith(f" {msg_id}")
                for line in self.lines
            )


@contextmanager
def members(peer, version, directory, name_server, *described):
    """Start Java consumers; they are online inside the ``with``."""
    home = directory / "members"
    home.mkdir()
    classes = peer.compiled(version, MEMBERS)
    command = peer.command(version, home, MEMBERS.stem, name_server, *described, classes=classes)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
    )
    running = Members(process)
    try:
        running.wait_for(lambda lines: "ready" in lines)
        yield running
    finally:
        reap(process)
        running.reader.join()
        process.stdin.close()
        process.stdout.close()


DESCRIBED = (
    "push,g-push,m1,T,*,ok",
    "push,g-push,m2,T,*,ok",
    "orderly,g-orderly,m1,T,*,ok",
    "pull,g-pull,m1,T,*,ok",
    "push,g-tag,m1,T,TagB,ok",
    "push,g-throw,m1,T,TagX,throw",
    "push,g-null,m1,T,TagX,null",
    "push,g-later,m1,T,TagX,later",
)
ONE, TWO = "127.0.0.1@m1", "127.0.0.1@m2"


def results_of_directly(admin, sent, seen):
    """Hand one message to each group in turn; check what came of it, and that it was handed."""
    msg_id = sent.msg_id
    for group, expected in (
        ("g-push", ConsumeResult.CR_SUCCESS),
        ("g-orderly", ConsumeResult.CR_SUCCESS),
        # Filters are not asked: the listener gets what it is handed.
        ("g-tag", ConsumeResult.CR_SUCCESS),
        ("g-throw", ConsumeResult.CR_THROW_EXCEPTION),
        ("g-null", ConsumeResult.CR_RETURN_NULL),
        ("g-later", ConsumeResult.CR_LATER),
    ):
        before = seen.count(group, msg_id)
        made = admin.consume_message_directly(group, None, "T", msg_id)
        assert (made.consume_result, made.client_id) == (expected, ONE), made
        assert made.order == (group == "g-orderly")
        assert ("the listener refuses" in (made.remark or "")) == (group == "g-throw")
        seen.wait_for(lambda _, group=group, more=before + 1: seen.count(group, msg_id) == more)
    by_offset = admin.consume_message_directly("g-push", TWO, "T", sent.offset_msg_id)
    assert (by_offset.client_id, by_offset.is_consumed) == (TWO, True)
    everyone = admin.consume_message_directly_by_all("g-push", "T", msg_id)
    assert {name: made.is_consumed for name, made in everyone.items()} == {ONE: True, TWO: True}
    with pytest.raises(BadInput, match="no push consumers"):
        admin.consume_message_directly("g-pull", None, "T", msg_id)
    with pytest.raises(BrokerError, match="not online"):
        admin.consume_message_directly("g-push", "nobody", "T", msg_id)
    with pytest.raises(MessageNotFound):
        admin.consume_message_directly("g-push", None, "T", "no-such-message")


def send_and_wait(name_server, seen):
    with SyncProducer(name_server, send_timeout_s=PATIENCE_S) as producer:
        sent = producer.send(Message("T", b"hello", tags="TagA", keys=["k1"]))
    for group in ("g-push", "g-orderly"):
        seen.wait_for(lambda _, group=group: seen.count(group, sent.msg_id) > 0)
    return sent


def wait_for_offsets(admin, sent):
    """Wait until every group has committed an offset past the message: consumers do it by time."""
    message = admin.view_message("T", sent.msg_id)
    deadline = time.monotonic() + READY_S
    while any(
        each.track_type is TrackType.NOT_CONSUME_YET for each in admin.message_track_detail(message)
    ):
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


def ours(capsys, version, words):
    capsys.readouterr()
    main(["mqadmin", "--layout", version[:3], *words])
    return capsys.readouterr().out


def varying(text):
    """The text without what differs from moment to moment."""
    text = re.sub(r"(Message Body Path: +).*/", r"\1", text)
    text = re.sub(r"spentTimeMills=\d+|timestamp\(long\)\[\d+\]|\b\d{13}/", "", text)
    text = re.sub(r"lastUpdateTimestamp=\d+|Consume TPS: [\d.]+", "", text)
    # The tool of RocketMQ 4.9 ends no line after a group; and a broker's set has its own order.
    text = text.replace("MessageTrack [", "\nMessageTrack [")
    return sorted(filter(None, text.strip("\n").splitlines()))


def commands_to(name_server, version, sent):
    topic = ["-t", "T"] if version.startswith("5") else []
    where = ["-n", name_server]
    for group in ("g-push", "g-orderly", "g-throw", "g-null", "g-pull"):
        by_id = ["queryMsgById", *where, *topic, "-i", sent.offset_msg_id]
        yield [*by_id, "-g", group, "-d", ONE]
        yield ["consumerConnection", *where, "-g", group]
    by_key = ["queryMsgByUniqueKey", *where, "-t", "T", "-i", sent.msg_id]
    yield [*by_key, "-g", "g-push", "-d", TWO]
    yield [*by_key, "-g", "g-push", "-d", "nobody"]
    yield by_key
    yield ["consumerProgress", *where, "-g", "g-push"]
    yield ["consumerStatus", *where, "-g", "g-tag"]
    yield ["getBrokerConfig", *where, "-c", "DefaultCluster"]


def compare_tools(peer, version, name_server, sent, capsys):
    commands = list(commands_to(name_server, version, sent))
    printed = run_tool(peer, version, commands)
    for words, real in zip(commands, printed, strict=True):
        assert varying(ours(capsys, version, words)) == varying(real), words


@pytest.mark.slow
@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("version", VERSIONS)
def test_our_tool_and_the_real_brokers_consumers(peer, tmp_path, capsys, monkeypatch, version):
    monkeypatch.chdir(tmp_path)
    with peer.start(version, tmp_path / "real") as broker:
        name_server = broker.namesrv_address
        with SyncMQAdmin(name_server) as admin:
            admin.create_topic("T", 4)
            with members(peer, version, tmp_path, name_server, *DESCRIBED) as seen:
                sent = send_and_wait(name_server, seen)
                results_of_directly(admin, sent, seen)
                message = admin.view_message("T", sent.msg_id)
                tracks = {each.consumer_group: each for each in admin.message_track_detail(message)}
                assert tracks["g-pull"].track_type is TrackType.PULL
                assert tracks["g-push"].is_online
                info = admin.get_consumer_running_info("g-push", ONE, jstack=True)
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                assert "ConsumeMessageThread" in info.jstack
                wait_for_offsets(admin, sent)
                compare_tools(peer, version, name_server, sent, capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_tool_and_the_consumers_of_our_broker(
    peer, tmp_path, capsys, monkeypatch, version
):
    monkeypatch.chdir(tmp_path)
    server = OurNameServer()
    name_server = str(server.address)
    broker = OurBroker(tmp_path / "ours", name_server)
    try:
        with SyncMQAdmin(name_server) as admin:
            admin.create_topic("T", 4)
            with members(peer, version, tmp_path, name_server, *DESCRIBED) as seen:
                sent = send_and_wait(name_server, seen)
                results_of_directly(admin, sent, seen)
                wait_for_offsets(admin, sent)
                compare_tools(peer, version, name_server, sent, capsys)
    finally:
        broker.kill()
        server.close()


if __name__ == "__main__":
    for each in VERSIONS:
        printed_file(each).write_text(real_output(RocketMQPeer(), each), encoding="utf-8")

"""``rocketlens serve``, ``namesrv`` and ``broker``, as processes of their own, also with TLS."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketlens
from rocketlens.broker.life.service import BrokerService
from rocketlens.errors import BadInput
from rocketlens.main import build_parser
from rocketlens.model.installation import install_command
from rocketlens.namesrv.service import NameServer
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool, parse_address
from rocketlens.net.server import RemotingServer
from rocketlens.net.sync import LoopThread
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import read_index_state
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import encode_command
from tests.peer.rocketmq_peer import wait_until
from tests.support.broker_world import send_fields, text_of
from tests.support.impostors import Impostor
from tests.support.patience import PATIENCE_S, complaints

PROGRAM = [sys.executable, "-W", "error", "-m", "rocketlens.main"]
READY = re.compile(
    r"ready: name server (?P<names>\S+), broker (?P<broker>\S+) and port (?P<vip>\d+), store (.+)\n"
)
ANY_PORT = ("--namesrv-port", "0", "--broker-port", "0", "--index-builder", "inline")


class Server:
    """A server that said that it is ready."""

    def __init__(self, process, line, start_s):
        self.process = process
        self.line = line
        self.start_s = start_s
        self.ready = READY.fullmatch(line)

    def end(self, how=signal.SIGTERM):
        """Stop it; gives exit code, the rest of stdout, and what stderr says of it."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, "".join(f"{line}\n" for line in complaints(err))


@contextmanager
def running(*arguments, **variables):
    """Run a server until it is ready, and for as long as the test wants it."""
    environment = variables | {
        name: value
        for name, value in os.environ.items()
        if name not in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR", "ROCKETLENS_HOME", *variables)
    }
    began = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        line = process.stdout.readline()
        yield Server(process, line, time.perf_counter() - began)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home directory in which nothing is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_serve_says_where_it_listens_answers_send_and_find_and_stops_cleanly(
    run, tmp_path, record_property
):
    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        assert server.ready, server.process.stderr.read()
        record_property("start_seconds", round(server.start_s, 3))
        assert int(server.ready["vip"]) == parse_address(server.ready["broker"]).port - 2
        assert server.line.endswith(f"store {tmp_path / 'store'}\n")
        names = server.ready["names"]
        for number in range(3):
            key = f"ORDER-{number}"
            sent = run("send", "--namesrv", names, "Orders", f"body {number}", "--keys", key)
            assert (sent.code, sent.err) == (0, "")
            found = run("find", key, "--namesrv", names, "-o", "json")
            (message,) = json.loads(found.out)["messages"]
            assert f"offsetMsgId={message['offset_msg_id']}," in sent.out
        assert server.end(signal.SIGINT) == (0, "", "")
    assert not (tmp_path / "store" / "abort").exists()
    with rocketlens.open_store(tmp_path / "store") as store:
        assert [each.body for each in store.find("ORDER-1")] == [b"body 1"]


def test_a_configuration_file_is_read_and_unknown_keys_are_named(run, tmp_path):
    conf = tmp_path / "broker.conf"
    keys = "brokerName=mine\nlistenPort=0\nnonsense=1\n"
    conf.write_text(f"{keys}storePathRootDir={tmp_path}\n")
    with running("serve", "--home", tmp_path, *ANY_PORT[:2], *ANY_PORT[4:], "-c", conf) as server:
        assert server.line.endswith(f"store {tmp_path}\n")
        sent = run("send", "--namesrv", server.ready["names"], "Orders", "body")
        assert "brokerName=mine" in sent.out
        code, _, err = server.end()
        assert code == 0
        assert "nonsense" in err
        assert err.count("\n") == 1


def messages_of(log):
    """Return the messages of a log in JSON, each behind its area."""
    lines = [json.loads(line) for line in log.splitlines()]
    assert all(line["time"].endswith("+00:00") for line in lines)
    return [f"{line['area']}: {line['message']}" for line in lines]


def assert_in_order(messages, *expected):
    rest = iter(messages)
    for words in expected:
        assert any(words in message for message in rest), f"{words!r} is missing in {messages}"


def test_the_log_tells_the_life_of_a_server(run, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=mine\n")
    home = tmp_path / "home"
    json_log = ("--log-format", "json", "--log-level", "info")
    with running("serve", "--home", home, *ANY_PORT, "-c", conf, *json_log) as server:
        names = server.ready["names"]
        assert run("send", "--namesrv", names, "Orders", "body").code == 0
        code, _, log = server.end()
    assert code == 0
    messages = messages_of(log)
    assert_in_order(
        messages,
        f"server: RocketLens {rocketlens.__version__}, Python",
        "brokerName=mine",
        "server: the broker itself builds index files",
        f"namesrv: listens on {names}",
        f"store: {home / 'store'}: a new store",
        f"namesrv: broker mine (id 0) of DefaultCluster at {server.ready['broker']} is registered",
        f"broker: broker mine of DefaultCluster listens on {server.ready['broker']}",
        "broker: topic Orders is created: 4 queues to read",
        "joins group rocketlens_producer",
        "leaves group rocketlens_producer",
        "server: stopping: SIGTERM",
        "unregisters",
        "closed cleanly; the log ends at ",
        "broker: broker mine stopped",
    )
    assert str(conf) in messages[0]


def test_metrics_and_health_are_on_a_port_of_their_own(run, tmp_path):
    with running(
        "serve", "--home", tmp_path, *ANY_PORT, "--metrics-port", "0", ROCKETLENS_LOG="info"
    ) as server:
        told = (server.process.stderr.readline() for _ in range(20))
        address = next(each[1] for line in told if (each := re.search(r"http://(\S+): ", line)))
        assert run("send", "--namesrv", server.ready["names"], "Orders", "body").code == 0

        def ask(path):
            with urllib.request.urlopen(f"http://{address}{path}") as answer:
                return answer.read().decode()

        assert (ask("/livez"), ask("/readyz")) == ("ok\n", "ok\n")
        text = ask("/metrics")
        labels = 'cluster="DefaultCluster",node_id="broker-a",node_type="broker",topic="Orders"'
        assert f"rocketmq_messages_in_total{{{labels}}} 1.0" in text
        assert 'node_type="nameserver"' in text
        assert server.end()[0] == 0


def test_systemd_is_told_when_a_server_is_ready_and_when_it_stops(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        with running("namesrv", "-p", "0", NOTIFY_SOCKET=str(tmp_path / "notify")) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.end() == (0, "", "")
        assert manager.recv(100) == b"STOPPING=1"


def test_after_a_kill_the_log_tells_what_was_recovered(run, tmp_path):
    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        assert run("send", "--namesrv", server.ready["names"], "Orders", "body").code == 0
        server.process.kill()
        server.process.communicate()
    with running("serve", "--home", tmp_path, *ANY_PORT, ROCKETLENS_LOG="json,info") as server:
        assert "store" in server.line
        code, _, log = server.end()
    assert code == 0
    assert_in_order(messages_of(log), "it was not closed cleanly; 1 message read again")


def test_its_name_server_gives_the_name_of_its_broker_to_no_other(tmp_path):
    async def impersonate(names, broker):
        pool = ClientPool(lambda _: True)
        try:
            impostor = Impostor(pool, names, ["SELF_TEST_TOPIC", "T"])
            for wanted in ({}, {"name": "broker-b", "address": broker}):
                refused = await impostor.register(**wanted)
                assert refused.code != 0
                assert "broker-a" in refused.remark
            assert (await impostor.route("SELF_TEST_TOPIC"))[0] == broker
            assert (await impostor.register(name="broker-b")).code == 0
        finally:
            await pool.close()

    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        asyncio.run(impersonate(server.ready["names"], server.ready["broker"]))
        assert server.end()[0] == 0


def test_its_name_server_and_its_broker_have_an_event_loop_each(run, tmp_path, monkeypatch):
    loops = []
    start = NameServer.start

    def start_noting(self):
        loops.append(asyncio.get_running_loop())
        return start(self)

    async def refuse(_):
        loops.append(asyncio.get_running_loop())
        raise BadInput("the test needs no broker")

    monkeypatch.setattr(NameServer, "start", start_noting)
    monkeypatch.setattr(BrokerService, "start", refuse)
    done = run("serve", "--home", tmp_path, *ANY_PORT)
    assert (done.code, "needs no broker" in done.err) == (2, True)
    assert len(set(loops)) == 2


def test_what_a_name_server_says_is_one_escaped_line_of_the_log(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort=0\nstorePathRootDir={tmp_path / 'store'}\n")
    remark = "no\x1b[2J\x07\u061c\n2026-01-01 00:00:00,000 ERROR rocketlens.broker: forged"
    thread = LoopThread("name-server")

    async def start():
        refuse = {RequestCode.REGISTER_BROKER: lambda *_: Response(1, remark=remark)}
        server = RemotingServer(refuse)
        return server, str(server.listen("127.0.0.1", 0))

    name_server, address = thread.run(start())
    try:
        with running("broker", "-c", conf, "-n", address) as broker:
            assert broker.line.startswith("ready: ")
            code, _, err = broker.end()
    finally:
        thread.run(name_server.stop(grace_s=0))
        thread.close()
    assert code == 0
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    assert r"no\x1b[2J\x07\u061c" in err


@pytest.mark.usefixtures("takes_hangups")
@pytest.mark.parametrize(
    "signals",
    [(signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGHUP) * 3],
    ids=["hangup", "terminate twice", "both again and again"],
)
def test_signals_stop_serve_cleanly_under_floods_and_nothing_acknowledged_is_lost(
    run, tmp_path, signals
):
    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        floods = [Flood(server.ready["broker"]) for _ in range(3)]
        names = server.ready["names"]
        assert run("send", "--namesrv", names, "Orders", "body", "--keys", "k").code == 0
        for each in floods:
            each.is_flowing.wait()
        for number in signals[:-1]:
            server.process.send_signal(number)
        assert server.end(signals[-1]) == (0, "", "")
        for each in floods:
            each.thread.join()
    assert not (tmp_path / "store" / "abort").exists()
    with rocketlens.open_store(tmp_path / "store") as store:
        assert [each.body for each in store.find("k", topic="Orders")] == [b"body"]


HUNG_DISK = """
import sys, threading
from pathlib import Path
from rocketlens import limits
from rocketlens.main import main
from rocketlens.store.disk import WritableFile

def hang(self):
    print("hangs", flush=True)
    threading.Event().wait()

def sync(self, sync=WritableFile.sync):
    (hang if Path(HANGS).exists() else sync)(self)

MAX_HUNG_STOP_S, WritableFile.sync = 0.5, sync
sys.exit(main())
"""


def test_serve_ends_on_a_disk_that_hangs_and_loses_nothing_acknowledged(run, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    script = HUNG_DISK.replace("HANGS", repr(str(hangs)))
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "PROGRAM", [sys.executable, "-c", script])
        with running("serve", "--home", tmp_path, *ANY_PORT) as server:
            hangs.touch()
            sent = run("send", "--namesrv", server.ready["names"], "Orders", "b", "--keys", "K")
            assert sent.code == 0, sent.err
            assert server.process.stdout.readline() == "hangs\n"
            code, _, log = server.end()
    assert code == 2
    assert "the process ends as after a kill" in log
    # Whoever reads the log sees what hung.
    assert re.search(r'File "<string>", line \d+ in hang', log)
    with rocketlens.open_store(tmp_path / "store") as store:
        assert [each.body for each in store.find("K")] == [b"b"]
    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        assert server.ready
        assert server.end()[0] == 0


class Flood:
    """Sends one-way messages as fast as they go, until the server has ended."""

    def __init__(self, address):
        self.is_flowing = threading.Event()
        self.socket = socket.create_connection(("127.0.0.1", parse_address(address).port))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        fields = send_fields("Flooded", "")
        texts = {name: text_of(value) for name, value in fields.items() if value is not None}
        frame = encode_command(RemotingCommand(310, 1, 2, None, texts, b"x" * 100))
        with self.socket, suppress(OSError):
            while True:
                self.socket.sendall(frame * 100)
                self.is_flowing.set()


def test_a_server_that_was_started_to_ignore_hangups_goes_on_ignoring_them(run, tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running("serve", "--home", tmp_path, *ANY_PORT) as server:
            server.process.send_signal(signal.SIGHUP)
            names = server.ready["names"]
            assert run("send", "--namesrv", names, "Orders", "body").code == 0
            assert server.end() == (0, "", "")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_broker_and_a_name_server_can_be_processes_of_their_own(run, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort=0\nstorePathRootDir={tmp_path / 'store'}\n")
    with running("namesrv", "-p", "0") as name_server:
        names = name_server.line.removeprefix("ready: name server ").strip()
        with running("broker", "-c", conf, "-n", names) as broker:
            assert broker.line.startswith("ready: broker 127.0.0.1:")
            assert run("send", "--namesrv", names, "Orders", "body", "--keys", "k").code == 0
            assert run("find", "k", "--namesrv", names).code == 0
            assert broker.end() == (0, "", "")
        assert name_server.end() == (0, "", "")


def test_a_port_or_store_that_is_taken_is_one_line_and_code_2(tmp_path):
    with running("serve", "--home", tmp_path, *ANY_PORT) as server:
        names = parse_address(server.ready["names"]).port
        broker = parse_address(server.ready["broker"]).port
        for number, arguments in enumerate(
            (
                ("--namesrv-port", names, "--broker-port", "0"),
                ("--namesrv-port", "0", "--broker-port", broker),
            )
        ):
            with running("serve", "--home", tmp_path / f"other{number}", *arguments) as second:
                _, err = second.process.communicate(timeout=PATIENCE_S)
                assert (second.process.returncode, second.line, err.count("\n")) == (2, "", 1)
                assert "in use" in err
        with running("serve", "--home", tmp_path, *ANY_PORT) as second:
            _, err = second.process.communicate(timeout=PATIENCE_S)
            assert (second.process.returncode, second.line, err.count("\n")) == (2, "", 1)
            assert str(tmp_path / "store") in err
        assert server.end()[0] == 0


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("listenPort=x", "listenPort"),
        ("brokerId=1", "brokerId"),
        ("brokerIP1=nowhere.example", "brokerIP1"),
        (b"\xff=1", "UTF-8"),
        (b"#" * (2 << 20), "bytes"),
        (None, "broker.conf"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "broker"])
def test_a_configuration_that_cannot_be_is_one_line_and_code_2(run, home, command, conf, words):
    file = home / "broker.conf"
    if conf is not None:
        file.write_bytes(conf if isinstance(conf, bytes) else conf.encode())
    done = run(command, "-c", file)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err
    assert not (home / "rocketlens").exists()


@pytest.mark.parametrize("port", ["-1", "65536", "x", "9" * 5000])
def test_a_port_that_is_none_is_refused(run, port):
    for arguments in (("serve", f"--broker-port={port}"), ("namesrv", f"--port={port}")):
        done = run(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def has_index_files(layout):
    state = read_index_state(layout)
    return state is not None and bool(state.files)


def test_serve_has_spark_build_its_index_and_stops_both_cleanly(run, tmp_path, jdk):
    assert jdk
    spark = (*ANY_PORT[:4], "--index-builder", "spark", "--master", "local[2]")
    layout = StoreLayout(tmp_path / "store")
    with running("serve", "--home", tmp_path, *spark) as server:
        names = server.ready["names"]
        for number in range(20):
            assert run("send", "--namesrv", names, "Orders", "x", "--keys", f"k{number}").code == 0
        assert run("find", "k19", "--namesrv", names).code == 0
        wait_until(lambda: has_index_files(layout), server.process, PATIENCE_S)
        # A machine that Spark keeps busy may answer too late for the tool: it is asked again.
        told = ""
        while not told:
            told = run("mqadmin", "brokerStatus", "-n", names, "-b", server.ready["broker"]).out
            assert server.process.poll() is None
        assert re.search(r"^indexBuilder +: spark, running$", told, re.MULTILINE)
        assert "running; index files are synced" in run("doctor", "--store", layout.root).out
        builder = next(
            line for line in processes() if "index follow" in line and str(layout.root) in line
        )
        assert server.end() == (0, "", "")
    assert builder not in processes()
    assert not layout.abort.exists()
    with rocketlens.open_store(layout.root) as store:
        assert store.find("k19").coverage
        entries = sum(header.last_entry for _, header in read_index_state(layout).files)
        assert entries == 40  # a key and a unique key each
    assert "not running; index files" in run("doctor", "--store", layout.root).out


def processes():
    """Give the command of every process that runs."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_without_a_jdk_the_broker_builds_its_index_itself_unless_spark_was_asked_for(
    run, tmp_path, monkeypatch
):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = run("serve", "--home", tmp_path / "no", *ANY_PORT[:4], "--index-builder", "spark")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "install a JDK" in done.err
    assert not (tmp_path / "no").exists()
    with running("serve", "--home", tmp_path, *ANY_PORT[:4]) as server:
        names = server.ready["names"]
        told = run("mqadmin", "brokerStatus", "-n", names, "-b", server.ready["broker"]).out
        assert re.search(r"^indexBuilder +: inline$", told, re.MULTILINE)
        code, _, err = server.end()
    assert (code, err.count("\n")) == (0, 1)
    assert "the broker itself builds index files" in err


CONSOLE = re.compile(r", console (http://127\.0\.0\.1:\d+/)\n")


def children_of(process):
    """Return the processes that a process has started."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(each) for task in tasks for each in (task / "children").read_text().split()]


def is_closed(url):
    try:
        urllib.request.urlopen(url, timeout=PATIENCE_S).close()
    except OSError:
        return True
    return False


def test_serve_brings_a_console_of_its_cluster_and_ends_it(run, tmp_path):
    with running("serve", "--home", tmp_path, *ANY_PORT, "--console", "0") as server:
        assert server.ready, server.process.stderr.read()
        (url,) = CONSOLE.findall(server.line)
        names = server.ready["names"]
        sent = run("send", "--namesrv", names, "Orders", "body", "--keys", "ORDER-1")
        assert sent.code == 0
        with urllib.request.urlopen(f"{url}api/search?q=ORDER-1", timeout=PATIENCE_S) as found:
            answer = json.load(found)
        assert answer["complete"], json.dumps(answer["coverage"])
        assert [each["keys"] for each in answer["messages"]] == [["ORDER-1"]]
        assert len(children_of(server.process)) == 1
        assert server.end() == (0, "", "")
        assert is_closed(url)


def test_the_console_of_killed_servers_ends(tmp_path):
    with running("serve", "--home", tmp_path, *ANY_PORT, "--console", "0") as server:
        (url,) = CONSOLE.findall(server.line)
        port = int(url.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            server.process.kill()
            server.process.communicate(timeout=PATIENCE_S)
            assert connection.recv(1) == b""
        assert is_closed(url)


def test_servers_go_on_without_a_console_that_was_killed(run, tmp_path):
    with running("serve", "--home", tmp_path, *ANY_PORT, "--console", "0") as server:
        (console,) = children_of(server.process)
        os.kill(console, signal.SIGKILL)
        assert "the console ended" in server.process.stderr.readline()
        assert run("send", "--namesrv", server.ready["names"], "Orders", "body").code == 0
        assert server.end()[:2] == (0, "")


def without_fastapi(tmp_path):
    """Return the variables with which a program does not find one package of the console."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "fastapi.py").write_text("raise ModuleNotFoundError('no', name='fastapi')\n")
    return {"PYTHONPATH": str(hidden)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--console", "0.0.0.0:0"), "loopback interface only"),
        (("--console", "nonsense"), "IP:PORT"),
        (("--console", "0", "--console-users", "/nonexistent/users"), "the users file"),
        (("--console-users", "/nonexistent/users"), "--console-users needs --console"),
        (("--console",), install_command("console")),
    ],
)
def test_a_console_that_cannot_be_is_an_error_before_the_store_is_opened(tmp_path, words, said):
    variables = without_fastapi(tmp_path) if "pip" in said else {}
    with running("serve", "--home", tmp_path / "h", *ANY_PORT, *words, **variables) as server:
        _, err = server.process.communicate(timeout=PATIENCE_S)
        assert (server.line, server.process.returncode) == ("", 2)
        assert said in err
        assert err.count("\n") == 1
        assert not (tmp_path / "h" / "store").exists()


def test_port_is_that_of_the_broker():
    arguments = build_parser(["serve"]).parse_args(["serve", "--port", "10922"])
    assert arguments.broker_port == 10922


def test_the_store_that_other_commands_have_means_the_home_of_the_servers(run):
    done = run("serve", "--store", "x")
    assert (done.code, done.out) == (2, "")
    assert "--store x; did you mean --home?" in done.err


@pytest.fixture
def served(certificate, tmp_path):
    """Give name server and broker of ``rocketlens serve``; clients must show a certificate."""
    file, key = certificate
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"tls.server.certPath={file}\ntls.server.keyPath={key}\n"
        f"tls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={file}\n"
        f"tls.client.certPath={file}\ntls.client.keyPath={key}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={file}\n"
    )
    with running("serve", "--home", tmp_path / "home", *ANY_PORT, "-c", conf) as server:
        yield server
        code, _, err = server.end()
        assert (code, err) == (0, "")


def test_a_cluster_that_enforces_tls_takes_messages_and_gives_them_back(run, served, certificate):
    file, key = certificate
    there = ("--namesrv", served.ready["names"])
    known = ("--cert", file, "--cert-key", key)
    assert run("send", "T", "hello", "--keys", "k", *there, "--ca", file, *known).code == 0
    for trust in (("--ca", file), ("--insecure",)):
        done = run("find", "k", *there, *trust, *known)
        assert (done.code, "hello" in done.out) == (0, True), done.err
    for words in ((), ("--tls", *known), ("--ca", file)):
        done = run("find", "k", *there, *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    done = run(
        "mqadmin", "queryMsgByKey", "-n", there[1], "-t", "T", "-k", "k", "--ca", file, *known
    )
    assert (done.code, done.err) == (0, "")

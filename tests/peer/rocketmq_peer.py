"""The real Apache RocketMQ as a judge: its broker, its mqadmin, and Java programs for its client.

Everything runs on the loopback interface from the jars of Maven Central, which are fetched once
for each version into ``$XDG_CACHE_HOME/rocketlens-peer/<version>`` (``~/.cache`` where that is
unset). Tests reach it through the fixture ``peer``, the benchmark builds a `RocketMQPeer` itself.
"""

import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.peer.running_tool import RunningTool

NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
MANY_COMMANDS = Path(__file__).parent / "java" / "ManyCommands.java"
MQADMIN_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
BROKER_NAME = "broker-a"
VERSIONS = ("4.9.7", "5.5.0")

FETCH_SECONDS = 240
START_SECONDS = 500
STOP_SECONDS = 180
POLL_SECONDS = 0.05
PORTS = range(10_000, 32_000)
"""Linux chooses ports of connections from 32768 on, others from 49152 on."""

GET_BROKER_CLUSTER_INFO = 106

# RocketMQ reaches into the JDK for memory-mapped buffers.
JVM_OPENS = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)

# 4.9 does not start without a logback file in its home.
QUIET_LOGBACK = """\
<configuration>
  <appender name="N" class="ch.qos.logback.core.helpers.NOPAppender"/>
  <root level="OFF"><appender-ref ref="N"/></root>
</configuration>
"""

# What logback and the client print about themselves, between the lines that were asked for.
LOGGING_CHATTER = re.compile(r"\|-INFO|\|-WARN|RocketmqRemoting")


class PeerUnavailable(Exception):
    """What is not installed, or cannot be fetched; its text says what to install."""


class PeerFailed(Exception):
    """A process of the peer ended, or was too slow; the text has its last output."""


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java development kit and its major version, such as 17."""

    java: Path
    major_version: int

    @property
    def javac(self) -> Path:
        """The compiler."""
        return self.java.with_name("javac")


def find_jdk() -> Jdk:
    """Give the JDK that Spark would use; PeerUnavailable when it will not do."""
    # Late, here and in conftest.py: what is wrong in the pipeline must not stop all other tests.
    from rocketlens.errors import SparkUnavailable
    from rocketlens.pipeline.session import INSTALL_JDK, OLDEST_JDK, find_java

    try:
        java, major_version = find_java()
    except SparkUnavailable as unavailable:
        raise PeerUnavailable(str(unavailable)) from unavailable
    jdk = Jdk(java.resolve(), major_version)
    if major_version < OLDEST_JDK:
        raise PeerUnavailable(f"{java} is Java {major_version}, too old: {INSTALL_JDK}")
    if not jdk.javac.exists():
        raise PeerUnavailable(f"{java} has no javac beside it, so it is no JDK: {INSTALL_JDK}")
    return jdk


def find_maven() -> str:
    """Give the path of ``mvn``; PeerUnavailable when there is none."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(
            "no mvn found; install Apache Maven, which fetches jars of RocketMQ and others"
        )
    return maven


def cache_directory() -> Path:
    """Give the directory of what is fetched once, for all runs of tests."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "rocketlens-peer")


def fetched_jars(name: str, pom: Path, what: str, *options: str) -> Path:
    """Return the directory of all jars of a project file; fetch them the first time.

    :param name: The directory's own name.
    :param what: What they are of, in errors.
    :raises PeerUnavailable: when Maven is missing, or cannot fetch them.
    """
    cache = cache_directory()
    jars = cache / name
    if jars.exists():
        return jars
    maven = find_maven()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fetched = Path(scratch, "jars")
        command = [maven, "-q", "-B", "-f", str(pom), *options]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        try:
            subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=FETCH_SECONDS
            )
        except subprocess.SubprocessError as error:
            said = str(error.stdout or "")[-2000:]
            raise PeerUnavailable(f"Maven cannot fetch {what}: {error}\n{said}") from error
        # Whole or not at all; another process may have been first.
        with suppress(OSError):
            fetched.rename(jars)
    return jars


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float
) -> None:
    """Return once ``condition`` holds; PeerFailed if ``process`` ends or ``seconds`` pass first."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise PeerFailed(f"gave up after {seconds} s")
        with suppress(subprocess.TimeoutExpired):
            raise PeerFailed(f"ended with code {process.wait(timeout=POLL_SECONDS)}")


def accepts_connections(port: int) -> bool:
    """Say whether something listens on ``port`` of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(*offsets: int) -> int:
    """Return a free port such that it plus each of ``offsets`` is free, too.

    It is none of those that the system chooses for connections: one of them would take it before
    the server that it is for, and keeps it for a minute after it was closed.
    """
    for _ in range(100):
        port = secrets.choice(PORTS)
        with ExitStack() as held, suppress(OSError):
            for offset in (0, *offsets):
                held.enter_context(socket.socket()).bind(("", port + offset))
            return port
    raise PeerFailed("found no free ports")


def registered_brokers(namesrv_port: int) -> list[str]:
    """Ask the name server which brokers it knows; none while it cannot be asked."""
    header = json.dumps(
        {"code": GET_BROKER_CLUSTER_INFO, "flag": 0, "language": "OTHER", "opaque": 1, "version": 0}
    ).encode()
    try:
        with socket.create_connection(("127.0.0.1", namesrv_port), timeout=5) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
            with connection.makefile("rb") as stream:
                (frame_size,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(frame_size)
    except (OSError, struct.error):
        return []
    body = frame[4 + (struct.unpack_from(">i", frame)[0] & 0xFFFFFF) :]
    # Broker numbers are bare keys in the dialect of 4.9, so this is not always JSON.
    return re.findall(r'"brokerName"\s*:\s*"([^"]+)"', body.decode())


def tail_of(log: Path, lines: int = 20) -> str:
    """Give the last lines of a process's output."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


@dataclass(slots=True)
class RunningBroker:
    """A name server, and a broker that is registered with it."""

    version: str
    directory: Path
    namesrv_port: int
    broker_port: int
    namesrv: subprocess.Popen[bytes]
    broker: subprocess.Popen[bytes]

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.directory / "store"

    @property
    def namesrv_address(self) -> str:
        """What a client is given: host and port of the name server."""
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def broker_address(self) -> str:
        """Host and port of the broker."""
        return f"127.0.0.1:{self.broker_port}"

    def stop(self) -> None:
        """End the broker cleanly: files are flushed, ``abort`` is gone. No effect the second time.

        The name server is killed: it has nothing to flush, and a clean end of it takes 3 s.
        """
        end(self.broker)
        reap(self.namesrv)

    def kill(self) -> None:
        """Kill both with SIGKILL, as a crash does."""
        reap(self.broker)
        reap(self.namesrv)


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate ``process`` and wait; PeerFailed when it must be killed after STOP_SECONDS."""
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise PeerFailed(
            f"{process.args!r} did not end in {STOP_SECONDS} s and was killed"
        ) from None


class RocketMQPeer:
    """Starts the real RocketMQ. PeerUnavailable at once when there is no JDK or Maven.

    ``broker_settings`` are those of every broker whose own file does not have them. With
    ``share_classes``, JVMs load classes from an archive, in half the processor time. With
    ``keep_tools``, the commands of mqadmin run in one JVM of each version, until `close`.
    """

    def __init__(
        self,
        heap: str = "-Xmx1g",
        jvm_options: tuple[str, ...] = (),
        broker_settings: dict[str, object] | None = None,
        *,
        share_classes: bool = False,
        keep_tools: bool = False,
    ) -> None:
        self.jdk = find_jdk()
        find_maven()
        self.jvm_options = (heap, *jvm_options)
        self.broker_settings = broker_settings or {}
        self.share_classes = share_classes
        self.keep_tools = keep_tools
        self._tools: dict[str, tuple[RunningTool, tempfile.TemporaryDirectory[str]]] = {}
        self.cache = cache_directory()

    def jars(self, version: str) -> Path:
        """Return the directory of all jars of ``version``; fetch them (50 MB) the first time.

        :raises PeerUnavailable: when Maven cannot fetch them.
        """
        pom = Path(__file__).with_name("pom.xml")
        return fetched_jars(version, pom, f"RocketMQ {version}", f"-Drocketmq={version}")

    def command(
        self, version: str, home: Path, *program: str, classes: Path | None = None
    ) -> list[str]:
        """Give the command line of a Java program with the jars, and ``home`` as user's home."""
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker", "tools"):
            (conf / f"logback_{name}.xml").write_text(QUIET_LOGBACK)
        class_path = self.class_path(version)
        shared: tuple[str, ...] = ()
        if self.share_classes:
            # Without an archive that fits, a JVM is slower; it need not say so in what it prints.
            shared = (f"-XX:SharedArchiveFile={self.class_archive(version)}", "-Xlog:cds*=off")
        return [
            str(self.jdk.java),
            "-Xms256m",
            *self.jvm_options,
            *shared,
            f"-Duser.home={home}",
            "-Duser.timezone=UTC",
            f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.client.logRoot={home}/log",
            *JVM_OPENS,
            "-cp",
            # What an archive was made from comes first.
            f"{class_path}:{classes}" if classes else class_path,
            *program,
        ]

    def class_path(self, version: str) -> str:
        """Return the jars of ``version`` as a class path, always in the same order."""
        return ":".join(str(jar) for jar in sorted(self.jars(version).glob("*.jar")))

    def class_archive(self, version: str) -> Path:
        """Return the archive of the classes that RocketMQ's programs load; make a missing one.

        Name server, broker and tool run once for it. It fits one JDK, and one set of options.
        """
        made_for = (self.jdk.java.parents[1] / "release").read_text()
        made_for += repr([option for option in self.jvm_options if option.startswith("-X")])
        digest = hashlib.sha256(made_for.encode()).hexdigest()[:16]
        archive = self.cache / "shared-classes" / f"{version}-{digest}.jsa"
        if archive.exists():
            return archive
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch, "made.jsa")
            heap, *options = self.jvm_options
            recorded = f"-XX:DumpLoadedClassList={scratch}/%p.classes"
            recorder = RocketMQPeer(heap, (*options, recorded), self.broker_settings)
            with recorder.start(version, Path(scratch, "broker")) as broker:
                names = ("-n", broker.namesrv_address)
                recorder.mqadmin(version, "updateTopic", "-c", "DefaultCluster", "-t", "T", *names)
                recorder.mqadmin(version, "sendMessage", "-t", "T", "-p", "body", *names)
                recorder.mqadmin(version, "consumeMessage", "-t", "T", "-c", "1", *names)
                broker.stop()
            lists = [path.read_text().splitlines() for path in Path(scratch).glob("*.classes")]
            classes = Path(scratch, "all.classes")
            classes.write_text("\n".join(dict.fromkeys(itertools.chain(*lists))) + "\n")
            command = [str(self.jdk.java), *self.jvm_options, "-Xshare:dump"]
            command += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
            command += ["-cp", self.class_path(version)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PeerFailed(f"{command[0]} makes no archive of classes:\n{done.stderr}")
            made.rename(archive)
        return archive

    def launch(
        self, version: str, directory: Path, main: str, conf: dict[str, object]
    ) -> subprocess.Popen[bytes]:
        """Start one server with ``conf`` as its file; its output goes to a log beside it."""
        name = main.split(".")[3]
        conf_file = directory / f"{name}.conf"
        common = self.broker_settings if main == BROKER_MAIN else {}
        conf_file.write_text(properties(common | conf))
        command = self.command(version, directory / "home", main, "-c", str(conf_file))
        with (directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
            )

    @contextmanager
    def start(
        self, version: str, directory: Path, **settings: str | int | bool
    ) -> Iterator[RunningBroker]:
        """Run a name server and a broker: ready inside the ``with``, killed after it.

        A clean stop takes RocketMQ 5 about 17 s, nearly all of it in pauses; ``stop()`` it inside
        the ``with`` where the files are read afterwards.
        ``directory/store`` may hold a store already. ``settings`` go into the broker's file as
        they are (``mappedFileSizeCommitLog=262144``). PeerFailed when either does not start,
        with what it printed.
        """
        with ExitStack() as running:
            namesrv_port, namesrv = running.enter_context(self.start_namesrv(version, directory))
            broker_port, conf = self.broker_conf(directory, namesrv_port)
            broker = self.launch(version, directory, BROKER_MAIN, conf | settings)
            running.callback(reap, broker)
            with explained(f"the broker of RocketMQ {version}", directory / "broker.log"):
                wait_until(lambda: accepts_connections(broker_port), broker, START_SECONDS)
                wait_until(
                    lambda: BROKER_NAME in registered_brokers(namesrv_port), broker, START_SECONDS
                )
            started = RunningBroker(version, directory, namesrv_port, broker_port, namesrv, broker)
            yield started

    @contextmanager
    def start_namesrv(
        self, version: str, directory: Path
    ) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
        """Run a name server; gives its port and process. It is killed after the ``with``."""
        directory.mkdir(parents=True, exist_ok=True)
        port = free_ports()
        conf = {
            "listenPort": port,
            "kvConfigPath": directory / "kv.json",
            "configStorePath": directory / "namesrv.properties",
        }
        namesrv = self.launch(version, directory, NAMESRV_MAIN, conf)
        try:
            with explained(f"the name server of RocketMQ {version}", directory / "namesrv.log"):
                wait_until(lambda: accepts_connections(port), namesrv, START_SECONDS)
            yield port, namesrv
        finally:
            reap(namesrv)

    def broker_conf(self, directory: Path, namesrv_port: int) -> tuple[int, dict[str, object]]:
        """Return a free port for a broker, and its settings."""
        # The broker listens on its port, two below (the fast one) and one above (replication).
        port = free_ports(-2, 1)
        return port, {
            "brokerClusterName": "DefaultCluster",
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": f"127.0.0.1:{namesrv_port}",
            "storePathRootDir": directory / "store",
            "storePathCommitLog": directory / "store" / "commitlog",
            "diskMaxUsedSpaceRatio": 95,
        }

    def mqadmin(self, version: str, *arguments: str, timeout: float = 400) -> str:
        """Run the real tool and give all it printed: it exits with 0 even when it fails."""
        if self.keep_tools:
            return _without_chatter(self._tool(version).run(arguments, timeout))
        with tempfile.TemporaryDirectory(prefix="mqadmin-") as home:
            return printed(self.command(version, Path(home), MQADMIN_MAIN, *arguments), timeout)

    def tool(self, version: str, home: Path, *, with_errors: bool = True) -> RunningTool:
        """Start the real tool for many commands, with ``home`` as the directory of its files."""
        classes = self.compiled(version, MANY_COMMANDS)
        command = self.command(version, home, MANY_COMMANDS.stem, classes=classes)
        return RunningTool(command, with_errors=with_errors)

    def _tool(self, version: str) -> RunningTool:
        """Return the tool that is kept; it is started at first, and again after one ended."""
        tool, home = self._tools.get(version, (None, None))
        if tool is None or tool.has_ended:
            if tool is not None:
                tool.close()
            home = home or tempfile.TemporaryDirectory(prefix="mqadmin-")
            tool = self.tool(version, Path(home.name))
            self._tools[version] = tool, home
        return tool

    def close(self) -> None:
        """End the tools that were kept."""
        for tool, home in self._tools.values():
            tool.close()
            home.cleanup()
        self._tools.clear()

    def java(self, version: str, source: Path, *arguments: str, timeout: float = 400) -> str:
        """Compile one Java file, run the class of its name, and give what it printed.

        PeerFailed when it does not compile, or ends with a code other than 0.
        """
        classes = self.compiled(version, source)
        with tempfile.TemporaryDirectory(prefix="java-") as home:
            command = self.command(version, Path(home), source.stem, *arguments, classes=classes)
            return printed(command, timeout)

    def compiled(self, version: str, source: Path) -> Path:
        """Return the directory with the classes of a Java file; compile it if it has changed.

        :raises PeerFailed: when it does not compile.
        """
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
        classes = self.cache / "classes" / version / f"{source.stem}-{digest}"
        if classes.exists():
            return classes
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as scratch:
            made = Path(scratch, "classes")
            # A file takes seconds: what the better compiler of the JVM costs does not come back.
            compiler = [str(self.jdk.javac), "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
            compiler += ["-proc:none", "-nowarn", "-encoding", "UTF-8", "-d", str(made)]
            compiler += ["-cp", f"{self.jars(version)}/*", str(source)]
            done = subprocess.run(compiler, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PeerFailed(f"{source} does not compile:\n{done.stderr}")
            # Whole or not at all; another process may have been first.
            with suppress(OSError):
                made.rename(classes)
        return classes


def printed(command: list[str], timeout: float) -> str:
    """Run ``command`` to its end and give its output without the chatter of its logging."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    text = _without_chatter(done.stdout.splitlines())
    if done.returncode != 0:
        last = "\n".join(text.splitlines()[-20:])
        raise PeerFailed(f"{command[-1]} ended with code {done.returncode}:\n{last}")
    return text


def _without_chatter(lines: list[str]) -> str:
    return "\n".join(line for line in lines if not LOGGING_CHATTER.search(line)) + "\n"


def properties(values: dict[str, object]) -> str:
    """Write a Java properties file; booleans the way Java reads them."""
    lines = []
    for key, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else value
        lines.append(f"{key}={text}\n")
    return "".join(lines)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing running, whatever went wrong before."""
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def explained(who: str, log: Path) -> Iterator[None]:
    """Say whose failure it was, and the last it printed."""
    try:
        yield
    except PeerFailed as failure:
        raise PeerFailed(f"{who}: {failure}\n{tail_of(log)}") from failure

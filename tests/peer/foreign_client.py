"""Programs around RocketMQ's clients in other languages, which send or consume as they are told.

====================================================  =============================================
arguments, after the name server                      prints
====================================================  =============================================
``send GROUP TOPIC HOW COUNT``                        ``sent NUMBER STATUS MSG_ID OFFSET_MSG_ID
                                                      QUEUE_ID QUEUE_OFFSET``, ``-`` for what the
                                                      client does not return; of ``oneway`` the
                                                      number alone
``consume GROUP TOPIC EXPRESSION HOW REFUSED``        ``got BODY RECONSUME_TIMES TAGS KEYS`` and,
                                                      of the body ``REFUSED`` at first, ``refused``
``transact GROUP TOPIC``                              ``executed BODY`` and ``checked BODY``
====================================================  =============================================

Message NUMBER has that as its body, the tag A or B in turn, the key TOPIC-NUMBER and a property
``number``. HOW to send: sync, oneway, batch, delayed (level 1); how to consume: clustering,
broadcasting, orderly. What consumes or transacts ends when its standard input does.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

HERE = Path(__file__).parent
OLDEST_RUST = (1, 95)


@dataclass(frozen=True)
class ForeignClient:
    """One program, ready to run."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] | None = None

    def send(self, name_server, topic, count, how="sync"):
        """Send messages; return the words of each line, without the first."""
        group = f"{self.name}_producers"
        command = [*self.command, name_server, "send", group, topic, how, str(count)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=self.environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line.split(" ") for line in done.stdout.splitlines()]
        return [words for kind, *words in lines if kind == "sent"]

    def consume(self, name_server, group, topic, expression="*", *, how="clustering", refused=""):
        """Start a consumer."""
        command = [*self.command, name_server, "consume", group, topic, expression, how, refused]
        return ForeignMember(command, self.environment)

    def transact(self, name_server, topic):
        """Start a producer that sends messages in transactions."""
        command = [*self.command, name_server, "transact", self.name, topic]
        return ForeignMember(command, self.environment)


class ForeignMember:
    """A program that runs until it is closed; ``lines`` has the words of what it printed."""

    def __init__(self, command, environment):
        self.lines = []
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n").split(" "))

    def words(self, kind):
        """Return the words of all lines of a kind, without the first."""
        return [tuple(words) for first, *words in list(self.lines) if first == kind]

    @property
    def numbers(self):
        """The bodies that were consumed, as numbers."""
        return [int(words[0]) for words in self.words("got")]

    @property
    def has_ended(self):
        """Whether it ended by itself: it failed."""
        return self.process.poll() is not None

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        """End its standard input, and wait until it has ended well; kill it after an error."""
        if error is not None:
            self.process.kill()
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.thread.join()
            self.process.stdout.close()
            self.errors.seek(0)
            said = self.errors.read()
            self.errors.close()
        if error is None:
            assert code == 0, said
        else:
            error.add_note(f"the client printed {self.lines} {said}")


def build_node(directory):
    """Return ali-ons, RocketMQ's client in JavaScript; its packages are checked by the lock."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node.js: install node and npm (apt-get install nodejs npm)")
    for source in (HERE / "node").glob("*.js*"):
        shutil.copy(source, directory)
    fetched = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"npm cannot fetch ali-ons: {fetched.stderr}")
    return ForeignClient("node", (node, str(directory / "client.js")))


def build_rust(_):
    """Return rocketmq-client-rust; its crates are checked by the lock.

    They are compiled once, into the cache that has the jars of RocketMQ, too: it takes minutes.
    """
    cargo = shutil.which("cargo")
    said = subprocess.check_output([cargo, "--version"], text=True) if cargo else "no cargo"
    version = re.search(r"cargo (\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST_RUST:
        pytest.skip(f"{said.strip()}: rocketmq-client-rust needs Rust 1.95 or newer, by rustup")
    source = HERE / "rust"
    fetched = subprocess.run(
        [cargo, "fetch", "--locked"], cwd=source, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        pytest.skip(f"cargo cannot fetch rocketmq-client-rust: {fetched.stderr}")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(cache, "rocketlens-peer", "rust")
    done = subprocess.run(
        [cargo, "build", "--locked", "--offline", "--target-dir", directory],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return ForeignClient("rust", (str(directory / "debug" / "client"),))


def build_cpp(directory):
    """Return rocketmq-client-cpp as a package of PyPI has it, which is checked by its hash."""
    return _python_client("cpp", directory, HERE / "cpp" / "requirements.txt")


def build_grpc(directory):
    """Return rocketmq-python-client, which speaks gRPC to a proxy."""
    return _python_client("grpc", directory, HERE.parents[1] / "requirements" / "grpc.lock")


def _python_client(name, directory, lock):
    """Return a client whose packages are installed for it alone, and checked by their hashes."""
    packages = directory / "packages"
    fetched = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps"),
            *("--require-hashes", "--target", packages, "-r", lock),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"{lock.name} cannot be installed on this machine: {fetched.stderr}")
    # They write their logs below the home directory.
    environment = os.environ | {"PYTHONPATH": str(packages), "HOME": str(directory)}
    return ForeignClient(name, (sys.executable, str(HERE / name / "client.py")), environment)


BUILDERS = {"node": build_node, "rust": build_rust, "cpp": build_cpp}

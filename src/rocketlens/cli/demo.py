"""``rocketlens demo``: runs the main commands on a small store that a real broker wrote.

It works on a copy in a temporary directory and deletes it at the end.
"""

import io
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketlens.cli.jobs.spark import task_context
from rocketlens.errors import SparkUnavailable
from rocketlens.terminal.contexts import STORE_VARIABLE
from rocketlens.terminal.output import BOLD, GREEN, ExitCode, coloured, note

ARCHIVE: Final = Path(__file__).with_name("demo_store.tar.zst")
"""The store of tests/golden/stores/rocketmq-5.5.0.tar.zst."""

_MAX_ARCHIVE_BYTES: Final = 64 << 20
_MASTER: Final = "local[2]"

# Several messages have this key. The demo then finds the first of them in every other way.
_ORDER: Final = "order-42"
_TOPIC: Final = "PayTopic"
# The configuration of the broker that wrote the store. A job normally reads it from the index
# files, but the demo deletes them.
_GEOMETRY: Final = ("--slots", "500", "--entries", "1000")
EXAMPLES: Final = """
rocketlens demo  # it changes none of your files
rocketlens demo | less -R  # page by page
rocketlens demo && rocketlens doctor  # then check this machine
"""


def add_arguments(_parser: ArgumentParser) -> None: ...


def run(arguments: Namespace) -> ExitCode:
    """Run the demo; return 3 if only Spark is missing."""
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="rocketlens-demo-") as directory,
        _environment(STORE_VARIABLE, str(Path(directory, "store"))),
    ):
        store = Path(directory, "store")
        unpack(Path(directory))
        _say("A store directory that a real RocketMQ 5.5.0 broker wrote, unpacked for this demo:")
        _print(coloured(f"$ export {STORE_VARIABLE}={store}", BOLD, sys.stdout))
        demo = _Demo(store, arguments.all_commands)
        demo.delete_index()
        demo.find_by_key()
        try:
            task_context(_MASTER)
        except SparkUnavailable as error:
            missing = str(error)
            demo.find_by_everything()
        else:
            missing = ""
            demo.rebuild()
            demo.find_by_everything()
            demo.verify()
    if missing:
        note(f"rebuilding and verifying the index were not shown: {missing}")
    if demo.failures:
        note(f"this failed: {'; '.join(demo.failures)}")
        return ExitCode.FAILED
    _say("The copy is deleted. Now search your own: rocketlens find TEXT --store DIR (see --help).")
    return ExitCode.INCOMPLETE if missing else ExitCode.OK


def unpack(directory: Path) -> None:
    """Unpack the demo's store as ``directory/store``, 1.6 MB."""
    import tarfile

    import zstandard

    packed = ARCHIVE.read_bytes()
    content = zstandard.ZstdDecompressor().decompress(packed, max_output_size=_MAX_ARCHIVE_BYTES)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")


class _Demo:
    """The steps: each prints an explanation and runs a command."""

    def __init__(self, store: Path, parser_of: Callable[[Sequence[str]], ArgumentParser]) -> None:
        self.failures: list[str] = []
        self._store = store
        self._parser_of = parser_of
        self._written_by_the_broker = self._index_contents()

    def delete_index(self) -> None:
        _say("Delete its index:")
        count = len(self._written_by_the_broker)
        for path in (self._store / "index").iterdir():
            path.unlink()
        line = f"$ rm {self._store / 'index'}/*        # {count} files"
        _print(coloured(line, BOLD, sys.stdout))

    def find_by_key(self) -> None:
        _say(
            "Messages that are not indexed are read from the log, so answers stay correct.\n"
            "An order number finds every message with this key:"
        )
        self._run("find", _ORDER, "--topic", _TOPIC)

    def rebuild(self) -> None:
        _say("Spark rebuilds the index from the log alone:")
        self._run("index build", *_GEOMETRY)
        same = self._index_contents() == self._written_by_the_broker
        if not same:
            self.failures.append("the rebuilt index differs from the broker's")
        else:
            count = len(self._written_by_the_broker)
            line = f"All {count} index files are byte for byte what the broker had written."
            _print(coloured(line, GREEN, sys.stdout))

    def find_by_everything(self) -> None:
        from rocketlens.query.offline import open_store

        with open_store(self._store) as store:
            message = store.find(_ORDER, _TOPIC).messages[0]
        position = message.position
        _say("The first of them by its unique key, which a producer logs as msgId:")
        self._run("find", str(message.unique_key), "--topic", _TOPIC)
        _say("By its offset message id, which the broker returns:")
        self._run("find", message.offset_msg_id)
        _say("By another of its keys, in any language, and as JSON for programs:")
        self._run("find", message.keys[-1], "-o", "jsonl")
        _say("By its position, topic/queue/offset:")
        self._run("find", position)
        _say("By topic and time (here in milliseconds; 2h, 3d or a date also work):")
        moment = str(message.store_timestamp_ms)
        self._run("find", "--topic", _TOPIC, "--since", moment, "--until", moment)
        _say("Everything about it:")
        self._run("show", position)
        _say("If everything was searched and nothing found, the exit code is 1:")
        self._run("find", "no-such-order", expected=ExitCode.NO)

    def verify(self) -> None:
        _say("Do log, consume queues and index agree?")
        self._run("index verify")

    def _run(self, name: str, *options: str, expected: ExitCode = ExitCode.OK) -> None:
        """Print a command line and run it in this process."""
        line = shlex.join(("rocketlens", *name.split(), *options))
        _print(coloured(f"$ {line}", BOLD, sys.stdout))
        words = (*name.split(), *options)
        arguments = self._parser_of(words).parse_args(words)
        code = arguments.run(arguments)
        if code != expected:
            self.failures.append(f"exit code {code} of {line}")

    def _index_contents(self) -> Sequence[bytes]:
        """Return the contents of the index files, in the order of their names."""
        return [path.read_bytes() for path in sorted((self._store / "index").iterdir())]


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _say(text: str) -> None:
    _print(f"\n{text}")


def _print(text: str) -> None:
    print(text, flush=True)

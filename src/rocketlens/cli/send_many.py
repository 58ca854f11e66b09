"""Sends the messages of ``rocketlens send --lines`` and ``--jsonl`` in concurrent batches."""

import asyncio
import json
import os
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput, BrokerError, RemotingError, RocketLensError, SendFailed
from rocketlens.model import properties as props
from rocketlens.model.text.escape import printable

if TYPE_CHECKING:
    from rocketlens.client.connect.route import MessageQueue
    from rocketlens.client.send.message import Message
    from rocketlens.client.send.producer import Producer

_READ_BYTES: Final = 1 << 18
_BATCHES_AT_ONCE: Final = 8
_MAX_SHOWN_ERRORS: Final = 20
_MAX_LINE_BYTES: Final = limits.MAX_MESSAGE_BYTES * 2
"""A body in JSON can be escaped or base64."""
_OLD_BODIES: Final = {"body_text": "text", "body_base64": "base64"}
"""Members that older releases printed instead of ``body``, and their encodings."""
_MEMBERS: Final = frozenset(
    {"body", "body_encoding", *_OLD_BODIES, "tags", "keys", "properties", "delay_level", "flag"}
)
ReadLine = Callable[[bytes], "Message"]


class SendSummary(NamedTuple):
    """The numbers of messages sent and lines that failed."""

    sent: int
    failed: int
    stopped_at: int | None
    """The first line of the earliest batch that brokers did not accept."""


class _Line(NamedTuple):
    number: int
    message: "Message"


def json_line_reader(topic: str, defaults: Mapping[str, Any]) -> ReadLine:
    """Return a function that converts a line of JSON, as ``find -o jsonl`` prints it, to a message.

    ``body`` is text, JSON, or encoded as ``body_encoding`` says. Storage fields and RocketMQ's own
    properties are ignored. `defaults` are arguments of `Message` for members that a line lacks.
    """
    from rocketlens.client.send.message import Message

    def read(line: bytes) -> "Message":
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"it is not JSON: {str(error)[:100]}") from error
        if not isinstance(fields, dict):
            raise BadInput("it is JSON, but not an object")
        given = {
            name: fields[name]
            for name in _MEMBERS & fields.keys()
            if fields[name] is not None or (name, fields.get("body_encoding")) == ("body", "json")
        }
        body = _body_of(given)
        if "properties" in given:
            if not isinstance(given["properties"], dict):
                raise BadInput("properties is not an object")
            given["properties"] = defaults.get("properties", {}) | {
                name: value
                for name, value in given["properties"].items()
                if name not in props.SYSTEM_PROPERTIES
            }
        return Message(topic, body, **{**defaults, **given})

    return read


def _body_of(given: dict[str, Any]) -> bytes | str:
    """Remove the body from the members of a line, and return it."""
    names = [name for name in ("body", *_OLD_BODIES) if name in given]
    if len(names) != 1:
        raise BadInput("expected one of body, body_text and body_base64")
    body, encoding = given.pop(names[0]), given.pop("body_encoding", None)
    encoding = _OLD_BODIES.get(names[0], encoding)
    if encoding is None:
        encoding = "text" if isinstance(body, str) else "json"
    if encoding == "json":
        return json.dumps(body, ensure_ascii=False)
    if encoding not in {"text", "base64"}:
        raise BadInput(
            f"invalid body_encoding {str(encoding)[:40]!r}: expected text, json or base64"
        )
    if not isinstance(body, str):
        raise BadInput(f"the body is not a string, as encoding {encoding} needs")
    if encoding == "text":
        return body
    try:
        return b64decode(body, validate=True)
    except ValueError as error:
        raise BadInput(f"the body is not base64: {error}") from error


def text_line_reader(topic: str, defaults: Mapping[str, Any]) -> ReadLine:
    """Return a function that converts a line of text, without its newline, to a message."""
    from rocketlens.client.send.message import Message

    return lambda line: Message(topic, line, **defaults)


class ManySender:
    """Sends lines in batches, counts them, and reports lines that fail."""

    def __init__(
        self,
        producer: "Producer",
        read_line: ReadLine,
        on_error: Callable[[str], None],
        queue: "MessageQueue | None" = None,
    ) -> None:
        """Send with `producer`; with `queue`, to this queue in the order of the lines."""
        self._producer: Final = producer
        self._read_line: Final = read_line
        self._on_error: Final = on_error
        self._queue: Final = queue
        self._slots: Final = asyncio.Semaphore(1 if queue else _BATCHES_AT_ONCE)
        self._sending: Final[set[asyncio.Task[None]]] = set()
        self._sent = 0
        self._failed = 0
        self._stopped_at: int | None = None

    @property
    def summary(self) -> SendSummary:
        return SendSummary(self._sent, self._failed, self._stopped_at)

    async def send(self, pieces: AsyncIterator[bytes]) -> None:
        """Send the lines in a stream of pieces; complete lines do not wait for more input."""
        rest, number = b"", 0
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            await self._send_lines(whole, number + 1)
            number += len(whole)
            if self._stopped_at is not None:
                break
            if len(rest) > _MAX_LINE_BYTES:
                raise BadInput(f"line {number + 1} has more than {_MAX_LINE_BYTES} bytes")
        if rest and self._stopped_at is None:
            await self._send_lines([rest], number + 1)
        while self._sending:
            await asyncio.wait(self._sending)

    async def _send_lines(self, lines: list[bytes], first: int) -> None:
        from rocketlens.client.send.send_request import cut_batches

        for batch in cut_batches(self._messages_of(lines, first), attrgetter("message")):
            await self._start(batch)
            if self._stopped_at is not None:
                return

    def _messages_of(self, lines: list[bytes], first: int) -> Iterator[_Line]:
        for number, line in enumerate(lines, first):
            try:
                yield _Line(number, self._read_line(line))
            except RocketLensError as error:
                self._refuse(number, error)

    async def _start(self, batch: list[_Line]) -> None:
        """Send a batch as soon as a slot is free; return before the broker answers."""
        await self._slots.acquire()
        if self._stopped_at is not None:
            self._slots.release()
            return
        task = asyncio.get_running_loop().create_task(self._send_batch(batch))
        self._sending.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._slots.release()

    async def _send_batch(self, batch: list[_Line]) -> None:
        try:
            if len(batch) == 1:
                await self._producer.send(batch[0].message, queue=self._queue)
            else:
                messages = [each.message for each in batch]
                await self._producer.send_batch(messages, queue=self._queue)
        except (SendFailed, RemotingError) as error:
            self._stop(batch, error)
        except (BadInput, BrokerError) as error:
            if len(batch) == 1:
                self._refuse(batch[0].number, error)
            else:
                # Perhaps only one message of the batch is refused.
                for each in batch:
                    await self._send_batch([each])
        except RocketLensError as error:
            self._stop(batch, error)
        else:
            self._sent += len(batch)

    def _refuse(self, number: int, error: Exception) -> None:
        self._failed += 1
        if self._failed <= _MAX_SHOWN_ERRORS:
            self._on_error(f"line {number}: {printable(str(error))}")
        elif self._failed == _MAX_SHOWN_ERRORS + 1:
            self._on_error("more lines failed and are only counted")

    def _stop(self, batch: list[_Line], error: Exception) -> None:
        """Stop after a failed batch, because each later one would wait for the same timeout."""
        first, last = batch[0].number, batch[-1].number
        self._failed += len(batch)
        self._on_error(f"lines {first} to {last}: {printable(str(error))}")
        if self._stopped_at is None or first < self._stopped_at:
            self._stopped_at = first


async def pieces_of(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the contents of a stream as they arrive, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=4)
    read = _reader_of(stream)

    def read_all() -> None:
        while True:
            try:
                piece: bytes | OSError = read()
            except OSError as error:
                piece = error
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
            except RuntimeError:  # the loop is closed
                return
            if not piece or isinstance(piece, OSError):
                return

    # A daemon, because a thread that waits for a terminal cannot be stopped.
    threading.Thread(target=read_all, name="rocketlens-lines", daemon=True).start()
    while piece := await pieces.get():
        if isinstance(piece, OSError):
            raise piece
        yield piece


def _reader_of(stream: BinaryIO) -> Callable[[], bytes]:
    """Return a function that reads what is available, without taking a lock."""
    try:
        descriptor = stream.fileno()
    except OSError:
        return lambda: stream.read(_READ_BYTES)
    return lambda: os.read(descriptor, _READ_BYTES)


def open_lines(given: str, stdin: Any) -> BinaryIO:
    """:raises BadInput: if `given` is ``-`` and standard input is closed."""
    if given != "-":
        return Path(given).open("rb")
    if stdin is None:
        raise BadInput("lines are read from -, but standard input is closed")
    stream: BinaryIO = stdin.buffer
    return stream

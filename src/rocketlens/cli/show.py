"""``rocketlens show``: everything about one message."""

import codecs
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.cli.find import exit_code
from rocketlens.cli.options import add_source
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.model.rocketmq import is_system_topic
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode
from rocketlens.terminal.output import BOLD, coloured, note, say
from rocketlens.terminal.times import iso_text

if TYPE_CHECKING:
    from rocketlens.model.message import MessageExt

_LABEL_WIDTH: Final = 18
_TRANSACTION: Final = {0x4: "prepared", 0x8: "committed", 0xC: "rolled back"}
_COMPRESSION: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
_MAX_HEX_BYTES: Final = 1 << 20
_MAX_LISTED: Final = 10
_STEP_BYTES: Final = 1 << 16


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = SEARCH_EXIT_CODES
    parser.add_argument(
        "text", metavar="ID", help="a message id of either kind, TOPIC/QUEUE/OFFSET, or a key"
    )
    add_source(parser)
    parser.add_argument(
        "--topic", metavar="T", action="append", help="search only this topic; repeat for several"
    )
    parser.add_argument(
        "--body",
        choices=("text", "json", "hex", "raw"),
        help="how to print the body (default: text, or hex if it is not UTF-8); raw writes the "
        "body's bytes and nothing else",
    )


def run(arguments: Namespace) -> ExitCode:
    """Show one message in full, and name the others that match."""
    from rocketlens.cli.source import choose_source, find_in
    from rocketlens.terminal.notes import body_note, print_notes

    answer = find_in(choose_source(arguments), arguments, arguments.text)
    if answer.messages:
        message, *others = sorted(answer.messages, key=_is_waiting_copy)
        if arguments.body == "raw":
            sys.stdout.flush()
            sys.stdout.buffer.write(message.body)
        else:
            body = body_pieces(message.body, arguments.body)
            for line in (*field_lines(message), ""):
                print(line)
            for piece in body:
                sys.stdout.write(piece)
            print()
        sys.stdout.flush()
        if message.body_error:
            say(body_note(message))
        if others:
            positions = ", ".join(map(_position, others[:_MAX_LISTED]))
            more = f" and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
            note(f"{len(others)} more match, which `rocketlens find` lists: {positions}{more}")
    if not answer.messages or not answer.complete:
        print_notes(answer)
    return exit_code(answer)


def _is_waiting_copy(message: "MessageExt") -> bool:
    """Return whether this is a copy that the broker keeps until a transaction or a delay ends."""
    return is_system_topic(message.topic)


def _position(message: "MessageExt") -> str:
    return f"{message.topic}/{message.queue_id}/{message.queue_offset}"


def field_lines(message: "MessageExt") -> Iterator[str]:
    """Return all of a message except its body, one field per line, safe to print."""
    yield _field("Topic", message.topic)
    yield _field("Tags", message.tags or "-")
    yield _field("Keys", " ".join(message.keys) or "-")
    yield _field("Unique key", message.unique_key or "-")
    yield _field("Offset id", message.offset_msg_id)
    yield _field("Queue position", _position(message))
    yield _field("Physical offset", f"{message.physical_offset}, {message.store_size} bytes")
    yield _field("Stored", _when(message.store_timestamp_ms, str(message.store_host)))
    yield _field("Born", _when(message.born_timestamp_ms, str(message.born_host)))
    yield _field("Times reconsumed", str(message.reconsume_times))
    yield _field("Flags", _flags(message))
    if message.prepared_transaction_offset:
        yield _field("Half message", f"physical offset {message.prepared_transaction_offset}")
    how = f" as stored ({message.body_error})" if message.body_error else ""
    crc = message.body_crc & 0xFFFFFFFF
    yield _field("Body", f"{len(message.body)} bytes{how}, CRC {crc:#010x}")
    yield coloured("Properties", BOLD, sys.stdout)
    for name, value in message.properties.items():
        yield f"  {printable(name):<{_LABEL_WIDTH - 2}} {printable(value)}"


def _field(label: str, text: str) -> str:
    return f"{coloured(f'{label:<{_LABEL_WIDTH}}', BOLD, sys.stdout)} {printable(text)}"


def _when(epoch_ms: int, host: str) -> str:
    return f"{iso_text(epoch_ms)} ({epoch_ms}) by {host}"


def _flags(message: "MessageExt") -> str:
    words = [f"sys_flag {message.sys_flag:#x}"]
    if message.sys_flag & 0x1:
        words.append(f"stored compressed ({_COMPRESSION.get(message.sys_flag & 0x700, '?')})")
    transaction = _TRANSACTION.get(message.sys_flag & 0xC)
    if transaction:
        words.append(f"transaction {transaction}")
    words.append(f"flag {message.flag}")
    return ", ".join(words)


def body_pieces(body: bytes, form: str | None) -> Iterator[str]:
    """Return a body, safe to print, as text, json or hex; None is text, or hex if it is not UTF-8.

    It comes in pieces, because a body can have 64 MiB, and more when escaped.

    :raises BadInput: for json, when the body is not JSON, or too large or deep.
    """
    if form == "json":
        return _json(body)
    if form == "text" or (form is None and b"\0" not in body and _is_text(body)):
        return _text(body)
    return _hex(body)


def _is_text(body: bytes) -> bool:
    try:
        for _ in _decoded(body, "strict"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decoded(body: bytes, errors: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    for start in range(0, len(body), _STEP_BYTES):
        yield decoder.decode(body[start : start + _STEP_BYTES])
    yield decoder.decode(b"", final=True)


def _text(body: bytes) -> Iterator[str]:
    ended = ""
    for piece in _decoded(body, "replace"):
        # A line end may be cut in two.
        text = ended + piece
        ended = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n")
        yield printable(text, keep="\n\t")
    yield printable(ended)


def _json(body: bytes) -> Iterator[str]:
    import json

    if len(body) > limits.MAX_SHOWN_JSON_BYTES:
        raise BadInput(
            f"the body has {len(body)} bytes, too many to show as JSON (limit: "
            f"{limits.MAX_SHOWN_JSON_BYTES}): try --body raw"
        )
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON ({str(error)[:100]}): try --body text") from error
    if _is_deeper(value, limits.MAX_SHOWN_JSON_DEPTH):
        raise BadInput(
            f"the body is nested over {limits.MAX_SHOWN_JSON_DEPTH} levels deep: try --body text"
        )
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2)
    return (printable(piece, keep="\n") for piece in encoder.iterencode(value))


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether lists and objects are nested more than ``levels`` deep; does not recurse."""
    level = [value]
    for _ in range(levels + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True


def _hex(body: bytes) -> Iterator[str]:
    """Return lines of offset, 16 bytes in hex, and their ASCII, for the first MiB."""
    for start in range(0, min(len(body), _MAX_HEX_BYTES), 16):
        row = body[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        before = "\n" if start else ""
        yield f"{before}{start:08x}  {row.hex(' '):<47}  {text}"
    if len(body) > _MAX_HEX_BYTES:
        yield f"\n... {len(body) - _MAX_HEX_BYTES} more bytes: --body raw writes all of them"

"""``rocketlens show``: everything about one message."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Final

from rocketlens.cli.find import exit_code
from rocketlens.cli.notes import body_note, print_notes
from rocketlens.cli.output import BOLD, coloured, note, say
from rocketlens.cli.source import choose_source, find_in
from rocketlens.cli.times import iso_text
from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import SCHEDULE_TOPIC
from rocketlens.model.escape import printable
from rocketlens.model.message import MessageExt

_LABEL_WIDTH: Final = 18
_TRANSACTION: Final = {0x4: "prepared", 0x8: "committed", 0xC: "rolled back"}
_COMPRESSION: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
_HEX_BYTES: Final = 1 << 20
_LISTED: Final = 10


def run(arguments: Namespace) -> int:
    """Show the message, or say that it is not there."""
    answer = find_in(choose_source(arguments), arguments, arguments.text)
    if answer.messages:
        message, *others = sorted(answer.messages, key=_waits)
        if arguments.body == "raw":
            sys.stdout.flush()
            sys.stdout.buffer.write(message.body)
        else:
            body = list(body_lines(message.body, arguments.body))
            for line in (*field_lines(message), "", *body):
                print(line)
        sys.stdout.flush()
        if message.body_error:
            say(body_note(message))
        if others:
            places = ", ".join(map(_place, others[:_LISTED]))
            more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
            note(f"{len(others)} more match, which `rocketlens find` lists: {places}{more}")
    if not answer.messages or not answer.complete:
        print_notes(answer)
    return exit_code(answer)


def _waits(message: MessageExt) -> bool:
    """Say whether this is a copy that the broker keeps until a transaction or a delay ends."""
    return message.topic == SCHEDULE_TOPIC or message.topic.lower().startswith("rmq_sys_")


def _place(message: MessageExt) -> str:
    return f"{message.topic}/{message.queue_id}/{message.queue_offset}"


def field_lines(message: MessageExt) -> Iterator[str]:
    """Give all of a message but its body, a field a line, safe to print."""
    yield _field("Topic", message.topic)
    yield _field("Tags", message.tags or "-")
    yield _field("Keys", " ".join(message.keys) or "-")
    yield _field("Unique key", message.unique_key or "-")
    yield _field("Offset id", message.offset_msg_id)
    yield _field("Queue position", _place(message))
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


def _flags(message: MessageExt) -> str:
    words = [f"sys_flag {message.sys_flag:#x}"]
    if message.sys_flag & 0x1:
        words.append(f"stored compressed ({_COMPRESSION.get(message.sys_flag & 0x700, '?')})")
    transaction = _TRANSACTION.get(message.sys_flag & 0xC)
    if transaction:
        words.append(f"transaction {transaction}")
    words.append(f"flag {message.flag}")
    return ", ".join(words)


def body_lines(body: bytes, form: str | None) -> Iterator[str]:
    """Give a body as lines, safe to print, in a form: text, json, hex, or None for what fits.

    :raises BadInput: when it is to be shown as JSON, and is none.
    """
    if form == "json":
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the body is no JSON ({str(error)[:100]}): try --body text") from error
        yield from printable(_pretty(value), keep="\n").split("\n")
    elif form == "text":
        yield from _text(body.decode("utf-8", "replace"))
    elif form == "hex":
        yield from _hex(body)
    else:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            yield from _hex(body)
        else:
            yield from _hex(body) if "\0" in text else _text(text)


def _pretty(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _text(text: str) -> list[str]:
    return printable(text.replace("\r\n", "\n"), keep="\n\t").split("\n")


def _hex(body: bytes) -> Iterator[str]:
    """Give lines of offset, 16 bytes in hex, and their ASCII, for the first MiB."""
    for start in range(0, min(len(body), _HEX_BYTES), 16):
        row = body[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {text}"
    if len(body) > _HEX_BYTES:
        yield f"... {len(body) - _HEX_BYTES} more bytes: --body raw gives them all"

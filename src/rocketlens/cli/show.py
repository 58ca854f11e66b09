"""``rocketlens show``: prints one message in full."""

import sys
import time
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketlens.cli.find import exit_code, print_answer, print_interpretation
from rocketlens.cli.options import (
    add_all_topics,
    add_body_rules,
    add_message,
    add_text_output,
    option,
)
from rocketlens.cli.printing import MessageOutput, add_colour, cells, fit, highlight
from rocketlens.cli.source import ChosenSource, choose_source
from rocketlens.cli.story import columns_of_output, group_lines, unlearnt_lines
from rocketlens.errors import BadInput
from rocketlens.model.life import WAITING_TOPICS, due_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_system_topic
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import checked_json, indented, json_of
from rocketlens.terminal.message_values import BodyView, hex_lines, utf8_text
from rocketlens.terminal.notes import body_note, print_notes
from rocketlens.terminal.output import (
    BOLD,
    SEARCH_EXIT_CODES,
    ExitCode,
    choose_colour,
    coloured,
    moment_text,
    say,
    wrap_lines,
)

if TYPE_CHECKING:
    from rocketlens.decode.bodies import DecodedBody

_LABEL_WIDTH: Final = 18
_TRANSACTION: Final = {0x4: "prepared", 0x8: "committed", 0xC: "rolled back"}
_COMPRESSION: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
_MAX_HEX_BYTES: Final = 1 << 20
_MAX_LISTED: Final = 10
_STEP: Final = 1 << 16
_SHOWN_ONLY: Final = frozenset({"hex", "raw"})
"""Forms of a body that -o json excludes."""
EXAMPLES: Final = """
rocketlens show order-paid/3/881204  # a message by the position that find prints
# by its message id of either kind, in a cluster
rocketlens show AC1400020001A3B4C5D6123456780000 -n 127.0.0.1:9876
rocketlens show ORDER-42 -t order-paid --body raw  # only the bytes of the body
rocketlens show ORDER-42 -o json --body json  # all that match, as JSON
rocketlens show ORDER-42 --body-rules bodies.toml  # the body decoded by the rules of a file
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = SEARCH_EXIT_CODES
    add_message(parser)
    add_all_topics(parser)
    add_text_output(
        parser, "text (default), or everything that matches as the JSON object that find prints"
    )
    add = partial(option, parser)
    add(
        "--body",
        "how to print the body (default: text, JSON indented on a terminal, decoded if it is "
        "not UTF-8; base64 with -o json); raw writes only the bytes of the body",
        choices=("decoded", "text", "json", "hex", "base64", "raw"),
    )
    add_body_rules(parser)
    add_colour(parser)
    add("--groups", "also print what each consumer group did with it, as `rocketlens story` does")


def run(arguments: Namespace) -> ExitCode:
    from rocketlens.query.request import FindRequest

    choose_colour(arguments.color)
    is_object = arguments.output == "json"
    if is_object and (arguments.body in _SHOWN_ONLY or arguments.groups):
        raise BadInput(
            "-o json: bodies are text, json, base64 or decoded; `story -o json` prints groups"
        )
    source = choose_source(arguments)
    request = FindRequest.parse(arguments.text, arguments.topic or None, all_topics=arguments.all)
    answer = source.find(request)
    if is_object:
        output = MessageOutput("json", bodies=BodyView.of(arguments))
        print_answer(answer, output, is_object=True)
        return exit_code(answer)
    is_complete = True
    if answer.messages:
        # Half messages and delayed copies come last.
        message, *others = sorted(answer, key=lambda each: is_system_topic(each.topic))
        if arguments.body == "raw":
            sys.stdout.flush()
            sys.stdout.buffer.write(message.body)
        else:
            decoded = _decoded_body(message, arguments)
            body = body_pieces(message.body, arguments.body, decoded)
            due = _due_text(source, message, others)
            for line in (*field_lines(message, arguments.text, decoded, due), ""):
                print(line)
            for piece in body:
                sys.stdout.write(piece)
            print()
            if arguments.groups:
                is_complete = _print_groups(source, arguments, message)
        sys.stdout.flush()
        if message.body_error:
            say(body_note(message))
        for line in other_lines(message, others):
            say(line)
    if not answer.messages or not answer.complete:
        print_notes(answer, verbose=arguments.verbose)
    else:
        print_interpretation(answer)
    return exit_code(answer) if is_complete else ExitCode.INCOMPLETE


def _due_text(
    source: ChosenSource, message: MessageExt, others: Sequence[MessageExt]
) -> str | None:
    """Return when a message is due, as far as the source shows it."""
    from rocketlens.query.request import FindRequest

    end_ms = None
    if message.topic in WAITING_TOPICS and source.cluster is None:
        newest = source.find(FindRequest(max_num=1, all_topics=True))
        end_ms = max((each.store_timestamp_ms for each in newest), default=None)
    return due_text(message, others, time.time_ns() // 1_000_000, end_ms)


def other_lines(shown: MessageExt, others: Sequence[MessageExt]) -> Iterator[str]:
    """Yield lines, safe to print, on the other messages that match."""
    if not others:
        return
    yield f"{len(others)} more match; `rocketlens show POSITION` shows one:"
    listed = others[:_MAX_LISTED]
    width = max(cells(printable(each.position)) for each in listed)
    for each in listed:
        body = (
            "the same body" if each.body == shown.body else f"another body, {len(each.body)} bytes"
        )
        id_words = "" if each.msg_id == shown.msg_id else f", id {printable(each.msg_id)}"
        position = fit(printable(each.position), width)
        yield f"  {position}  {moment_text(each.store_timestamp_ms)}  {body}{id_words}"
    if len(others) > _MAX_LISTED:
        yield f"  and {len(others) - _MAX_LISTED} more: `rocketlens find` lists them"


def _print_groups(source: ChosenSource, arguments: Namespace, message: MessageExt) -> bool:
    """Print what groups did with a message; return whether everything could be read."""
    from rocketlens.query.request import name_of

    name, kind = name_of(message)
    story = source.story(name, arguments.topic, kind=kind)
    columns = columns_of_output()
    print()
    for line in (*group_lines(story, columns), *unlearnt_lines(story, columns)):
        print(line)
    return story.complete


def _decoded_body(message: MessageExt, arguments: Namespace) -> "DecodedBody | None":
    """Return the decoded body, or None if the body is printed unchanged.

    :raises BadInput: if the rules are invalid.
    """
    is_asked_for = arguments.body == "decoded" or arguments.body_rules is not None
    is_plain = b"\0" not in message.body and utf8_text(message.body) is not None
    if arguments.body not in (None, "decoded") or (is_plain and not is_asked_for):
        return None
    return BodyView.of(arguments).decoded(message)


def field_lines(
    message: MessageExt,
    searched: str | None = None,
    decoded: "DecodedBody | None" = None,
    due: str | None = None,
) -> Iterator[str]:
    """Yield all fields of a message except the body, one per line, safe to print."""
    yield _field("Topic", message.topic)
    yield _field("Tags", message.tags or "-")
    yield _field("Keys", " ".join(message.keys) or "-", searched)
    yield _field("Unique key", message.unique_key or "-", searched)
    yield _field("Offset id", message.offset_msg_id or "- (unknown to its broker)", searched)
    yield _field("Queue position", message.position, searched)
    yield _field("Physical offset", f"{message.physical_offset}, {message.store_size} bytes")
    yield _field("Stored", _when(message.store_timestamp_ms, str(message.store_host)))
    if due is not None:
        yield _field("Kept for later", due)
    yield _field("Born", _when(message.born_timestamp_ms, message.sent_from))
    yield _field("Times reconsumed", str(message.reconsume_times))
    yield _field("Flags", _flags(message))
    if message.prepared_transaction_offset:
        yield _field("Half message", f"physical offset {message.prepared_transaction_offset}")
    how = f" as stored ({message.body_error})" if message.body_error else ""
    crc = message.body_crc & 0xFFFFFFFF
    yield _field("Body", f"{len(message.body)} bytes{how}, CRC {crc:#010x}")
    if decoded is not None:
        yield _field("Body decoded as", decoded.described())
    yield coloured("Properties", BOLD, sys.stdout)
    for name, value in message.properties.items():
        yield f"  {printable(name):<{_LABEL_WIDTH - 2}} {printable(value)}"


def _field(label: str, text: str, searched: str | None = None) -> str:
    lines = wrap_lines(printable(text), _LABEL_WIDTH)
    shown = f"\n{'':{_LABEL_WIDTH}} ".join(highlight(line, searched) for line in lines)
    return f"{coloured(f'{label:<{_LABEL_WIDTH}}', BOLD, sys.stdout)} {shown}"


def _when(epoch_ms: int, host: str) -> str:
    return f"{moment_text(epoch_ms)} ({epoch_ms}) by {host}"


def _flags(message: MessageExt) -> str:
    flags = [f"sys_flag {message.sys_flag:#x}"]
    if message.sys_flag & 0x1:
        flags.append(f"stored compressed ({_COMPRESSION.get(message.sys_flag & 0x700, '?')})")
    transaction = _TRANSACTION.get(message.sys_flag & 0xC)
    if transaction:
        flags.append(f"transaction {transaction}")
    flags.append(f"flag {message.flag}")
    return ", ".join(flags)


def body_pieces(
    body: bytes, form: str | None, decoded: "DecodedBody | None" = None
) -> Iterator[str]:
    """Return a body, safe to print, as text, json, hex or base64, or as `decoded`.

    None means text, or hex if it is not UTF-8; on a terminal, JSON is indented. The body comes in
    pieces, because it can have 64 MiB, and more when escaped.

    :raises BadInput: for json, if the body is not JSON, too large or too deep.
    """
    if decoded is not None:
        text = decoded.as_json()
        if text is not None:
            return indented(text)
        return _hex(body) if decoded.text is None else _text(decoded.text)
    if form == "json":
        return indented(checked_json(body))
    if form == "base64":
        return iter((b64encode(body).decode("ascii"),))
    if form is None and sys.stdout.isatty() and body.lstrip()[:1] in {b"{", b"["}:
        text = json_of(body)
        if text is not None:
            return indented(text)
    if form == "text":
        return _text(body.decode("utf-8", "replace"))
    text = None if b"\0" in body else utf8_text(body)
    return _hex(body) if form is not None or text is None else _text(text)


def _text(text: str) -> Iterator[str]:
    text = text.replace("\r\n", "\n")
    for start in range(0, len(text), _STEP):
        yield printable(text[start : start + _STEP], keep="\n\t")


def _hex(body: bytes) -> Iterator[str]:
    for number, line in enumerate(hex_lines(body, _MAX_HEX_BYTES)):
        yield f"\n{line}" if number else line
    if len(body) > _MAX_HEX_BYTES:
        yield f"\n... {len(body) - _MAX_HEX_BYTES} more bytes: --body raw writes all of them"

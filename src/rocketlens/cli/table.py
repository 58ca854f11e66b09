"""Messages as rows: a table that fits the terminal, or tab-separated values in a pipe."""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rocketlens.model.escape import printable
from rocketlens.terminal.output import BOLD, DIM, coloured
from rocketlens.terminal.times import iso_text, time_text, zone_text

if TYPE_CHECKING:
    from rocketlens.model.message import MessageExt

PREVIEW_BYTES: Final = 240
_PIPED_COLUMNS: Final = ("time", "topic", "tags", "keys", "id", "position", "size", "body")
# On a terminal. Ids and positions are never cut: people copy them.
_MAX_WIDTHS: Final = {"TOPIC": 32, "TAGS": 16, "KEYS": 32}
_GAP: Final = 2
_MIN_BODY_COLUMNS: Final = 24


def print_messages(messages: "Sequence[MessageExt]") -> None:
    """Print messages to stdout, one row each; without messages, nothing at all."""
    if not messages:
        return
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size((100, 24)).columns
        for line in terminal_lines(messages, columns):
            print(line)
    else:
        print("\t".join(_PIPED_COLUMNS))
        for message in messages:
            print("\t".join(_piped_row(message)))


def _piped_row(message: "MessageExt") -> Iterable[str]:
    yield iso_text(message.store_timestamp_ms)
    yield printable(message.topic)
    yield printable(message.tags or "")
    yield printable(" ".join(message.keys))
    yield printable(message.msg_id)
    yield f"{message.queue_id}/{message.queue_offset}"
    yield str(len(message.body))
    yield preview(message.body)


def terminal_lines(messages: "Sequence[MessageExt]", columns: int) -> Iterable[str]:
    """Return the lines of a table for a terminal of some width.

    If a row does not fit, the id and the start of the body follow on a second line.
    """
    zones = {zone_text(message.store_timestamp_ms) for message in messages}
    zone = zones.pop() if len(zones) == 1 else ""
    titles = [f"TIME ({zone})" if zone else "TIME", "TOPIC", "TAGS", "KEYS", "POSITION", "SIZE"]
    # Rows are made twice: kept, those of a large answer would take as much memory as the answer.
    widths = [cells(title) for title in titles]
    id_width = 0
    for message in messages:
        row = _row(message, with_zone=not zone)
        for number, cell in enumerate(row):
            widths[number] = max(widths[number], cells(cell))
        id_width = max(id_width, cells(printable(message.msg_id)))
    for number, title in enumerate(titles):
        widths[number] = min(_MAX_WIDTHS.get(title, 1 << 20), widths[number])
    used = sum(widths) + _GAP * len(widths)
    one_line = used + id_width + _GAP + _MIN_BODY_COLUMNS <= columns
    if not one_line:
        _narrow(widths, titles, used - _GAP - columns)
    head = _line(titles, widths)
    if one_line:
        yield coloured(f"{head}  {fit('ID', id_width)}  BODY", BOLD, sys.stdout)
    else:
        yield coloured(head, BOLD, sys.stdout)
        yield coloured("  ID, start of the body", BOLD, sys.stdout)
    for message in messages:
        row, text = _row(message, with_zone=not zone), printable(message.msg_id)
        body = preview(message.body)
        if one_line:
            room = columns - used - id_width - _GAP
            yield f"{_line(row, widths)}  {fit(text, id_width)}  {cut(body, room)}"
        else:
            yield _line(row, widths)
            room = columns - id_width - 2 * _GAP
            start = f"  {cut(body, room)}" if room >= _MIN_BODY_COLUMNS // 2 else ""
            yield coloured(f"  {fit(text, id_width)}{start}", DIM, sys.stdout)


def _row(message: "MessageExt", *, with_zone: bool) -> list[str]:
    moment = message.store_timestamp_ms
    return [
        time_text(moment) + (f" {zone_text(moment)}" if with_zone else ""),
        printable(message.topic),
        printable(message.tags or ""),
        printable(" ".join(message.keys)),
        f"{message.queue_id}/{message.queue_offset}",
        size_text(len(message.body)),
    ]


def _narrow(widths: list[int], titles: Sequence[str], excess: int) -> None:
    """Narrow keys, tags and topic, in this order, by ``excess`` in all, to no less than 8 each."""
    for title in ("KEYS", "TAGS", "TOPIC"):
        number = titles.index(title)
        less = max(0, min(excess, widths[number] - 8))
        widths[number] -= less
        excess -= less


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    *texts, size = row
    *text_widths, size_width = widths
    fitted = [fit(text, width) for text, width in zip(texts, text_widths, strict=True)]
    return (" " * _GAP).join([*fitted, " " * (size_width - len(size)) + size])


def preview(body: bytes) -> str:
    """Return the start of a body on one line: its text, or hex if it is not UTF-8."""
    start = body[:PREVIEW_BYTES]
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:  # not just a character cut in two
            return f"0x{start[: PREVIEW_BYTES // 4].hex()}"
        text = start[: error.start].decode("utf-8")
    return printable(text)


def size_text(count: int) -> str:
    """Return a number of bytes in at most six characters."""
    size = float(count)
    for unit in ("", "K", "M"):
        if size < 1000:
            return f"{count}" if not unit else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def cells(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """Return text of at most ``width`` columns, with ``…`` if something was cut off."""
    if cells(text) <= width:
        return text
    room = width - 1
    kept = []
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def fit(text: str, width: int) -> str:
    """Return text of exactly ``width`` columns, cut or padded with spaces."""
    short = cut(text, width)
    return short + " " * (width - cells(short))

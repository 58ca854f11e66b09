"""Two messages side by side: fields by name, bodies line by line."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import starmap, zip_longest
from typing import Final, NamedTuple

from rocketlens.console.preferences import Reader
from rocketlens.console.values import BodyValue, MessageDetail
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import layout_json

MAX_COMPARED_LINES: Final = 2_000
"""Lines of a body that are compared with those of another one: up to a second of work."""
_SHOWN_EQUAL: Final = 3
"""Equal lines that are shown before and after those that differ."""


class LinePair(NamedTuple):
    """A line of each body, in three parts of which the middle differs; None where one has none."""

    left: tuple[str, str, str] | None
    right: tuple[str, str, str] | None
    skipped: int = 0
    """Equal lines that are left out here, instead of a pair."""


def fields_of(detail: MessageDetail, t: Reader) -> dict[str, str]:
    """Return what a message says of itself, by name as its reader calls it, and its properties."""
    row = detail.message
    return {
        t("fact.source"): row.source,
        t("column.topic"): row.topic,
        t("column.position"): f"{row.queue_id}/{row.queue_offset}",
        t("fact.broker"): row.broker,
        t("fact.stored"): t.time(row.store_timestamp_ms),
        t("fact.born"): f"{t.time(row.born_timestamp_ms)} {detail.born_host}",
        t("act_fact.offset_msg_id"): row.offset_msg_id,
        t("act_fact.size"): f"{row.body_bytes:,} {row.body_format}",
        t("id_part.sys_flag"): str(detail.sys_flag),
        t("id_part.flag"): str(detail.flag),
        t("id_part.body_crc"): str(detail.body_crc),
        **detail.properties,
        **detail.system_properties,
    }


def lines_of(body: BodyValue) -> list[str]:
    """Return a body as its page shows it, line by line."""
    parts = layout_json(body.content) if body.is_json else [("", body.content)]
    return "".join(printable(text, "\n\t") for _, text in parts).splitlines()


def compared(left: Sequence[str], right: Sequence[str]) -> Iterator[LinePair]:
    """Yield lines in pairs; of many equal ones those next to lines that differ."""
    matcher, end = SequenceMatcher(None, left, right, autojunk=False), 0
    for group in matcher.get_grouped_opcodes(_SHOWN_EQUAL):
        if group[0][1] > end:
            yield LinePair(None, None, group[0][1] - end)
        for _, a, a_end, b, b_end in group:
            yield from starmap(_pair, zip_longest(left[a:a_end], right[b:b_end]))
        end = group[-1][2]
    if end < len(left):
        yield LinePair(None, None, len(left) - end)


def _pair(left: str | None, right: str | None) -> LinePair:
    if left is None or right is None:
        one, other = (None if each is None else ("", each, "") for each in (left, right))
        return LinePair(one, other)
    begin = _common(left, right)
    end = _common(left[begin:][::-1], right[begin:][::-1])

    def parts(line: str) -> tuple[str, str, str]:
        return line[:begin], line[begin : len(line) - end], line[len(line) - end :]

    return LinePair(parts(left), parts(right))


def _common(left: str, right: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(left), len(right)))

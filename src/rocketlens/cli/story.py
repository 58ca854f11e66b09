"""``rocketlens story``: prints what happened to a message, and what consumer groups did with it."""

import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from rocketlens.cli.find import exit_code, print_interpretation
from rocketlens.cli.options import add_message, add_text_output, option
from rocketlens.cli.printing import cells
from rocketlens.cli.source import choose_source
from rocketlens.model.answer import Answer
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    SEARCH_EXIT_CODES,
    YELLOW,
    ExitCode,
    coloured,
    iso_text,
    moment_text,
    note,
    time_text,
    zone_text,
)

if TYPE_CHECKING:
    from rocketlens.query.story.story import GroupStory, Story

_PIPED_COLUMNS: Final = 100
_MIN_COLUMNS: Final = 60
_MAX_COLUMNS: Final = 120
_TIME_COLUMNS: Final = 25
_LABEL_COLUMNS: Final = 12
_INDENT: Final = 2
_MAX_LISTED: Final = 10
_STATES: Final = {
    "consumed": ("consumed", GREEN),
    "filtered": ("filtered out", GREEN),
    "not_yet": ("not yet", YELLOW),
    "passed": ("offset passed", YELLOW),
    "passed_offline": ("offline, its offset passed", YELLOW),
    "passed_by_reset": ("offset passed by a reset", YELLOW),
    "never_subscribed": ("never subscribed", DIM),
    "retrying": ("sent again", YELLOW),
    "dead_letter": ("dead letter", RED),
    "broadcasting": ("broadcasting", DIM),
    "unknown": ("not known", RED),
}
EXAMPLES: Final = """
rocketlens story order-paid/3/881204  # a message by its position
rocketlens story ORDER-42 -t order-paid -n 127.0.0.1:9876  # by a key, in a cluster
rocketlens story AC1400020001A3B4C5D6123456780000 -g billing  # one consumer group only
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = SEARCH_EXIT_CODES
    add_message(parser)
    add = partial(option, parser)
    add("-g --group G", "only this consumer group")
    add("--one", "if several messages match, print only the story of the first")
    add("--trace-topic T", "the topic of clients' traces (default: RMQ_SYS_TRACE_TOPIC)")
    add_text_output(parser, "text (default), or one JSON object")


def run(arguments: Namespace) -> ExitCode:
    story = choose_source(arguments).story(
        arguments.text,
        arguments.topic,
        trace_topic=arguments.trace_topic,
        group=arguments.group,
        one=arguments.one,
    )
    if arguments.output == "json":
        _print_json(story)
    else:
        columns = columns_of_output()
        if story.summary:
            print("\n".join([*_wrap(story.summary, columns), ""]))
        for number, each in enumerate((story, *story.more)):
            for line in ("", *story_lines(each, columns)) if number else story_lines(each, columns):
                print(line)
    sys.stdout.flush()
    messages = () if story.message is None else (story.message,)
    answer = Answer(story.query, messages, story.coverage)
    if not messages or not answer.complete:
        print_notes(answer, verbose=arguments.verbose)
    else:
        print_interpretation(answer)
    if answer.complete and not story.complete:
        note("the story is INCOMPLETE: what failed is named above (exit code 3)")
    if story.others:
        shown = ", ".join(story.others[:_MAX_LISTED])
        more = len(story.others) - _MAX_LISTED
        matches = "match" if len(story.others) > 1 else "matches"
        note(
            f"{counted(len(story.others), 'other message')} {matches}, which `rocketlens find` "
            f"lists: {shown}" + (f" and {more} more" if more > 0 else "")
        )
    return ExitCode.INCOMPLETE if not story.complete else exit_code(answer)


def columns_of_output() -> int:
    if not sys.stdout.isatty():
        return _PIPED_COLUMNS
    columns = shutil.get_terminal_size((80, 24)).columns
    return min(max(columns, _MIN_COLUMNS), _MAX_COLUMNS)


def story_lines(story: "Story", columns: int) -> Iterator[str]:
    """Yield a story as text lines, safe to print; nothing without a message."""
    message = story.message
    if message is None:
        return
    yield coloured(printable(message.position), BOLD, sys.stdout)
    keys = " ".join(message.keys)
    for label, text in (
        ("unique key", message.unique_key),
        ("offset id", message.offset_msg_id),
        ("tag", message.tags),
        ("keys", keys),
    ):
        if text:
            lines = _wrap(text, columns - _INDENT - _LABEL_COLUMNS)
            yield from _label_lines(label, _LABEL_COLUMNS, lines)
    yield ""
    zone = zone_text(message.store_timestamp_ms)
    yield coloured(f"What happened ({zone})", BOLD, sys.stdout)
    for event in story.events:
        when = "?" if event.time_ms is None else time_text(event.time_ms)
        lines = _wrap_with_source(event.text, event.source, columns - _INDENT - _TIME_COLUMNS)
        yield from _label_lines(when, _TIME_COLUMNS, lines)
    yield ""
    yield from group_lines(story, columns)
    yield from _list_lines("Why it came twice", story.repeats, columns)
    yield from unlearnt_lines(story, columns)


def group_lines(story: "Story", columns: int) -> Iterator[str]:
    """Yield what groups did as text lines, safe to print."""
    yield coloured("What groups did", BOLD, sys.stdout)
    for group in story.groups:
        yield from _group_lines(group, columns)
    if not story.groups:
        yield " " * _INDENT + "no consumer group of the topic is known"


def unlearnt_lines(story: "Story", columns: int) -> Iterator[str]:
    """Yield what is unknown as text lines, safe to print."""
    failed = [f"{each.what}: {each.why}" for each in story.unlearnt if each.is_failure]
    yield from _list_lines("What could not be learnt (FAILED)", failed, columns)
    others = [f"{each.what}: {each.why}" for each in story.unlearnt if not each.is_failure]
    yield from _list_lines("What was not searched, or is not recorded", others, columns)


def _label_lines(label: str, width: int, lines: Sequence[str]) -> Iterator[str]:
    """Yield lines after a label that takes `width` columns."""
    for number, line in enumerate(lines):
        head = f"{'' if number else label:<{width}}"
        yield f"{'':{_INDENT}}{coloured(head, DIM, sys.stdout)}{line}"


def _group_lines(group: "GroupStory", columns: int) -> Iterator[str]:
    word, colour = _STATES[group.state]
    since = f" since {moment_text(group.since_ms)}" if group.since_ms is not None else ""
    if group.state == "retrying" and group.retries:
        limit = f" of {group.max_retries}" if group.max_retries is not None else ""
        word = f"in retry {group.retries}{limit}"
    elif group.retries:
        since += f", after {group.retries} {'retry' if group.retries == 1 else 'retries'}"
    name = printable(group.group)
    is_one_line = _INDENT + cells(name) + 2 + len(word) + len(since) <= columns
    head = f"{'':{_INDENT}}{name}: {coloured(word, colour, sys.stdout)}"
    yield head + (since if is_one_line else "")
    if since and not is_one_line:
        yield " " * 2 * _INDENT + since.removeprefix(", ").strip()
    room = columns - 2 * _INDENT
    for line in _wrap_with_source(group.rests_on, group.source, room):
        yield " " * 2 * _INDENT + line
    for repeat in group.repeats:
        for line in _wrap(f"twice: {repeat}", room):
            yield " " * 2 * _INDENT + line


def _list_lines(title: str, texts: list[str] | tuple[str, ...], columns: int) -> Iterator[str]:
    if not texts:
        return
    yield ""
    yield coloured(title, BOLD, sys.stdout)
    for text in texts:
        for number, line in enumerate(_wrap(text, columns - _INDENT - 2)):
            yield f"{'':{_INDENT}}{'- ' if number == 0 else '  '}{line}"


def _wrap_with_source(text: str, source: str, room: int) -> list[str]:
    """Return wrapped text, with its source in brackets at the end."""
    return _wrap(f"{text} [{source}]" if source else text, room)


def _wrap(text: str, room: int) -> list[str]:
    """Wrap text; ids and positions are never broken."""
    return textwrap.wrap(printable(text), room, break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def _print_json(story: "Story") -> None:
    more = {"summary": story.summary, "more": [_fields(each) for each in story.more]}
    print(json_line(_fields(story) | (more if story.more else {})))


def _fields(story: "Story") -> dict[str, Any]:
    from rocketlens.terminal.as_json import message_fields

    return {
        "query": story.query,
        "complete": story.complete,
        "message": None if story.message is None else message_fields(story.message),
        "others": list(story.others),
        "events": [{**asdict(each), "time": _iso(each.time_ms)} for each in story.events],
        "groups": [{**asdict(each), "since": _iso(each.since_ms)} for each in story.groups],
        "repeats": list(story.repeats),
        "unlearnt": [asdict(each) for each in story.unlearnt],
        "coverage": [asdict(each) for each in story.coverage],
    }


def _iso(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else iso_text(epoch_ms)

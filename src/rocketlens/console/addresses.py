"""A search or a message as it is written elsewhere: a command line, curl, a link."""

import shlex
from collections.abc import Sequence

from rocketlens.console.question import Question
from rocketlens.console.sources import ConsoleSource
from rocketlens.console.zones import is_local


def source_options(source: ConsoleSource) -> list[str]:
    """Return the options by which a command line reads the same source."""
    return ["--store" if source.kind == "store" else "--namesrv", source.title]


def find_command(
    question: Question, sources: Sequence[ConsoleSource], *, has_rules: bool = False
) -> str:
    """Return the command line of a search; of several sources one for each, on a line each.

    It is empty where `rocketlens find` cannot ask the same: it has no tags. If the console
    ``has_rules`` for bodies, it lacks their file, so a filter would decide by other values.
    """
    if question.tag or (question.has_filter and has_rules):
        return ""
    words = ["rocketlens", "find"]
    if question.kind == "key":
        words += ["--key", question.text]
    elif question.kind != "auto":
        words += ["--kind", question.kind]
    for name, value in (
        ("--topic", question.topic),
        # Without a zone a command line would take them as times of its machine.
        ("--since", str(question.begin) if is_local(question.since) else question.since),
        ("--until", str(question.end) if is_local(question.until) else question.until),
    ):
        if value:
            words += [name, value]
    for name, value in (("--where", question.where), ("--grep", question.grep)):
        if value:
            # In one word: a value can begin with a dash.
            words.append(f"{name}={value}")
    if question.exhaustive:
        words.append("--exhaustive")
    words += ["--max", str(question.max_num)]
    if question.text and question.kind != "key":
        behind = ["--", question.text] if question.text.startswith("-") else [question.text]
    else:
        behind = []
    return "\n".join(shlex.join([*words, *source_options(each), *behind]) for each in sources)


def show_command(position: str, source: ConsoleSource) -> str:
    """Return the command line that shows a message."""
    return shlex.join(["rocketlens", "show", position, *source_options(source)])


def curl_command(url: str) -> str:
    """Return the command line that asks the API."""
    return shlex.join(["curl", "-sS", url])

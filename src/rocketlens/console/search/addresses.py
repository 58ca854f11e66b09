"""A search or a message as it is written elsewhere: a command line, curl, a link."""

import shlex
from collections.abc import Sequence
from typing import Final

from rocketlens.console.preferences import is_local
from rocketlens.console.search.question import Question
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.model.rocketmq import TRACE_TOPIC
from rocketlens.query.request import is_looked_up, parse_tags
from rocketlens.query.topic_choice import is_pattern

_COLUMNS: Final = "store_time, topic, queue_id, queue_offset, tags, keys, msg_id"
_NEWEST: Final = "order by store_timestamp_ms desc, physical_offset desc"


def find_command(
    question: Question, sources: Sequence[ConsoleSource], *, has_rules: bool = False
) -> str:
    """Return the command line of a search; of several sources one for each, on a line each.

    It is empty where `rocketlens find` cannot ask the same: if the console ``has_rules`` for
    bodies, it lacks their file, so a filter would decide by other values.
    """
    if question.has_filter and has_rules:
        return ""
    arguments = ["rocketlens", "find"]
    if question.kind == "key":
        arguments += ["--key", question.text]
    elif question.kind != "auto":
        arguments += ["--kind", question.kind]
    if question.topic:
        arguments += ["--topic", question.topic]
    if question.tag:
        arguments.append(f"--tag={question.tag}")
    arguments += _narrowing_options(question)
    if question.exhaustive:
        arguments.append("--exhaustive")
    if question.all_topics:
        arguments.append("--all")
    arguments += ["--max", str(question.max_num)]
    if question.text and question.kind != "key":
        behind = ["--", question.text] if question.text.startswith("-") else [question.text]
    else:
        behind = []
    return "\n".join(shlex.join([*arguments, *each.command_options, *behind]) for each in sources)


def sql_command(
    question: Question, sources: Sequence[ConsoleSource], *, has_rules: bool = False
) -> str:
    """Return the command line that finds the same by SQL; of several sources one for each.

    It is empty where there is none. SQL looks up keys and unique keys only: a text that can also
    be something else, a position and an offset message id would be compared with every message.
    Without a topic and a key it would have those of topics that a search leaves out. Rules for
    bodies as `find_command` has them.
    """
    is_key = question.kind == "key" and bool(question.text)
    is_unique_key = question.kind == "unique-key" and is_looked_up(question.text)
    is_other = bool(question.text) and not (is_key or is_unique_key)
    topics = [each.strip() for each in question.topic.split(",") if each.strip()]
    is_unlike = (
        question.exhaustive
        or (question.has_filter and has_rules)
        or (is_unique_key and bool(question.where))
    )
    if is_other or is_unlike or not (topics or is_key or is_unique_key):
        return ""
    conditions: list[str] = []
    options: list[str] = []
    if any(map(is_pattern, topics)):
        options += ["--topic", question.topic]
    elif topics:
        conditions.append(_one_of("topic", topics))
    if is_key:
        conditions.append(f"{_literal(question.text)} = any(keys)")
    if not (topics or question.all_topics):
        # The one of RocketMQ's own topics whose messages have keys of others.
        conditions.append(f"topic <> {_literal(TRACE_TOPIC)}")
    tags = parse_tags(question.tag or None)
    if tags is not None:
        conditions.append(_one_of("tags", sorted(tags)))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    query = f"select {_COLUMNS} from messages{where} {_NEWEST} limit {question.max_num}"  # noqa: S608 - it is shown
    if is_unique_key:
        options.append(_unique_key_option(question.text))
    arguments = ["rocketlens", "sql", query, *options, *_narrowing_options(question)]
    return "\n".join(shlex.join([*arguments, *each.command_options]) for each in sources)


def sql_of_message(
    unique_key: str | None, topic: str, queue_id: int, queue_offset: int, source: ConsoleSource
) -> str:
    """Return the command line that finds a message by SQL; empty if it has no unique key, which is
    what SQL looks up: its position would be compared with every message of the topic.
    """
    if unique_key is None or not is_looked_up(unique_key):
        return ""
    position = f"topic = {_literal(topic)} and queue_id = {queue_id}"
    query = f"select * from messages where {position} and queue_offset = {queue_offset}"  # noqa: S608 - it is shown
    arguments = ["rocketlens", "sql", query, _unique_key_option(unique_key)]
    return shlex.join([*arguments, *source.command_options])


def _unique_key_option(unique_key: str) -> str:
    """Return the option that has a unique key looked up: a column would be compared."""
    return f"--where=unique_key = {_literal(unique_key)}"


def _narrowing_options(question: Question) -> list[str]:
    """Return the options for times and content, which several commands have."""
    arguments: list[str] = []
    for name, value in (
        # Without a zone a command line would take them as times of its machine.
        ("--since", str(question.begin) if is_local(question.since) else question.since),
        ("--until", str(question.end) if is_local(question.until) else question.until),
    ):
        if value:
            arguments += [name, value]
    # In one word: a value can begin with a dash.
    named = (("--where", question.where), ("--grep", question.grep))
    return arguments + [f"{name}={value}" for name, value in named if value]


def _one_of(column: str, texts: Sequence[str]) -> str:
    """Return the condition that a column is one of some texts."""
    if len(texts) == 1:
        return f"{column} = {_literal(texts[0])}"
    return f"{column} in ({', '.join(map(_literal, texts))})"


def _literal(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def curl_command(url: str) -> str:
    """Return the command line that asks the API."""
    return shlex.join(["curl", "-sS", url])

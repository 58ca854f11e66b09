"""A search or a message in other notations: a command line, SQL, curl."""

import shlex
from collections.abc import Sequence
from typing import Final

from rocketlens.console.preferences import is_local
from rocketlens.console.search.question import Question
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import MessageRow
from rocketlens.model.rocketmq import TRACE_TOPIC
from rocketlens.query.request import is_looked_up, parse_tags
from rocketlens.query.topic_choice import is_pattern

_COLUMNS: Final = "store_time, topic, queue_id, queue_offset, tags, keys, msg_id"
_NEWEST: Final = "order by store_timestamp_ms desc, physical_offset desc"


def find_command(
    question: Question, sources: Sequence[ConsoleSource], *, has_rules: bool = False
) -> str:
    """Return the ``rocketlens find`` command lines of a search, one for each source.

    Empty if the console ``has_rules`` for bodies and the search has a filter: the command line does
    not have the rules, and could decide otherwise.
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
    """Return the ``rocketlens sql`` command lines of a search, one for each source.

    Empty if SQL cannot ask the same. It looks up keys and unique keys only: for other texts it
    would read all messages. Without topic and key it would search topics that a search leaves out.
    Rules as in `find_command`.
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
        # The only topic of RocketMQ itself whose messages have keys of other messages.
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


def sql_of_message(row: MessageRow, source: ConsoleSource) -> str:
    """Return the SQL command line for a message; empty if it has no unique key: a search by
    position would read all messages of the topic.
    """
    if row.unique_key is None or not is_looked_up(row.unique_key):
        return ""
    position = f"topic = {_literal(row.topic)} and queue_id = {row.queue_id}"
    query = f"select * from messages where {position} and queue_offset = {row.queue_offset}"  # noqa: S608 - it is shown
    arguments = ["rocketlens", "sql", query, _unique_key_option(row.unique_key)]
    return shlex.join([*arguments, *source.command_options])


def _unique_key_option(unique_key: str) -> str:
    """Return the option that looks up a unique key. A condition would read all messages."""
    return f"--where=unique_key = {_literal(unique_key)}"


def _narrowing_options(question: Question) -> list[str]:
    """Return the options for times and content."""
    arguments: list[str] = []
    for name, value in (
        # The command line would read local times in the zone of its machine.
        ("--since", str(question.begin) if is_local(question.since) else question.since),
        ("--until", str(question.end) if is_local(question.until) else question.until),
    ):
        if value:
            arguments += [name, value]
    # One argument, because a value can begin with a dash.
    named = (("--where", question.where), ("--grep", question.grep))
    return arguments + [f"{name}={value}" for name, value in named if value]


def _one_of(column: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"{column} = {_literal(texts[0])}"
    return f"{column} in ({', '.join(map(_literal, texts))})"


def _literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def curl_command(url: str) -> str:
    return shlex.join(["curl", "-sS", url])

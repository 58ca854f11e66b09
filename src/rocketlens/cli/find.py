"""``rocketlens find``: messages by id, key, queue position, or topic and time."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from rocketlens.cli.options import store_directory
from rocketlens.cli.source import choose_source, find_in
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.query.offline import Store, open_store
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import say
from rocketlens.terminal.times import parse_time, range_text

if TYPE_CHECKING:
    from rocketlens.terminal.cluster_access import ClusterAccess

_FOUND, _NOT_FOUND, _INCOMPLETE = 0, 1, 3


def run(arguments: Namespace) -> int:
    """Find, print, and say in the exit code what the answer is worth."""
    text, topic = arguments.text, arguments.topic
    if text is None and arguments.kind != "auto":
        raise BadInput(f"--kind {arguments.kind} says what TEXT is, but no TEXT is given")
    if arguments.forget_broker:
        _forget_broker(choose_source(arguments), arguments.forget_broker)
        if text is None and not topic:
            return _FOUND
    if text is None and not (topic or arguments.since or arguments.until):
        raise BadInput("find what? Give a key, an id or TOPIC/QUEUE/OFFSET; or --topic, --since")
    begin = parse_time(arguments.since, "--since", is_end=False) if arguments.since else None
    end = parse_time(arguments.until, "--until", is_end=True) if arguments.until else None
    if begin is not None and end is not None and begin > end:
        raise BadInput("--since is after --until: no message can be between them")
    source = choose_source(arguments)
    if source is None and text is None and arguments.output == "jsonl" and arguments.max is None:
        with open_store(store_directory(arguments)) as store:
            code = _stream(store, topic, begin, end)
            _say_range(begin, end)
            return code
    answer = find_in(
        source, arguments, text, kind=arguments.kind, begin=begin, end=end, max_num=arguments.max
    )
    _print(answer, arguments.output)
    _say_range(begin, end)
    return exit_code(answer)


def _say_range(begin: int | None, end: int | None) -> None:
    """Say which times were searched, as they were read: a time can be meant in another way."""
    if begin is not None or end is not None:
        say(f"only messages {range_text(begin, end)}")


def _forget_broker(source: "ClusterAccess | None", name: str) -> None:
    if source is None:
        raise BadInput("--forget-broker is for a cluster, and no name server is given")
    from rocketlens.cli.cluster import forget_broker

    if not forget_broker(source, name):
        raise BadInput(f"--forget-broker {name[:80]}: no such broker is remembered here")


def exit_code(answer: Answer, count: int | None = None) -> int:
    """Return 3 for an incomplete answer, else 0 if it has messages (or ``count``) and 1 if not."""
    if not answer.complete:
        return _INCOMPLETE
    return _FOUND if (len(answer) if count is None else count) else _NOT_FOUND


def _print(answer: Answer, output: str) -> None:
    if output == "json":
        from rocketlens.cli.as_json import answer_fields, json_line, write_message

        head = json_line(answer_fields(answer))
        sys.stdout.write(f'{head[:-1]},"messages":[')
        for number, message in enumerate(answer.messages):
            if number:
                sys.stdout.write(",")
            write_message(message)
        sys.stdout.write("]}\n")
    elif output == "jsonl":
        from rocketlens.cli.as_json import write_message

        for message in answer.messages:
            write_message(message, "\n")
    else:
        from rocketlens.cli.table import print_messages

        print_messages(answer.messages)
    sys.stdout.flush()
    # JSON has all of the notes in it; but what is missing must be seen by whoever reads no JSON.
    if output != "json" or not answer.complete or answer.truncated:
        print_notes(answer)


def _stream(store: Store, topic: list[str] | None, begin: int | None, end: int | None) -> int:
    """Print messages as they are read: a time range can hold more than memory does."""
    from rocketlens.cli.as_json import write_message

    scan = store.scan(topic or None, begin, end)
    count = 0
    for message in scan:
        write_message(message, "\n")
        count += 1
    sys.stdout.flush()
    answer = Answer(",".join(topic or ()), (), scan.coverage)
    print_notes(answer, count)
    return exit_code(answer, count)

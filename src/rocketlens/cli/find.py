"""``rocketlens find``: messages by id, key, queue position, or topic and time."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import add_source, positive_number, store_directory
from rocketlens.errors import BadInput
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode
from rocketlens.terminal.output import say
from rocketlens.terminal.times import TIMES_HELP, parse_time, range_text

if TYPE_CHECKING:
    from rocketlens.model.answer import Answer
    from rocketlens.query.offline import Store
    from rocketlens.terminal.cluster_access import ClusterAccess

_KINDS: Final = ("auto", "key", "unique-key", "offset-id", "queue-offset")


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = f"{TIMES_HELP}\n{SEARCH_EXIT_CODES}"
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="a key, a message id of either kind, or TOPIC/QUEUE/OFFSET; without it, every message "
        "of the topic and time range",
    )
    add_source(parser)
    parser.add_argument(
        "--topic",
        metavar="T",
        action="append",
        help="search only this topic; repeat it, or separate several by commas; patterns with * "
        "are allowed (default: every topic)",
    )
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        default="auto",
        help="what TEXT is (default: auto, which tries every kind)",
    )
    parser.add_argument("--since", metavar="T", help="only messages stored at or after this time")
    parser.add_argument("--until", metavar="T", help="only messages stored at or before this time")
    parser.add_argument(
        "--max", metavar="N", type=positive_number, help="only the newest N messages"
    )
    parser.add_argument(
        "--forget-broker",
        metavar="NAME",
        help="forget a broker that was seen in this cluster and is gone for good: from now on "
        "answers are complete without it",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "jsonl"),
        default="table",
        help="table (default; tab-separated when piped), one JSON object, or one JSON line per "
        "message",
    )


def run(arguments: Namespace) -> ExitCode:
    """Find messages and print them; the exit code says whether everything was searched."""
    from rocketlens.cli.source import choose_source, find_in

    text, topic = arguments.text, arguments.topic
    if text is None and arguments.kind != "auto":
        raise BadInput(f"--kind {arguments.kind} describes TEXT, but there is no TEXT")
    if arguments.forget_broker:
        _forget_broker(choose_source(arguments), arguments.forget_broker)
        if text is None and not topic:
            return ExitCode.OK
    if text is None and not (topic or arguments.since or arguments.until):
        raise BadInput(
            "nothing to find: give a key, an id or TOPIC/QUEUE/OFFSET, or --topic or --since"
        )
    begin = parse_time(arguments.since, "--since", is_end=False) if arguments.since else None
    end = parse_time(arguments.until, "--until", is_end=True) if arguments.until else None
    if begin is not None and end is not None and begin > end:
        raise BadInput("--since is after --until")
    source = choose_source(arguments)
    if source is None and text is None and arguments.output == "jsonl" and arguments.max is None:
        from rocketlens.query.offline import open_store

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
    """Print the time range that was searched: a time can be read in several ways."""
    if begin is not None or end is not None:
        say(f"only messages {range_text(begin, end)}")


def _forget_broker(source: "ClusterAccess | None", name: str) -> None:
    if source is None:
        raise BadInput("--forget-broker needs a cluster: give --namesrv or --context")
    from rocketlens.cli.source import forget_broker

    if not forget_broker(source, name):
        raise BadInput(
            f"--forget-broker {name[:80]}: no broker of that name was seen in this cluster"
        )


def exit_code(answer: "Answer", count: int | None = None) -> ExitCode:
    """Return 3 for an incomplete answer, else 0 if it has messages (or ``count``) and 1 if not."""
    if not answer.complete:
        return ExitCode.INCOMPLETE
    return ExitCode.OK if (len(answer) if count is None else count) else ExitCode.NO


def _print(answer: "Answer", output: str) -> None:
    from rocketlens.terminal.notes import print_notes

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
    # JSON has all of the notes; but a person must see what is missing, too.
    if output != "json" or not answer.complete or answer.truncated:
        print_notes(answer)


def _stream(
    store: "Store", topic: list[str] | None, begin: int | None, end: int | None
) -> ExitCode:
    """Print messages as they are read: a time range can hold more than memory does."""
    from rocketlens.cli.as_json import write_message
    from rocketlens.model.answer import Answer
    from rocketlens.terminal.notes import print_notes

    scan = store.scan(topic or None, begin, end)
    count = 0
    for message in scan:
        write_message(message, "\n")
        count += 1
    sys.stdout.flush()
    answer = Answer(",".join(topic or ()), (), scan.coverage)
    print_notes(answer, count)
    return exit_code(answer, count)

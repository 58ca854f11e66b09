"""``rocketlens dlq show``: the dead letters of one group."""

from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.cli.message_output import MessageOutput, add_output
from rocketlens.cli.options import add_source, positive_number
from rocketlens.errors import MessageNotFound, TopicNotFound
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode

_DEFAULT_MAX: Final = 50
EXAMPLES: Final = (
    ("rocketlens dlq show billing", "its newest dead letters: times, keys, start of bodies"),
    (
        "rocketlens dlq show billing --max 500 -o jsonl --body decoded",
        "for programs, bodies as values",
    ),
    (
        "rocketlens dlq show billing --fields time,keys,properties.RETRY_TOPIC,body",
        "with the topic that each came from",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = SEARCH_EXIT_CODES
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_source(parser)
    parser.add_argument(
        "--max",
        "--newest",
        metavar="N",
        type=positive_number,
        default=_DEFAULT_MAX,
        help=f"only the newest N of them (default: {_DEFAULT_MAX})",
    )
    add_output(parser)


def run(arguments: Namespace) -> ExitCode:
    """Print the newest dead letters of a group.

    :raises MessageNotFound: if the group has no topic for them.
    """
    from rocketlens.cli.find import exit_code, print_answer
    from rocketlens.cli.source import choose_source, find_in
    from rocketlens.query.request import FindRequest

    request = FindRequest.parse(topic=DEAD_LETTER_PREFIX + arguments.group, max_num=arguments.max)
    output = MessageOutput(arguments)
    try:
        answer = find_in(choose_source(arguments), arguments, request)
    except TopicNotFound as error:
        raise MessageNotFound(f"group {arguments.group[:100]} has no dead letters") from error
    print_answer(answer, output, is_object=arguments.output == "json")
    return exit_code(answer)

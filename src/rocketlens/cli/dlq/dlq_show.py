"""``rocketlens dlq show``: the dead letters of one group."""

from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.cli.dlq import no_dead_letters
from rocketlens.cli.message_output import MessageOutput, add_output
from rocketlens.cli.options import add_source, positive_number, refuse_archive
from rocketlens.errors import TopicNotFound
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
    parser.epilog = (
        "last_failure: how the group failed with it last, where its clients wrote traces.\n"
        f"{SEARCH_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_source(parser)
    refuse_archive(
        parser,
        "dead letters that were archived are messages of a topic: `rocketlens find --archive DIR "
        f"-t {DEAD_LETTER_PREFIX}GROUP`",
    )
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
    from rocketlens.cli.dlq.last_failures import last_failures, last_failures_in
    from rocketlens.cli.find import exit_code, print_answer
    from rocketlens.cli.source import ask_source, choose_source, find_in
    from rocketlens.query.request import FindRequest

    request = FindRequest.parse(topic=DEAD_LETTER_PREFIX + arguments.group, max_num=arguments.max)
    failures: dict[str, str] = {}
    more = {"last_failure": lambda message: failures.get(message.offset_msg_id)}
    output = MessageOutput(arguments, more=more)
    try:
        answer = find_in(choose_source(arguments), arguments, request)
    except TopicNotFound as error:
        raise no_dead_letters(arguments.group) from error
    failures |= ask_source(
        arguments,
        lambda store: last_failures_in(store, answer.messages),
        lambda admin: last_failures(admin, answer.messages),
    )
    print_answer(answer, output, is_object=arguments.output == "json")
    return exit_code(answer)

"""``rocketlens watch``: waits for a message with a key, then runs a command."""

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Final

from rocketlens.cli.options import add_archive, add_source, add_topics, option
from rocketlens.cli.source import choose_source
from rocketlens.model.text.escape import printable
from rocketlens.terminal.output import TIMES_HELP, ExitCode, moment_text, note, parse_time

EXAMPLES: Final = """
rocketlens watch SETTLED-2026-11-20 --by 09:00  # exit code 1 if it is not stored by 9:00
# wait until a consumer group has consumed it
rocketlens watch ORDER-42 -t order-paid --by 'in 10m' --consumed-by billing
# run a command for the message
rocketlens watch SETTLED-2026-11-20 --by 09:00 --exec './report.sh "$ROCKETLENS_ID"'
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"{TIMES_HELP}\nMessages stored earlier count, too. Brokers can restart meanwhile.\n"
        "exit codes: 0 stored (consumed) by that time, 1 the time has passed and everything was\n"
        "searched, 2 wrong usage, an error, or COMMAND failed, 3 the time has passed and a broker\n"
        "did not answer, or the progress of the group is unknown."
    )
    parser.add_argument("key", metavar="KEY", help="a key or a message id")
    add = partial(option, parser)
    add("--by T", "the latest time, such as 09:00 or 'in 2h'", required=True)
    add(
        "--consumed-by GROUP",
        "wait until this consumer group has consumed it (default: until it is stored)",
    )
    add_source(parser)
    add_archive(parser, with_others=False)
    add_topics(parser, "only this topic", default="every topic")
    add(
        "--exec COMMAND",
        "a line for /bin/sh, run with ROCKETLENS_ID, ROCKETLENS_TOPIC and ROCKETLENS_KEY in its "
        "environment",
        dest="command",
    )


def run(arguments: Namespace) -> ExitCode:
    key, topic = arguments.key, arguments.topic or None
    by = parse_time(arguments.by, "--by", is_end=True)
    group = arguments.consumed_by
    message = choose_source(arguments).ask(
        lambda store: store.expect(key, topic, by=by, consumed_by=group, on_event=note),
        lambda admin: admin.expect(key, topic, by=by, consumed_by=group, on_event=note),
        lambda archive: archive.expect(key, topic, by=by, consumed_by=group, on_event=note),
    )
    stored = moment_text(message.store_timestamp_ms)
    print(
        f"{printable(message.position)}  {printable(message.msg_id)}  stored {stored}", flush=True
    )
    if arguments.command is None:
        return ExitCode.OK
    import os
    import subprocess

    found = {"ID": message.msg_id, "TOPIC": message.topic, "KEY": key}
    environment = {f"ROCKETLENS_{name}": value for name, value in found.items()}
    done = subprocess.run(
        ["/bin/sh", "-c", arguments.command], env={**os.environ, **environment}, check=False
    )
    if done.returncode:
        note(f"--exec ended with exit code {done.returncode}")
    return ExitCode.FAILED if done.returncode else ExitCode.OK

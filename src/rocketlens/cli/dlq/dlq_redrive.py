"""``rocketlens dlq redrive``: the dead letters of a group to it again, as a job."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from rocketlens.cli.dlq import no_dead_letters
from rocketlens.cli.options import add_cluster
from rocketlens.cli.resend import JOB_EXIT_CODES, add_job_options, run_job
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from rocketlens.cli.resend import ResendOrigin
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.resend.resend_job import Target
    from rocketlens.client.resend.resend_journal import PlannedMessage

EXAMPLES: Final = (
    ("rocketlens dlq redrive billing", "what would be sent: nothing is"),
    (
        "rocketlens dlq redrive billing --send --reason 'ticket 7' --rate 50",
        "send it, 50 messages a second",
    ),
    (
        "rocketlens dlq redrive billing --to original --max 10",
        "to every group of the original topic, ten of them",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "A dead letter stays where it is. Those that earlier jobs (files in the same directory)\n"
        f"have sent are left out.\n{JOB_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_cluster(parser, "$NAMESRV_ADDR")
    parser.add_argument(
        "--to",
        choices=("retry", "original"),
        default="retry",
        help="retry (default): only this group gets them again; original: they go to the topics "
        "that they came from, so every group of those does",
    )
    parser.add_argument(
        "--again", action="store_true", help="send also what earlier jobs have sent"
    )
    add_job_options(parser)


def run(arguments: Namespace) -> ExitCode:
    """Show which dead letters would be sent, or send them."""
    from rocketlens.client.resend.resend_job import Target, dead_letter_selection

    is_original = arguments.to == "original"
    target = Target(group=None if is_original else arguments.group, original=is_original)
    selection = dead_letter_selection(arguments.group)

    async def plan(origin: "ResendOrigin", target: "Target") -> "list[PlannedMessage]":
        return await _plan(arguments, selection, origin.admin, target)

    return run_job(arguments, selection, target, plan)


async def _plan(
    arguments: Namespace, selection: str, admin: "MQAdmin", target: "Target"
) -> "list[PlannedMessage]":
    """Read the dead letters, page by page.

    :raises MessageNotFound: if the group has none.
    :raises AnswerIncomplete: if not all of them could be read.
    """
    from pathlib import Path

    from rocketlens.client.resend.resend_job import plan_dead_letters
    from rocketlens.client.resend.resend_journal import earlier_jobs

    earlier: set[str] = set()
    if not arguments.again:
        from rocketlens.terminal.cluster_access import jobs_directory

        directory = Path(arguments.job).parent if arguments.job else jobs_directory()
        earlier, unfinished = earlier_jobs(directory, selection, admin.source.name, admin.namespace)
        for path in unfinished:
            problem = f"{path} is a job of this group with messages left: resume it with --job"
            if arguments.send:
                raise BadInput(f"{problem}, or send all dead letters with --again")
            note(problem)
    try:
        plan = await plan_dead_letters(
            admin, arguments.group, target, earlier=earlier, max_num=arguments.max
        )
    except TopicNotFound as error:
        raise no_dead_letters(arguments.group) from error
    if plan.skipped:
        note(
            f"{plan.skipped} were sent by earlier jobs, or may have been (--again sends those, too)"
        )
    if plan.is_cut:
        note(f"only the first {arguments.max} are taken: there are more")
    return plan.messages

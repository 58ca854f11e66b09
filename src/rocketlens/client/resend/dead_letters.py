"""The dead letters of a consumer group, as they are sent again: all of them, or those left out."""

from collections.abc import Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from rocketlens.client.resend.resend_job import Target, planned
from rocketlens.client.resend.resend_journal import PlannedMessage
from rocketlens.errors import AnswerIncomplete, BadInput
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin


class DeadLetters(NamedTuple):
    """A selection of the dead letters of a group, to be sent."""

    messages: list[PlannedMessage]
    skipped: int
    """Those that earlier jobs have sent."""
    is_cut: bool
    """Whether there are more than were asked for."""


def dead_letter_selection(group: str) -> str:
    """Return what a job of a group's dead letters is called; earlier ones are found by it."""
    return f"dead letters of group {group}"


async def plan_dead_letters(
    admin: "MQAdmin", group: str, target: Target, *, earlier: Collection[str], max_num: int
) -> DeadLetters:
    """Read the dead letters of a group, page by page.

    ``earlier`` has offset message ids that are left out.

    :raises TopicNotFound: if the group has none.
    :raises BadInput: if their topic cannot be read.
    :raises AnswerIncomplete: if not all of them could be read.
    """
    topic = DEAD_LETTER_PREFIX + group
    if not await admin.message_queues(topic):
        raise BadInput(
            f"topic {topic} cannot be read: give it permission 6, as with updateTopic -p 6"
        )
    messages: list[PlannedMessage] = []
    skipped, is_cut = 0, False
    # In the order of store times: as brokers answer, a plan would be another one each time.
    scan = admin.scan(topic)
    async with aclosing(aiter(scan)) as letters:
        async for message in letters:
            if message.offset_msg_id in earlier:
                skipped += 1
            elif len(messages) == max_num:
                is_cut = True
                break
            else:
                messages.append(planned(message, target, admin.source.full_topic))
    if not is_cut and not scan.complete:
        failed = next(each for each in scan.coverage if each.is_failure)
        raise AnswerIncomplete(
            f"not all dead letters could be read: {failed.source}: {failed.error}",
            Answer(topic, (), scan.coverage),
        )
    return DeadLetters(messages, skipped, is_cut)

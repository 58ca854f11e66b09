"""Reads queues of a broker message by message, where a look-up by key is not enough."""

import logging
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error, fields_of
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.records import Page, take_page_in_turn
from rocketlens.model.rocketmq import TOOLS_GROUP
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.verify import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.pull import PULL_MESSAGE, SUBSCRIPTION_FLAG, PullMessageRequest

OWN_TOOLS_GROUP: Final = "ROCKETLENS_TOOLS"
"""The group for a broker at which TOOLS_GROUP may not consume; brokers create it, if allowed."""
_NO_GROUP: Final = "subscription group no permission"
"""A broker's remark if a group's ``consumeEnable`` is false."""

_logger: Final = logging.getLogger("rocketlens.client")
_at_own_group: Final[WeakKeyDictionary[ClusterCalls, set[str]]] = WeakKeyDictionary()
"""Addresses of the brokers at which OWN_TOOLS_GROUP is used."""

NOTHING_HERE: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclass(frozen=True, slots=True)
class Pulled:
    """One response: its code, its records, and the next offset (the same one at the end)."""

    code: int
    page: Page
    next_offset: int


async def pull_answer(
    cluster: ClusterCalls,
    address: str,
    queue: MessageQueue,
    queue_offset: int,
    *,
    max_num: int = limits.MAX_PULL_MESSAGES,
    tags: str = "*",
    group: str | None = None,
) -> RemotingCommand:
    """Request a queue's messages from an offset on; ``tags`` as a consumer subscribes to them.

    ``group``: the consumer group that asks; without it one for tools.

    :raises BrokerError: if the broker refuses; an empty response is not an error.
    :raises RemotingError: if there is no response.
    """
    header = PullMessageRequest(
        consumer_group=group or TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        max_message_nums=max_num,
        sys_flag=SUBSCRIPTION_FLAG,
        subscription=tags,
        expression_type="TAG",
    )
    own = replace(header, consumer_group=OWN_TOOLS_GROUP)
    if group is not None:
        answer = await cluster.call(address, PULL_MESSAGE, header)
    elif address in _at_own_group.get(cluster, ()):
        answer = await cluster.call(address, PULL_MESSAGE, own)
    else:
        answer = await cluster.call(address, PULL_MESSAGE, header)
        if _is_group_refused(answer):
            _logger.warning("%s: %s; asking as %s instead", address, answer.remark, OWN_TOOLS_GROUP)
            refused, answer = answer, await cluster.call(address, PULL_MESSAGE, own)
            if answer.code not in NOTHING_HERE and answer.code != ResponseCode.SUCCESS:
                words = f"{refused.remark}; nor as {OWN_TOOLS_GROUP}: {answer.remark}"
                raise broker_error(address, refused._replace(remark=words))
            _at_own_group.setdefault(cluster, set()).add(address)
    if answer.code not in NOTHING_HERE and answer.code != ResponseCode.SUCCESS:
        raise broker_error(address, answer)
    return answer


def _is_group_refused(answer: RemotingCommand) -> bool:
    """Return whether a broker refuses because of the group."""
    if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        return True
    return answer.code == ResponseCode.NO_PERMISSION and _NO_GROUP in (answer.remark or "")


async def pull(
    cluster: ClusterCalls,
    address: str,
    queue: MessageQueue,
    queue_offset: int,
    *,
    message_filter: MessageFilter,
    findings: Findings,
    damage: list[str],
    max_num: int = limits.MAX_PULL_MESSAGES,
) -> Pulled:
    """Read a queue from an offset on, and add matching messages; errors as `pull_answer`."""
    async with cluster.turn(address):
        answer = await pull_answer(cluster, address, queue, queue_offset, max_num=max_num)
        next_offset = fields_of(address, PULL_MESSAGE, answer).next_begin_offset
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            next_offset = queue_offset
        page = await take_page_in_turn(answer.body, message_filter, findings, damage)
        return Pulled(answer.code, page, next_offset)

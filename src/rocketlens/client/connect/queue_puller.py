"""Pulls messages of queues: the one module that knows what an answer to a pull means.

==================  ==================  ==========================================================
a broker answers    `PullStatus`        then
==================  ==================  ==========================================================
0                   FOUND               there are records; reading continues behind them, and an
                                        answer that names no offset behind them is a BadAnswer
19                  NO_NEW_MSG          no message is at the offset (yet); reading continues at the
                                        offset that the broker names, but never at an earlier one:
                                        a broker without the queue names 0
20                  NO_MATCHED_MSG      the messages that were compared do not match; likewise
21                  OFFSET_ILLEGAL      the queue does not have the offset; reading continues at
                                        the one that the broker names, which can be an earlier one
24, 25 to a member  NOT_SUBSCRIBED      the broker needs a heartbeat to know the subscription
anything else       none                BrokerError
no answer           none                RemotingError
==================  ==================  ==========================================================

Some refusals are of one form of the request. Then the request is repeated in another form, which is
the only one for that broker from then on:

======================================  ==========================================================
refused                                 repeated as
======================================  ==========================================================
3 to a pull of a lite pull consumer     the request 11, for a broker older than 5.0
1, 23 to an SQL92 expression of a tool  a request for all messages: the broker evaluates none
26, or 16 that names the group, to a    a pull of that group, which brokers create, if allowed
tool that has a spare group
======================================  ==========================================================

Records that a tool pulls have the physical offsets of the commit log, those of compacted topics,
too (`rocketlens.client.connect.compacted_topics`). Queues of static topics are the brokers' own
ones, and so are their offsets (`rocketlens.wire.bodies.static_topics`).

Pulls of tools leave nothing at a broker: they are of the group TOOLS_CONSUMER, which every broker
has and which has no members, so no subscription, no offset and no member is kept. Sources:
``PullMessageProcessor``, ``PullAPIWrapper``.
"""

import asyncio
import logging
from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error, fields_of, request_name
from rocketlens.client.connect.compacted_topics import with_log_offsets
from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BadAnswer, RecordError
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Reason, Record, RecordView
from rocketlens.model.rocketmq import ALL_TAGS, MASTER_ID, SQL92_TYPE, TAG_TYPE, TOOLS_GROUP
from rocketlens.wire.bodies.clients import SubscriptionData
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import messages as commands
from rocketlens.wire.declare import Command

MAX_AROUND_MESSAGES: Final = 512
"""Messages of a queue, on either side of what a search by time found, that are read, too."""
OWN_TOOLS_GROUP: Final = "ROCKETLENS_TOOLS"
"""The group for a broker at which TOOLS_GROUP may not consume; brokers create it, if allowed."""
_NO_GROUP: Final = "subscription group no permission"
"""A broker's remark if a group's ``consumeEnable`` is false."""
_NO_SQL92: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED})
_NOT_SUBSCRIBED: Final = frozenset(
    {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
)

PULL_HOLD_S: Final = 15.0
"""Seconds for which a broker may hold the pull of a tail or push consumer. RocketMQ: 15."""
PULL_PAUSES_S: Final = (0.02, 3.0)
"""Seconds until a pull is tried again that failed, or brought nothing though it could have been
held: the first, doubled up to the last. RocketMQ: 3 after a failure.
"""

_logger: Final = logging.getLogger("rocketlens.client")


class PullMode(Enum):
    """For whom queues are pulled."""

    TOOL = "tool"
    PUSH = "push consumer"
    LITE = "lite pull consumer"


class PullStatus(Enum):
    """The kinds of answers to a pull; RocketMQ's names, and one more."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"


_STATUS_OF_CODE: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class Pulled(Struct, frozen=True):
    """The answer to one pull: what it has, and the offset at which reading continues."""

    status: PullStatus
    next_offset: int
    body: bytes = b""
    min_offset: int = 0
    max_offset: int = 0
    suggested_broker_id: int = MASTER_ID
    """The broker to pull from next: a slave if messages are no longer in the master's memory."""
    gap: str | None = None
    """Warning text if compaction removed messages between those pulled; None otherwise."""

    @property
    def has_more(self) -> bool:
        """Whether the queue has messages at ``next_offset``, so that a pull need not be held."""
        is_moved = self.status is PullStatus.OFFSET_ILLEGAL
        return is_moved or self.next_offset < self.max_offset

    def records(self, damage: list[str]) -> Iterator[Record]:
        """Yield the records, each checked; see `records_in`."""
        return records_in(self.body, damage)


class QueuePuller:
    """Pulls queues for one reader. Of one event loop.

    ``spare_group`` is used where ``group`` may not consume.
    """

    def __init__(
        self,
        cluster: ClusterCalls,
        group: str = TOOLS_GROUP,
        mode: PullMode = PullMode.TOOL,
        *,
        spare_group: str | None = None,
    ) -> None:
        self._cluster: Final = cluster
        self._group: Final = group
        self._mode: Final = mode
        self._spare_group: Final = spare_group
        self._without_lite_pull: Final[set[str]] = set()
        self._without_sql92: Final[set[str]] = set()

    async def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = limits.MAX_PULL_MESSAGES,
        subscription: SubscriptionData | None = None,
        hold_s: float = 0.0,
        timeout_s: float | None = None,
        commit_offset: int | None = None,
    ) -> Pulled:
        """Pull up to ``count`` messages of a queue from an offset on.

        Without a ``subscription`` all messages match. A broker without messages may hold the
        request for ``hold_s`` seconds; ``timeout_s`` includes that. ``commit_offset`` is stored
        for the group.

        :raises BrokerError: if the broker refuses.
        :raises BadAnswer: if the answer cannot be right.
        :raises RemotingError: if there is no answer.
        """
        sys_flag = (commands.SUSPEND_FLAG if hold_s else 0) | (
            commands.COMMIT_OFFSET_FLAG if commit_offset else 0
        )
        text: str | None = None
        if self._mode is not PullMode.PUSH:
            # A broker knows what push consumers subscribe to from their heartbeats.
            text = ALL_TAGS if subscription is None else subscription.sub_string
            sys_flag |= commands.SUBSCRIPTION_FLAG
        header = commands.PullMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_message_nums=count,
            sys_flag=sys_flag,
            commit_offset=commit_offset or 0,
            suspend_timeout_ms=int(hold_s * 1000),
            subscription=text,
            subscription_version=0 if subscription is None else subscription.sub_version,
            expression_type=TAG_TYPE if subscription is None else subscription.expression_type,
            broker_name=queue.broker_name,
            lo=False,
        )
        if timeout_s is None:
            timeout_s = self._cluster.timeout_s + hold_s
        command, answer = await self._answer(address, header, timeout_s)
        pulled = self._pulled(address, command, answer, offset)
        if pulled.body and self._mode is PullMode.TOOL:
            body, count_of_compacted = await with_log_offsets(
                self._cluster, address, queue, pulled.body
            )
            if body is not pulled.body:
                pulled = replace(pulled, body=body)
            if count_of_compacted and (subscription is None or subscription.sub_string == ALL_TAGS):
                is_gap = pulled.next_offset - offset > count_of_compacted
                pulled = replace(pulled, gap=_gap_of(queue) if is_gap else None)
        return pulled

    def _pulled(
        self,
        address: str,
        command: Command[commands.PullMessageRequest, commands.PullMessageResponse],
        answer: RemotingCommand,
        offset: int,
    ) -> Pulled:
        if answer.code in _NOT_SUBSCRIBED and self._mode is not PullMode.TOOL:
            return Pulled(PullStatus.NOT_SUBSCRIBED, offset)
        status = _STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise broker_error(address, answer)
        fields = fields_of(address, command, answer)
        next_offset = fields.next_begin_offset
        if status is PullStatus.FOUND and next_offset <= offset:
            reason = f"goes on at {next_offset}, not behind its messages"
            raise BadAnswer(address, request_name(command), reason)
        if status is PullStatus.OFFSET_ILLEGAL and next_offset < 0:
            reason = f"moves from queue offset {offset} to {next_offset}"
            raise BadAnswer(address, request_name(command), reason)
        if status in {PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG}:
            next_offset = max(offset, next_offset)
        return Pulled(
            status,
            next_offset,
            answer.body if status is PullStatus.FOUND else b"",
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
        )

    async def _answer(
        self, address: str, header: commands.PullMessageRequest, timeout_s: float
    ) -> tuple[Command[commands.PullMessageRequest, commands.PullMessageResponse], RemotingCommand]:
        """Return the answer to the form of a request that the broker understands."""
        while True:
            command, form = self._form(address, header)
            answer = await self._cluster.call(address, command, form, timeout_s=timeout_s)
            if (
                command is commands.LITE_PULL_MESSAGE
                and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            ):
                self._without_lite_pull.add(address)
            elif (
                self._mode is PullMode.TOOL
                and form.expression_type == SQL92_TYPE
                and answer.code in _NO_SQL92
            ):
                self._without_sql92.add(address)
            elif (
                self._spare_group is not None
                and form.consumer_group != self._spare_group
                and _is_group_refused(answer)
            ):
                form = replace(form, consumer_group=self._spare_group)
                return command, await self._as_spare_group(address, form, answer, timeout_s)
            else:
                return command, answer

    def _form(
        self, address: str, header: commands.PullMessageRequest
    ) -> tuple[
        Command[commands.PullMessageRequest, commands.PullMessageResponse],
        commands.PullMessageRequest,
    ]:
        """Return a request in the form for one broker."""
        if self._mode is PullMode.LITE and address not in self._without_lite_pull:
            return commands.LITE_PULL_MESSAGE, replace(
                header, sys_flag=header.sys_flag | commands.LITE_PULL_FLAG
            )
        if address in self._without_sql92:
            header = replace(header, expression_type=TAG_TYPE, subscription=ALL_TAGS)
        if self._spare_group is not None and address in self._cluster.brokers_refusing_tools:
            header = replace(header, consumer_group=self._spare_group)
        return commands.PULL_MESSAGE, header

    async def _as_spare_group(
        self,
        address: str,
        header: commands.PullMessageRequest,
        refusal: RemotingCommand,
        timeout_s: float,
    ) -> RemotingCommand:
        group = header.consumer_group
        _logger.warning("%s: %s; asking as %s instead", address, refusal.remark, group)
        answer = await self._cluster.call(
            address, commands.PULL_MESSAGE, header, timeout_s=timeout_s
        )
        if answer.code not in _STATUS_OF_CODE:
            remark = f"{refusal.remark}; nor as {group}: {answer.remark}"
            raise broker_error(address, refusal._replace(remark=remark))
        self._cluster.brokers_refusing_tools.add(address)
        return answer


def tools_puller(cluster: ClusterCalls) -> QueuePuller:
    """Return a puller for a search, which has a spare group; what brokers refused is kept."""
    return QueuePuller(cluster, spare_group=OWN_TOOLS_GROUP)


def _gap_of(queue: MessageQueue) -> str:
    return (
        f"{queue.topic}/{queue.queue_id}: the broker compacts this topic, so messages that newer "
        "ones with their keys replaced are not in its queue: their keys, ids and positions lead to "
        "them"
    )


def _is_group_refused(answer: RemotingCommand) -> bool:
    if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        return True
    return answer.code == ResponseCode.NO_PERMISSION and _NO_GROUP in (answer.remark or "")


def records_in(body: bytes, damage: list[str]) -> Iterator[Record]:
    """Yield the records of a response; see `views_in`."""
    return (view.record() for view in views_in(body, damage))


def views_in(body: bytes, damage: list[str]) -> Iterator[RecordView]:
    """Yield the records of a response, not taken apart; a bad checksum is added to ``damage``.

    Records behind bytes that are not a record cannot be found; that is damage, too.
    """
    buffer = memoryview(body)
    position = 0
    while position < len(buffer):
        try:
            view = RecordView(buffer, position)
            view.check_crc()
        except RecordError as error:
            add_damage(damage, str(error))
            if error.reason != Reason.CRC:
                return
            position += SIZE_AND_MAGIC.unpack_from(buffer, position)[0]
            continue
        position = view.stop
        yield view


def add_damage(damage: list[str], text: str) -> None:
    """Add a line, unless the maximum is reached."""
    if len(damage) < limits.MAX_DAMAGE_REPORTS:
        damage.append(text)


class Backoff:
    """Pauses between pulls that double from the first to the last, until something succeeds."""

    def __init__(self) -> None:
        self._first_s, self._last_s = PULL_PAUSES_S
        self._next_s = self._first_s

    async def pause(self) -> None:
        """Pause; the next time for longer."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._last_s)
        await asyncio.sleep(pause_s)

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._next_s = self._first_s

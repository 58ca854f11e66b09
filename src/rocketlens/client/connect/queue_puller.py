"""Pulls messages of queues; the only module that interprets answers to pulls.

==================  ==================  ==========================================================
answer code         `PullStatus`        effect
==================  ==================  ==========================================================
0                   FOUND               reading continues after the records; without a larger next
                                        offset the answer is a BadAnswer
19                  NO_NEW_MSG          reading continues at the returned offset, but never at a
                                        smaller one: a broker without the queue returns 0
20                  NO_MATCHED_MSG      as 19
21                  OFFSET_ILLEGAL      reading continues at the returned offset, larger or smaller
24, 25 to a member  NOT_SUBSCRIBED      the broker needs a heartbeat with the subscription
any other           none                BrokerError
==================  ==================  ==========================================================

If a broker refuses one form of a request, another form is used for it from then on: the plain pull
11 in place of a lite pull, all messages in place of an SQL92 expression, and the spare group, which
some brokers create on demand, in place of the tools' group.

Records pulled by a tool have physical offsets of the commit log, also for compacted topics
(`rocketlens.client.connect.compacted_topics`). Queues and offsets of static topics are those of the
brokers (`rocketlens.wire.bodies.static_topics`). Pulls of tools store nothing at a broker: they use
the group TOOLS_CONSUMER, which every broker has and which has no members, subscriptions or offsets.
Sources: ``PullMessageProcessor``, ``PullAPIWrapper``.
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
"""Messages of a queue that are also read on either side of a search by time."""
OWN_TOOLS_GROUP: Final = "ROCKETLENS_TOOLS"
"""The group for brokers at which TOOLS_GROUP must not consume; brokers may create it."""
_NO_GROUP: Final = "subscription group no permission"
"""A broker's remark if a group's ``consumeEnable`` is false."""
_NO_SQL92: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED})
_NOT_SUBSCRIBED: Final = frozenset(
    {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
)

PULL_HOLD_S: Final = 15.0
"""Seconds for which a broker may hold the pull of a tail or push consumer. RocketMQ: 15."""
PULL_PAUSES_S: Final = (0.02, 3.0)
"""Seconds before a pull is repeated after a failure or an early empty answer: the first pause,
doubled up to the last. RocketMQ: 3 after a failure.
"""

_PullCommand = Command[commands.PullMessageRequest, commands.PullMessageResponse]
_logger: Final = logging.getLogger("rocketlens.client")


class PullMode(Enum):
    """The kinds of readers of queues."""

    TOOL = "tool"
    PUSH = "push consumer"
    LITE = "lite pull consumer"


class PullStatus(Enum):
    """The kinds of answers to a pull: RocketMQ's names, and NOT_SUBSCRIBED."""

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
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    body: bytes = b""
    min_offset: int = 0
    max_offset: int = 0
    suggested_broker_id: int = MASTER_ID
    """The broker to pull from next: a slave if the master would read from its disk."""
    gap: str | None = None
    """A warning if compaction removed messages between those pulled."""

    @property
    def has_more(self) -> bool:
        """True if the queue has messages at ``next_offset``, so a pull need not be held."""
        is_moved = self.status is PullStatus.OFFSET_ILLEGAL
        return is_moved or self.next_offset < self.max_offset

    def records(self, damage: list[str]) -> Iterator[Record]:
        return records_in(self.body, damage)


class QueuePuller:
    """Pulls queues for one reader. Bound to one event loop.

    ``spare_group`` is used at brokers where ``group`` must not consume.
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
        request for ``hold_s`` seconds; ``timeout_s`` includes them. ``commit_offset`` is stored for
        the group.

        :raises BadAnswer: if the answer is inconsistent.
        :raises RemotingError: if there is no answer.
        """
        sys_flag = (commands.SUSPEND_FLAG if hold_s else 0) | (
            commands.COMMIT_OFFSET_FLAG if commit_offset else 0
        )
        text: str | None = None
        if self._mode is not PullMode.PUSH:
            # Brokers know the subscriptions of push consumers from their heartbeats.
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
        pulled = self._parse_answer(address, command, answer, offset)
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

    def _parse_answer(
        self, address: str, command: _PullCommand, answer: RemotingCommand, offset: int
    ) -> Pulled:
        if answer.code in _NOT_SUBSCRIBED and self._mode is not PullMode.TOOL:
            return Pulled(PullStatus.NOT_SUBSCRIBED, offset)
        status = _STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise broker_error(address, answer)
        fields = fields_of(address, command, answer)
        next_offset = fields.next_begin_offset
        if status is PullStatus.FOUND and next_offset <= offset:
            reason = f"continues at {next_offset}, which is not after its messages"
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
    ) -> tuple[_PullCommand, RemotingCommand]:
        """Return the command, and the answer to the form that the broker understands."""
        while True:
            command, form = self._adapt_request(address, header)
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
                return command, await self._call_as_spare_group(address, form, answer, timeout_s)
            else:
                return command, answer

    def _adapt_request(
        self, address: str, header: commands.PullMessageRequest
    ) -> tuple[_PullCommand, commands.PullMessageRequest]:
        if self._mode is PullMode.LITE and address not in self._without_lite_pull:
            return commands.LITE_PULL_MESSAGE, replace(
                header, sys_flag=header.sys_flag | commands.LITE_PULL_FLAG
            )
        if address in self._without_sql92:
            header = replace(header, expression_type=TAG_TYPE, subscription=ALL_TAGS)
        if self._spare_group is not None and address in self._cluster.brokers_refusing_tools:
            header = replace(header, consumer_group=self._spare_group)
        return commands.PULL_MESSAGE, header

    async def _call_as_spare_group(
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
    """Return a puller with a spare group for a search."""
    return QueuePuller(cluster, spare_group=OWN_TOOLS_GROUP)


def _gap_of(queue: MessageQueue) -> str:
    return (
        f"{queue.topic}/{queue.queue_id}: the broker compacts this topic, so its queue lacks "
        "messages that newer ones with the same key replaced: search for those by key, id or "
        "position"
    )


def _is_group_refused(answer: RemotingCommand) -> bool:
    if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        return True
    return answer.code == ResponseCode.NO_PERMISSION and _NO_GROUP in (answer.remark or "")


def records_in(body: bytes, damage: list[str]) -> Iterator[Record]:
    return (view.record() for view in views_in(body, damage))


def views_in(body: bytes, damage: list[str]) -> Iterator[RecordView]:
    """Yield the undecoded records of a response; a wrong checksum is added to ``damage``.

    Records after bytes that are not a record cannot be found; this is damage, too.
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
    """Add a line, unless there are `limits.MAX_DAMAGE_REPORTS` already."""
    if len(damage) < limits.MAX_DAMAGE_REPORTS:
        damage.append(text)


class Backoff:
    """Pauses between pulls that double from the first to the last, until `reset`."""

    def __init__(self) -> None:
        self._first_s, self._last_s = PULL_PAUSES_S
        self._next_s = self._first_s

    async def pause(self) -> None:
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._last_s)
        await asyncio.sleep(pause_s)

    def reset(self) -> None:
        self._next_s = self._first_s

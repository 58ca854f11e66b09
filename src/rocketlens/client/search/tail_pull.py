"""Pulls a queue for ``tail``, and leaves nothing at the broker.

Pulls are of the group TOOLS_CONSUMER, which every broker has, and which has no members: a broker
then keeps no subscription, no offset and no member of it. RocketMQ 5 keeps how far each group
pulled last, ``pullOffsetTable``, as it does when its own tools pull. A broker at which that group
may not consume is not asked as another one, because it would create that.

=====================  =======================================================================
a broker answers       then
=====================  =======================================================================
0                      its messages are compared with the filter, and reading goes on behind them
19, 20                 there is nothing that passes; reading goes on from where it is told to
21                     the offset is not in the queue: reading goes on from the one it names
1, 23 to SQL92         it evaluates no expressions: it is asked for all messages from then on
anything else          BrokerError
=====================  =======================================================================
"""

from typing import Final, NamedTuple

from rocketlens.client.connect.cluster import ClusterCalls, broker_error, fields_of, request_name
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.records import records_in
from rocketlens.errors import BadAnswer
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.rocketmq import ALL_TAGS, SQL92_TYPE, TAG_TYPE, TOOLS_GROUP
from rocketlens.net.pace import in_thread
from rocketlens.query.lookup.verify import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.pull import (
    PULL_MESSAGE,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
)

_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_NO_SQL92: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED})


class TailPage(NamedTuple):
    """What one pull brought: the records that match, in the order of the queue."""

    records: list[Record]
    next_offset: int
    has_more: bool
    """Whether the queue has messages behind those that were read."""
    is_moved: bool = False
    """Whether the offset was not in the queue; ``next_offset`` may be an earlier one."""


class TailPuller:
    """Pulls queues for one filter; knows which brokers evaluate no SQL92 expressions."""

    def __init__(self, cluster: ClusterCalls, message_filter: MessageFilter) -> None:
        """Pull over the connections of ``cluster``."""
        self.damage: Final[list[str]] = []
        """What could not be read, one line each; a bounded number of lines."""
        self._cluster: Final = cluster
        self._filter: Final = message_filter
        self._without_sql92: Final[set[str]] = set()

    async def pull(
        self, address: str, queue: MessageQueue, offset: int, max_num: int, hold_s: float = 0
    ) -> TailPage:
        """Pull up to ``max_num`` messages; the broker may hold the pull for ``hold_s`` seconds.

        :raises BrokerError: if the broker refuses.
        :raises BadAnswer: if it answers what cannot be.
        :raises RemotingError: if there is no answer.
        """
        answer = await self._ask(address, queue, offset, max_num, hold_s)
        if answer.code not in _NOTHING | {ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED}:
            raise broker_error(address, answer)
        fields = fields_of(address, PULL_MESSAGE, answer)
        next_offset = fields.next_begin_offset
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            if next_offset == offset or next_offset < 0:
                said = f"moves from queue offset {offset} to {next_offset}"
                raise BadAnswer(address, request_name(PULL_MESSAGE), said)
            return TailPage([], next_offset, has_more=True, is_moved=True)
        if answer.code != ResponseCode.SUCCESS:
            # A broker without the queue names 0.
            next_offset = max(offset, next_offset)
            return TailPage([], next_offset, has_more=next_offset < fields.max_offset)
        if next_offset <= offset:
            said = f"goes on at {next_offset}, not behind its messages"
            raise BadAnswer(address, request_name(PULL_MESSAGE), said)

        def matching() -> list[Record]:
            return [
                record
                for record in records_in(answer.body, self.damage)
                if record.queue_offset >= offset and self._filter.matches(record)
            ]

        # Decoding a body can take seconds.
        records = await in_thread(matching) if self._filter.reads_body else matching()
        return TailPage(records, next_offset, has_more=next_offset < fields.max_offset)

    async def _ask(
        self, address: str, queue: MessageQueue, offset: int, max_num: int, hold_s: float
    ) -> RemotingCommand:
        """Request messages; leave the expression to us if the broker does not evaluate it."""
        kind, expression = self._subscription(address)
        header = PullMessageRequest(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_message_nums=max_num,
            sys_flag=SUBSCRIPTION_FLAG | (SUSPEND_FLAG if hold_s else 0),
            suspend_timeout_ms=int(hold_s * 1000),
            subscription=expression,
            expression_type=kind,
        )
        timeout_s = self._cluster.timeout_s + hold_s
        answer = await self._cluster.call(address, PULL_MESSAGE, header, timeout_s=timeout_s)
        if kind == SQL92_TYPE and answer.code in _NO_SQL92:
            self._without_sql92.add(address)
            return await self._ask(address, queue, offset, max_num, hold_s)
        return answer

    def _subscription(self, address: str) -> tuple[str, str]:
        """Return type and text of what the broker is to let pass: no less than what matches."""
        if self._filter.tags is not None:
            return TAG_TYPE, " || ".join(sorted(self._filter.tags))
        if self._filter.expression is not None and address not in self._without_sql92:
            return SQL92_TYPE, self._filter.expression.text
        return TAG_TYPE, ALL_TAGS

"""A job that sends stored messages again, one after another, and can be resumed after any end.

A line of the job's file is synced before and after each send
(:mod:`rocketlens.client.resend.resend_journal`). A resumed job does not send messages that are
recorded as sent. If the outcome of a message is open (sending, or unknown), its target topic is
searched for its unique key and for the property `MARKER`, which names job and number. If it is
found, it is recorded as sent; if all brokers were searched without a result, it is sent. If a
broker failed, it is skipped and reported, unless the caller accepts a second copy.

Each message is sent in one attempt: a second one after a timeout could store it twice. The file
has no bodies: a message is read again just before its send, by its offset message id.

A job of dead letters has the newest record of each message of a consumer group. Without ``again``
it skips messages that jobs have sent, unless their copy has become a dead letter.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from rocketlens.client.resend.resend_journal import SENT, Outcome, PlannedMessage, ResendJournal
from rocketlens.client.send.message import RESEND_GROUP, Message, message_again
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.errors import (
    BadInput,
    BrokerError,
    ConnectFailed,
    RocketLensError,
    SendFailed,
    TopicNotFound,
)
from rocketlens.model import properties as props
from rocketlens.model.answer import first_failure
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.model.text.nearest import suggestion

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.send.producer import Producer

audit_logger: Final = logging.getLogger("rocketlens.audit")

MARKER: Final = props.RESENT
"""The property of a copy: the job's name, a slash, and the message's number in the job."""
_SHOWN_WHY: Final = 200
"""Characters of the user and reason in a property of each copy."""
_SEPARATORS: Final = props.NAME_VALUE_SEPARATOR + props.PROPERTY_SEPARATOR
_SETTLED_S: Final = 10.0
"""Seconds after which a request without an answer can no longer be stored: brokers refuse requests
that waited in their queue for some seconds.
"""
_FAILURES_IN_A_ROW: Final = 10
"""Consecutive failures that end a run: the rest would fail, too."""
_OF_DELIVERY: Final = frozenset(
    {
        # Properties of this record's delivery, which the copy does not have.
        *(props.WAIT, props.DELAY, props.REAL_TOPIC, props.REAL_QUEUE_ID, props.RECONSUME_TIME),
        *(props.MAX_RECONSUME_TIMES, props.MULTI_DISPATCH, props.MULTI_QUEUE_OFFSET, props.CRC32),
        *(props.CLUSTER, props.MSG_REGION, props.TRACE_ON, props.POP_CHECKPOINT),
        props.CONSUME_FAILURE,
        *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "POP_CK_OFFSET", props.FIRST_POP_TIME),
        *(props.DLQ_ORIGIN_TOPIC, "DLQ_ORIGIN_MESSAGE_ID", props.TIMER_OUT_MS, "TIMER_DELAY_LEVEL"),
        *(props.TIMER_ENQUEUE_MS, props.TIMER_DEQUEUE_MS, props.TIMER_ROLL_TIMES),
        *(props.TIMER_DELETED_KEY, *props.TIMER_NAMES),
    }
)


class Target(Struct, frozen=True, kw_only=True):
    """The destination of messages: ``topic``, one ``group`` only, or (``original``) the topic from
    which a consumer group first got them; by default their own topics.
    """

    topic: str | None = None
    group: str | None = None
    original: bool = False

    def __str__(self) -> str:
        return self.words(2)

    def words(self, count: int) -> str:
        """Return it in words, for a number of messages."""
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.group is not None:
            return f"group {self.group} alone, by topic {RETRY_PREFIX}{self.group}"
        if count == 1:
            return "the topic that it was first consumed from" if self.original else "its topic"
        return "the topics that they were first consumed from" if self.original else "their topics"

    def topic_of(self, message: MessageExt, full_topic: Callable[[str], str]) -> str:
        """Return the full name of a message's topic; empty if the message does not name it.

        A message of a store directory goes into the namespace, too.
        """
        if self.topic is not None:
            return full_topic(self.topic)
        if self.group is not None:
            return full_topic(RETRY_PREFIX + self.group)
        own = message.properties.get(props.RETRY_TOPIC, "") if self.original else message.topic
        return own and full_topic(own)


class Progress(NamedTuple):
    """The outcome of a message in this run."""

    number: int
    planned: PlannedMessage
    outcome: Outcome


def plan_message(
    message: MessageExt, target: Target, full_topic: Callable[[str], str]
) -> PlannedMessage:
    """Return the plan for one message.

    :raises BadInput: if it has no id with which the job can read it again.
    """
    if not message.offset_msg_id:
        raise BadInput(
            f"{message.position} cannot be sent again: its broker compacts the topic, and does not "
            "return the message's position in its log"
        )
    return PlannedMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        offset_msg_id=message.offset_msg_id,
        unique_key=message.unique_key,
        target=target.topic_of(message, full_topic),
    )


def copy_of(message: MessageExt, target: str, marker: str, why: str = "") -> Message:
    """Return a stored message's copy to send: body, flag, unique key, keys, tags, properties.

    In a group's retry topic, it is a message of its original topic with no attempts yet.

    :raises BadInput: if it cannot be sent again.
    """
    again = message_again(message)
    copy = Message(target, again.body, flag=again.flag)
    for name, value in again.properties.items():
        if name not in _OF_DELIVERY:
            copy.put(name, value)
    if props.UNIQUE_KEY not in copy.properties:
        copy.put(props.UNIQUE_KEY, new_unique_key())
    original = copy.properties.pop(props.RETRY_TOPIC, message.topic)
    if target.startswith(RETRY_PREFIX):
        copy.put(props.RETRY_TOPIC, original)
        copy.properties.setdefault(props.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        copy.put(props.RECONSUME_TIME, "0")
    copy.put(MARKER, marker)
    if why:
        copy.put(props.RESENT_WHY, why)
    return copy


def producer_options() -> dict[str, Any]:
    """Return the options of a job's producer: one attempt for each message.

    It must have no namespace: topics of a plan include theirs.
    """
    return {"group": RESEND_GROUP, "retries": 0}


async def check_targets(admin: "MQAdmin", messages: list[PlannedMessage]) -> None:
    """Check that the topics exist: a broker would create a misspelled one.

    :raises TopicNotFound: if one does not; a group has a retry topic after its first consumer.
    """
    for target in sorted({each.target for each in messages} - {""}):
        try:
            await admin.source.topology.route_of_name(target)
        except TopicNotFound as error:
            if not target.startswith(RETRY_PREFIX):
                raise
            group = target.removeprefix(RETRY_PREFIX)
            topics = (await admin.source.topology.topics()).value
            groups = [
                each.removeprefix(RETRY_PREFIX) for each in topics if each.startswith(RETRY_PREFIX)
            ]
            raise TopicNotFound(
                f"no broker has a retry topic of group {group}: it has never had a consumer"
                f"{suggestion(group, groups)}"
            ) from error


class ResendJob:
    """Runs the job of a journal. Bound to one event loop; run one at a time."""

    def __init__(
        self,
        journal: ResendJournal,
        admin: "MQAdmin",
        producer: "Producer",
        *,
        rate: float,
        resend_unknown: bool = False,
        read: Callable[[PlannedMessage], Awaitable[MessageExt]] | None = None,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create a job; ``producer`` has `producer_options`, ``rate`` is messages a second.

        ``resend_unknown``: also send messages that may be stored, if the search for them failed.
        ``read`` reads a message from another source than the cluster.
        """
        self._journal: Final = journal
        self._admin: Final = admin
        self._producer: Final = producer
        self._interval_s: Final = 1 / rate
        self._resend_unknown: Final = resend_unknown
        self._read: Final = read
        self._wall_clock: Final = wall_clock
        self._clock: Final = clock
        self._sleep: Final = sleep
        self._next_s = clock()
        self._unproven: Final[set[int]] = set()
        """Messages that are sent although they may be stored already."""

    async def run(self) -> AsyncGenerator[Progress]:
        """Send the remaining messages; yield the outcome of each that was not yet recorded as sent.

        The run ends early after consecutive failures.

        :raises OSError: if the journal cannot be written. A resumed job then searches for the
            message that was being sent.
        """
        journal = self._journal
        self._audit("begins")
        failures = 0
        for number, message in enumerate(journal.messages, 1):
            before = journal.outcome(number)
            if before is not None and before.state == SENT:
                continue
            if before is None or not before.is_open or await self._may_send(number, before):
                await self._send(number, message)
            outcome = journal.outcome(number)
            if outcome is None:
                raise AssertionError(number)
            yield Progress(number, message, outcome)
            failures = 0 if outcome.state == SENT else failures + 1
            if failures >= _FAILURES_IN_A_ROW:
                break
        self._audit("ends")

    async def _may_send(self, number: int, before: Outcome) -> bool:
        """Search for a message that may be stored; return True if it should be sent.

        Otherwise its outcome is recorded.
        """
        journal = self._journal
        age_s = self._wall_clock() - before.time_ms / 1000
        if age_s < _SETTLED_S:
            await self._sleep(min(_SETTLED_S - age_s, _SETTLED_S))
        try:
            answer = await self._admin.find(
                before.key, journal.messages[number - 1].target, kind="unique-key"
            )
        except RocketLensError as error:
            why = str(error)
        else:
            for each in answer.messages:
                if each.properties.get(MARKER) == self._journal.header.marker(number):
                    journal.sent(number, each.msg_id, each.offset_msg_id)
                    return False
            if answer.complete and not answer.truncated:
                return True
            why = first_failure(answer.coverage) or "more messages have its key"
        if self._resend_unknown:
            self._unproven.add(number)
            return True
        journal.unknown(number, f"it may be stored already, and the search for it failed: {why}")
        return False

    async def _send(self, number: int, message: PlannedMessage) -> None:
        """Send a message in one attempt, and record it.

        :raises OSError: if it cannot be recorded.
        """
        journal = self._journal
        try:
            copy = await self._copy(number, message)
        except RocketLensError as error:
            self._fail(number, str(error))
            return
        await self._pause()
        key = copy.properties[props.UNIQUE_KEY]
        journal.sending(number, key, int(self._wall_clock() * 1000))
        try:
            result = await self._producer.send(copy)
        except RocketLensError as error:
            if _is_surely_not_stored(error):
                self._fail(number, str(error))
            else:
                journal.unknown(number, str(error))
            return
        journal.sent(number, result.msg_id, result.offset_msg_id)

    def _fail(self, number: int, why: str) -> None:
        """Record that this attempt stored nothing; an earlier one may have."""
        if number in self._unproven:
            self._journal.unknown(number, why)
        else:
            self._journal.failed(number, why)

    async def _copy(self, number: int, message: PlannedMessage) -> Message:
        """Read a message, and return the copy to send.

        :raises RocketLensError: if it cannot be read, differs from the plan, or cannot be sent.
        """
        if not message.target:
            raise TopicNotFound(f"it has no property {props.RETRY_TOPIC}: give a topic to send to")
        if self._read is not None:
            stored = await self._read(message)
        else:
            stored = await self._admin.view_message(message.offset_msg_id)
        same = "topic", "queue_id", "queue_offset", "unique_key"
        if any(getattr(stored, each) != getattr(message, each) for each in same):
            raise TopicNotFound(f"{message.offset_msg_id} is no longer the planned message")
        header = self._journal.header
        why = f"{header.user}: {header.reason}"[:_SHOWN_WHY]
        why = why.translate(dict.fromkeys(map(ord, _SEPARATORS)))
        return copy_of(stored, message.target, self._journal.header.marker(number), why)

    async def _pause(self) -> None:
        wait_s = self._next_s - self._clock()
        if wait_s > 0:
            await self._sleep(wait_s)
        self._next_s = max(self._next_s, self._clock()) + self._interval_s

    def _audit(self, what: str) -> None:
        header = self._journal.header
        counts = ", ".join(f"{count} {name}" for name, count in self._journal.counts().items())
        now = datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(timespec="seconds")
        self._journal.audit(f"{what}: {counts}", now)
        audit_logger.info(
            "resend job %s of %s %s: %s; %d messages to %s: %s; reason: %s",
            *(header.job, header.user, what, header.selection, header.count, header.cluster),
            *(counts, header.reason),
        )


def _is_surely_not_stored(error: RocketLensError) -> bool:
    """Return True if a send error proves that no broker has stored the message."""
    if isinstance(error, SendFailed):
        causes = [each for _, each in error.attempts]
        return all(isinstance(each, ConnectFailed | BrokerError) for each in causes)
    # This client or the broker refused it, or no name server answered.
    return True

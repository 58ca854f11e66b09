"""A job that sends stored messages again, one after another, and can be resumed after any end.

Before each message is sent, and after it, a line of the job's file is synced
(:mod:`rocketlens.client.resend.resend_journal`). A job that is resumed does not send what is
recorded as sent. What it last recorded of the others decides:

==========================  ======================================================================
recorded                    then
==========================  ======================================================================
nothing                     the message is sent
failed: surely not stored   it is sent
sending, or unknown         it may be stored: the topic that it went to is searched for its unique
                            key, and for the property `MARKER`, which names job and number. If it
                            is there it is recorded as sent. If all brokers were searched and it
                            is not, it is sent. If a broker could not be asked it is left, and
                            reported, unless the caller allows that it is stored twice
==========================  ======================================================================

Each message is sent in one attempt: a second one after a timeout could store it twice. The file
has no bodies: a message is read again just before it is sent, by its offset message id.

A job of dead letters has one record of each message of a consumer group, the newest. Without
``again`` it leaves out what jobs have sent, unless their copy has become a dead letter.
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
"""The property of a copy: the job's name, a slash, and the message's number in it."""
_SHOWN_WHY: Final = 200
"""Characters of who sent a message again, and why, in a property of it."""
_SEPARATORS: Final = props.NAME_VALUE_SEPARATOR + props.PROPERTY_SEPARATOR
_SETTLED_S: Final = 10.0
"""Seconds after which a request that got no answer is not stored any more, if it was not before:
brokers refuse requests that have waited in their queue for longer than some seconds."""
_FAILURES_IN_A_ROW: Final = 10
"""Messages that fail one after another until a run ends: the rest would, too."""
_OF_DELIVERY: Final = frozenset(
    {
        # How this record came to be, which the copy does not repeat.
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
    """Where messages go: to ``topic``, to one ``group`` alone, or (``original``) to the topic in
    which a consumer group first got them; without any of these to their own topics.
    """

    topic: str | None = None
    group: str | None = None
    original: bool = False

    def __str__(self) -> str:
        return self.words(2)

    def words(self, count: int) -> str:
        """Return it in words, for so many messages."""
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.group is not None:
            return f"group {self.group} alone, by topic {RETRY_PREFIX}{self.group}"
        if count == 1:
            return "the topic that it was first consumed from" if self.original else "its topic"
        return "the topics that they were first consumed from" if self.original else "their topics"

    def topic_of(self, message: MessageExt, full_topic: Callable[[str], str]) -> str:
        """Return the topic, with its namespace, for a message; empty if it does not name it.

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


def planned(
    message: MessageExt, target: Target, full_topic: Callable[[str], str]
) -> PlannedMessage:
    """Return the plan for one message.

    :raises BadInput: if it has no id by which the job finds it again.
    """
    if not message.offset_msg_id:
        raise BadInput(
            f"{message.position} cannot be sent again: its broker compacts the topic, and does not "
            "tell where the message is in its log"
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
    """Return what is sent for a stored message: body, flag, unique key, keys, tags and properties.

    In the retry topic of a group it is a message that the group had from its original topic, with
    no attempts yet.

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
    """Return the options of the producer that a job needs: one attempt for each message.

    It must have no namespace: topics of a plan have theirs.
    """
    return {"group": RESEND_GROUP, "retries": 0}


async def check_targets(admin: "MQAdmin", messages: list[PlannedMessage]) -> None:
    """Check that the topics exist: a broker would create one for a name that is misspelled.

    :raises TopicNotFound: if one does not; a group has a retry topic once it had a consumer.
    :raises RemotingError: if no name server answers.
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
                f"no broker has a retry topic of group {group}: no consumer of it was ever here"
                f"{suggestion(group, groups)}"
            ) from error


class ResendJob:
    """Runs the job of a journal. Belongs to one event loop; run one at a time."""

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
        """Use ``producer`` with the options of `producer_options`; ``rate`` is messages a second.

        ``resend_unknown``: send what may be stored already, even if that could not be looked up.
        ``read`` reads a message from elsewhere than the cluster.
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
        """Send what is left; yield the outcome of each message that was not yet recorded as sent.

        It ends early when messages fail one after another.

        :raises OSError: if the journal cannot be written. The message that was being sent is then
            looked for when the job is resumed.
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
        """Look for a message that may be stored; return whether to send it.

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
        journal.unknown(number, f"it may be stored already, and that cannot be looked up: {why}")
        return False

    async def _send(self, number: int, message: PlannedMessage) -> None:
        """Send a message in one attempt, and record it.

        :raises OSError: if that cannot be recorded.
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
        """Read a message, and return what is sent for it.

        :raises RocketLensError: if it cannot be read, is another one than was planned, or cannot
            be sent.
        """
        if not message.target:
            raise TopicNotFound(f"it has no property {props.RETRY_TOPIC}: give a topic to send to")
        if self._read is not None:
            stored = await self._read(message)
        else:
            stored = await self._admin.view_message(message.offset_msg_id)
        same = "topic", "queue_id", "queue_offset", "unique_key"
        if any(getattr(stored, each) != getattr(message, each) for each in same):
            raise TopicNotFound(f"{message.offset_msg_id} is another message now than was planned")
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
    """Return whether an error of a send proves that no broker has stored the message."""
    if isinstance(error, SendFailed):
        causes = [each for _, each in error.attempts]
        return all(isinstance(each, ConnectFailed | BrokerError) for each in causes)
    # Refused here, or by the broker; or no name server answered, so that no broker was asked.
    return True

"""Sends of one message (10 and 310) and of a batch (320).

Messages are changed as in RocketMQ 5:

==========================  =======================================================================
message                     stored
==========================  =======================================================================
plain                       in its queue; properties with MSG_REGION, TRACE_ON, UNIQ_KEY, CLUSTER
``DELAY`` of 1 and above    in DELAY_TOPIC, queue level - 1, with REAL_TOPIC and REAL_QID
``TIMER_DELAY_SEC``, ...    in TIMER_TOPIC, queue 0, likewise, unless it is due: see
                            :mod:`rocketlens.broker.delivery.timers`
``TRAN_MSG`` true           in HALF_MESSAGE_TOPIC, queue 0, likewise
a retry, too often          in the dead letter topic of its group
member of a batch           in its queue; properties unchanged. `rocketlens.broker.sends.send_runs`
                            does the same, faster
==========================  =======================================================================

Properties are in the order of Java's ``HashMap``. Bodies are stored as received, compressed or not.
Sources: ``SendMessageProcessor``, ``AbstractSendMessageProcessor``, ``HookUtils``.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Pending, after
from rocketlens.broker.sends.plain import (
    BROKERS_OWN,
    MULTI_TAGS_FLAG,
    REDIRECTING_NAMES,
    may_be_due_later,
    own_properties,
    reply_fields,
)
from rocketlens.broker.tables.registry import SubscriptionGroupMissing, topic_text
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import FormatError, MessageIllegal
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.model import properties as props
from rocketlens.model.message_id import UniqueKey
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    DELAY_TOPIC,
    FAQ,
    HALF_MESSAGE_TOPIC,
    PERM_WRITE,
    RETRY_PREFIX,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    TIMER_TOPIC,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    is_group_topic,
    topic_problem,
)
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import in_thread
from rocketlens.store.write.append import Appended
from rocketlens.wire.codes import V3_4_9, RequestCode, ResponseCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from rocketlens.wire.commands.messages import SEND_MESSAGE, SEND_MESSAGE_V2
from rocketlens.wire.declare import read_i32
from rocketlens.wire.recall_handle import RecallHandle

if TYPE_CHECKING:
    from rocketlens.broker.sends.send_runs import StoredBatch

MAX_BATCH_MEMBERS: Final = 65_536
"""Members of one batch; more are refused (13). This many members with only a unique key fill
RocketMQ's largest message, 4 MiB. RocketMQ: no limit.
"""
_FIELDS: Final = (
    "topic",
    "queue_id",
    "sys_flag",
    "born_timestamp_ms",
    "flag",
    "properties",
    "reconsume_times",
    "batch",
)
_pick_long: Final = SEND_MESSAGE.request.picker(*_FIELDS)
_pick_short: Final = SEND_MESSAGE_V2.request.picker(*_FIELDS)

CODES: Final = (
    *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
)
Refusal = tuple[ResponseCode, str]
Fields = tuple[str, int, int, int, int, str | None, int | None, bool | None]

_CACHED_ORDERS: Final = 10_000


class PropertyWriter:
    """Parses the properties of producers and writes the properties of stored messages.

    A broker adds MSG_REGION, TRACE_ON, CLUSTER and, if it is missing, UNIQ_KEY to the producer's
    properties, and writes all in the order of Java's ``HashMap``. The order is cached by the names,
    because producers repeat them.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._own: Final = own_properties(config)
        self._orders: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}

    def parse(self, text: str) -> dict[str, str]:
        """Parse the string form and add the broker's own properties, but no unique key."""
        properties = props.parse(text)
        properties.update(self._own)
        if props.POP_CHECKPOINT in properties:
            del properties[props.POP_CHECKPOINT]
        return properties

    def add_key(self, properties: dict[str, str], unique_key: str) -> None:
        # Before CLUSTER: the two share a bucket, and RocketMQ adds the unique key first.
        del properties[props.CLUSTER]
        properties[props.UNIQUE_KEY] = unique_key
        properties[props.CLUSTER] = self._own[props.CLUSTER]

    def write(self, properties: dict[str, str]) -> bytes:
        """Return the string form in Java's order with the last separator. Values are not empty."""
        names = tuple(properties)
        order = self._orders.get(names)
        if order is None:
            order = tuple(props.java_order(properties))
            if len(self._orders) >= _CACHED_ORDERS:
                self._orders.clear()
            self._orders[names] = order
        return "".join([f"{name}\x01{properties[name]}\x02" for name in order]).encode()


class SendProcessor:
    """Stores messages that producers send (codes 10, 310 and 320)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._topics: Final = core.topics.topics
        self._pending: Final = core.topics.pending
        self._is_safe_only: Final = core.replies.is_needed
        self._writer: Final = PropertyWriter(core.config)
        self._reply_fields: Final = reply_fields(core.config)
        self._process_id: Final = os.getpid()
        # Read once: each call releases the interpreter's lock, and takes it again before a waiting
        # thread wakes, which then waits for tenths of a second.
        self._host_hash: Final = hash(socket.gethostname())
        self._key_count = 0

    def send(self, command: RemotingCommand, channel: Channel) -> Pending:
        pick = _pick_long if command.code == RequestCode.SEND_MESSAGE else _pick_short
        fields = pick(command.ext_fields)
        topic, batch = fields[0], fields[7]
        target = target_of(self.core, command, channel, topic, fields[1])
        if isinstance(target, Response):
            return target
        config, queue_id = target
        if batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            answer = self._store_batch(command, channel, queue_id, fields)
        else:
            answer = self._store(command, channel, config, queue_id, fields)
        if self._pending and topic in self._pending:
            return after(self._pending[topic], answer)
        return answer

    def _store(
        self,
        command: RemotingCommand,
        channel: Channel,
        config: StoredTopic,
        queue_id: int,
        fields: Fields,
    ) -> Pending:
        topic, _, sys_flag, born_timestamp_ms, flag, text, reconsume_times, _ = fields
        properties = self._writer.parse(text or "")
        unique_key = properties.get(props.UNIQUE_KEY)
        if unique_key is None:
            unique_key = self._new_key()
            self._writer.add_key(properties, unique_key)
        if topic[:1] == "%":
            refusal = refuse_copy(self.core, command, channel, topic, (text or "").encode())
            if refusal is not None:
                return refusal
            if topic.startswith(RETRY_PREFIX):
                config, queue_id, changes = self._to_retry(
                    command, config, queue_id, reconsume_times
                )
                topic = config.topic
                properties.update(changes)
        if config.filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS_FLAG
        reply_queue_id = queue_id
        if not REDIRECTING_NAMES.isdisjoint(properties):
            topic, queue_id, sys_flag = self._redirect(
                topic, queue_id, sys_flag, properties, reconsume_times or 0
            )
        core = self.core
        handle = None
        if topic == TIMER_TOPIC:
            handle = RecallHandle.of(properties, core.config.brokerName)
        appended = core.store.append(
            topic,
            queue_id,
            command.body,
            self._writer.write(properties),
            core.born_host(channel),
            born_timestamp_ms=born_timestamp_ms,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times or 0,
        )
        core.stats.put_total += 1
        response = Response(
            ext_fields={
                "msgId": f"{core.id_prefix}{appended.physical_offset:016X}",
                "queueId": str(reply_queue_id),
                "queueOffset": str(appended.queue_offset),
                "transactionId": unique_key,
                **self._reply_fields,
            }
        )
        if handle is not None:
            response.ext_fields["recallHandle"] = handle.encode()
        if self._is_safe_only and properties.get(props.WAIT, "true").lower() == "true":
            return when_safe(self.core, appended, response)
        return response

    def _to_retry(
        self,
        command: RemotingCommand,
        config: StoredTopic,
        queue_id: int,
        reconsume_times: int | None,
    ) -> tuple[StoredTopic, int, dict[str, str]]:
        """Return topic, queue and new properties of a retry; of a dead letter after too many."""
        name = config.topic[len(RETRY_PREFIX) :]
        group = self.core.groups.find(name)
        if group is None:
            raise SubscriptionGroupMissing(name)
        codec = SEND_MESSAGE_V2 if "b" in command.ext_fields else SEND_MESSAGE
        request = codec.request.decode(command.ext_fields)
        max_times = max_retries(group, command.version, request.max_reconsume_times)
        # Orderly consumers retry in memory, and send only dead letters.
        if (reconsume_times or 0) <= max_times and not self.core.queue_locks.has(name):
            return config, queue_id, {}
        dead = self.core.topics.create_for_group(f"{DEAD_LETTER_PREFIX}{name}", 1)
        return dead, 0, {props.DELAY: "0"}

    def _redirect(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        properties: dict[str, str],
        reconsume_times: int,
    ) -> tuple[str, int, int]:
        """Return topic, queue and flag of a delayed or half message, and change its properties."""
        level = read_i32(properties.get(props.DELAY, "0"), props.DELAY)
        is_half = properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
        if is_half and not (reconsume_times > 0 and level > 0):
            if level <= 0:
                self.core.timers.check(properties)
            properties[props.TRANSACTION_ID] = properties[props.UNIQUE_KEY]
            properties[props.REAL_TOPIC] = topic
            properties[props.REAL_QUEUE_ID] = str(queue_id)
            return HALF_MESSAGE_TOPIC, 0, sys_flag & ~SYS_FLAG_TRANSACTION_MASK
        if sys_flag & SYS_FLAG_TRANSACTION_MASK not in (0, SYS_FLAG_COMMIT):
            return topic, queue_id, sys_flag
        if level <= 0:
            return (*self.core.timers.redirect(topic, queue_id, properties), sys_flag)
        return (*wait_for_level(self.core, topic, queue_id, properties, level), sys_flag)

    def _store_batch(
        self, command: RemotingCommand, channel: Channel, queue_id: int, fields: Fields
    ) -> Pending:
        topic, text = fields[0], fields[5]
        if topic.startswith(RETRY_PREFIX):
            raise MessageIllegal(f"batch request does not support retry group {topic}")
        stored = self._store_together(command, channel, queue_id, fields)
        if stored is not None:
            return self._batch_answer(queue_id, text or "", *stored)
        members = _members(command.body, limits.MAX_TURN_MEMBERS + 1)
        if len(members) > limits.MAX_TURN_MEMBERS:
            return self._store_large_batch(command, channel, queue_id, fields)
        _check_no_delay(command.body, text or "", members)
        refusal = _refuse_copies(self.core, command, channel, topic, members)
        if refusal is not None:
            return refusal
        ids, first, last = self._append(channel, queue_id, fields, members)
        return self._batch_answer(queue_id, text or "", ids, first, last)

    def _store_together(
        self, command: RemotingCommand, channel: Channel, queue_id: int, fields: Fields
    ) -> "StoredBatch | None":
        """Store the members of a batch by compiled code; return None if it cannot handle them."""
        topic, _, sys_flag, born_timestamp_ms, _, text, reconsume_times, _ = fields
        batches = self.core.batches
        if batches is None or topic[:1] == "%" or may_be_due_later(text or ""):
            return None
        return batches.store(
            channel,
            topic,
            queue_id,
            command.body,
            born_timestamp_ms=born_timestamp_ms,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times or 0,
        )

    async def _store_large_batch(
        self, command: RemotingCommand, channel: Channel, queue_id: int, fields: Fields
    ) -> Response | None:
        """Store a batch in steps, between which others can store messages in its queue."""
        max_message_bytes = self.core.settings.store.maxMessageSize
        topic, text = fields[0], fields[5] or ""
        # A one-way batch is stored even after the producer closed its connection.
        owner = None if command.flag & ONE_WAY_FLAG else channel
        members = await in_thread(
            lambda: _read_members(command.body, text, max_message_bytes), owner=owner
        )
        refusal = _refuse_copies(self.core, command, channel, topic, members)
        if refusal is not None:
            return refusal
        ids, first, last = [], None, None
        for start in range(0, len(members), limits.MAX_TURN_MEMBERS):
            if topic not in self._topics:
                remark = f"topic[{topic}] was deleted while the batch was stored"
                return _refusal(self.core, (ResponseCode.TOPIC_NOT_EXIST, remark))
            step = members[start : start + limits.MAX_TURN_MEMBERS]
            ids_of_step, first_of_step, last = self._append(channel, queue_id, fields, step)
            ids.append(ids_of_step)
            first = first or first_of_step
            await asyncio.sleep(0)
        assert first is not None and last is not None  # noqa: S101, PT018 - there are members
        answer = self._batch_answer(queue_id, text, ",".join(ids), first, last)
        return answer if isinstance(answer, Response) else await answer

    def _append(
        self, channel: Channel, queue_id: int, fields: Fields, members: list[BatchMember]
    ) -> tuple[str, Appended, Appended]:
        topic, _, sys_flag, born_timestamp_ms, _, _, reconsume_times, _ = fields
        core = self.core
        appended = core.store.append_batch(
            topic,
            queue_id,
            members,
            core.born_host(channel),
            born_timestamp_ms=born_timestamp_ms,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times or 0,
        )
        core.stats.put_total += len(appended)
        ids = ",".join([f"{core.id_prefix}{each.physical_offset:016X}" for each in appended])
        return ids, appended[0], appended[-1]

    def _batch_answer(
        self, queue_id: int, text: str, ids: str, first: Appended, last: Appended
    ) -> Pending:
        ext_fields = {
            "msgId": ids,
            "queueId": str(queue_id),
            "queueOffset": str(first.queue_offset),
            **self._reply_fields,
        }
        properties = props.parse(text)
        if props.UNIQUE_KEY in properties:
            # In RocketMQ 5, the batch itself has a key, too.
            ext_fields["transactionId"] = properties[props.UNIQUE_KEY]
        response = Response(ext_fields=ext_fields)
        if self._is_safe_only and properties.get(props.WAIT, "true").lower() == "true":
            return when_safe(self.core, last, response)
        return response

    def _new_key(self) -> str:
        self._key_count += 1
        address = self.core.store.store_host.address
        unique_key = UniqueKey.at(
            self.core.clock(),
            address,
            process_id=self._process_id,
            client_hash=self._host_hash,
            counter=self._key_count,
        )
        return unique_key.encode()


def target_of(
    core: BrokerCore, command: RemotingCommand, channel: Channel, topic: str, queue_id: int
) -> tuple[StoredTopic, int] | Response:
    """Return topic and queue of a message, or the response if it cannot be stored there."""
    config = core.topics.get(topic)
    if config is None or topic in BROKERS_OWN:
        config, refusal = _topic_for(core, topic, command)
        if config is None:
            return _refusal(core, refusal)
    if not config.perm & PERM_WRITE:
        remark = f"the topic[{topic}] sending message is forbidden"
        return _refusal(core, (ResponseCode.NO_PERMISSION, remark))
    if queue_id >= config.queue_count:
        remark = f"request queueId[{queue_id}] is illegal, {topic_text(config)} Producer: "
        return _refusal(core, (ResponseCode.INVALID_PARAMETER, remark + channel.address))
    if queue_id < 0:
        queue_id = core.rng.randrange(max(config.write_queue_count, 1))
    return config, queue_id


def refuse_copy(
    core: BrokerCore, command: RemotingCommand, channel: Channel, topic: str, properties: bytes
) -> Response | None:
    """Return the refusal of a message for a group's topic; None if it can be stored."""
    access = core.access
    if access is None or not is_group_topic(topic):
        return None
    return access.decide_copying(command, channel, topic, properties)


def _refuse_copies(
    core: BrokerCore,
    command: RemotingCommand,
    channel: Channel,
    topic: str,
    members: list[BatchMember],
) -> Response | None:
    if topic[:1] != "%":
        return None
    refusals = (refuse_copy(core, command, channel, topic, each.properties) for each in members)
    return next((refusal for refusal in refusals if refusal is not None), None)


def when_safe(
    core: BrokerCore, appended: Appended, response: Response
) -> Response | asyncio.Future[Response | None]:
    """Return ``response`` once a message is as safe as configured."""
    if not core.replies.is_needed:
        return response
    end_offset = appended.physical_offset + appended.store_size
    return core.replies.reply(end_offset, response)


def _topic_for(
    core: BrokerCore, topic: str, command: RemotingCommand
) -> tuple[StoredTopic | None, Refusal]:
    """Create the topic of a message; return None, and the reason, if that is not possible."""
    problem = topic_problem(topic)
    if problem is not None:
        return None, (ResponseCode.INVALID_PARAMETER, problem)
    if topic in BROKERS_OWN:
        remark = f"Sending message to topic[{topic}] is forbidden."
        return None, (ResponseCode.NO_PERMISSION, remark)
    is_long = command.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    codec = (SEND_MESSAGE if is_long else SEND_MESSAGE_V2).request
    request = codec.decode(command.ext_fields)
    is_retry = topic.startswith(RETRY_PREFIX)
    sys_flag = 0
    if request.unit_mode:
        sys_flag = UNIT_SUB_FLAG if is_retry else UNIT_FLAG
    topics = core.topics
    config = topics.create_for_send(
        topic, request.default_topic, request.default_topic_queue_nums, sys_flag
    )
    if config is None and is_retry:
        config = topics.create_for_group(topic, 1, sys_flag)
    remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
    return config, (ResponseCode.TOPIC_NOT_EXIST, remark)


def wait_for_level(
    core: BrokerCore, topic: str, queue_id: int, properties: dict[str, str], level: int
) -> tuple[str, int]:
    """Return the queue for a delay level; change the properties of a message that waits there."""
    level = min(level, len(core.settings.store.messageDelayLevel.split()))
    props.remove_timers(properties)
    properties[props.DELAY] = str(level)
    properties[props.REAL_TOPIC] = topic
    properties[props.REAL_QUEUE_ID] = str(queue_id)
    return DELAY_TOPIC, level - 1


def max_retries(group: Mapping[str, Any], version: int, requested: int | None) -> int:
    """Return the maximum number of retries; clients from 3.4.9 on can request one."""
    if version >= V3_4_9 and requested is not None:
        return requested
    return int(group.get("retryMaxTimes", 16))


def _refusal(core: BrokerCore, refusal: Refusal) -> Response:
    return Response(refusal[0], reply_fields(core.config), remark=refusal[1])


def _members(body: bytes, max_count: int) -> list[BatchMember]:
    try:
        return list(islice(batch_body.decode(body), max_count))
    except FormatError as error:
        raise MessageIllegal(f"the message is illegal: {error}") from None


def _read_members(body: bytes, text: str, max_message_bytes: int) -> list[BatchMember]:
    """Read and check all members of a large batch, before any of them is stored."""
    members = _members(body, MAX_BATCH_MEMBERS + 1)
    if len(members) > MAX_BATCH_MEMBERS:
        problem = f"the message is illegal: a batch of more than {MAX_BATCH_MEMBERS} members"
        raise MessageIllegal(f"{problem}: send it in parts")
    for number, member in enumerate(members):
        if (
            len(member.body) > max_message_bytes
            or len(member.properties) > limits.MAX_PROPERTIES_BYTES
        ):
            problem = f"the message is illegal: member {number} of the batch is too large"
            raise MessageIllegal(problem)
    _check_no_delay(body, text, members)
    return members


def _check_no_delay(body: bytes, text: str, members: list[BatchMember]) -> None:
    if may_be_due_later(text) and not props.TIMER_NAMES.isdisjoint(props.parse(text)):
        # RocketMQ stores its members without their delivery time, and then delivers no timer any
        # more, because it cannot skip them.
        raise MessageIllegal("a batch cannot have a delivery time: send its messages one by one")
    if b"DELAY\x01" not in body and not may_be_due_later(text):
        return
    for each in (text, *(member.properties.decode(errors="replace") for member in members)):
        level = props.parse(each).get(props.DELAY, "0")
        if read_i32(level, props.DELAY) > 0:
            raise MessageIllegal("a batch cannot have delayed messages: send them one by one")

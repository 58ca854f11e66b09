"""Sending: codes 10 and 310 (one message) and 320 (a batch).

What a message becomes on the way, as RocketMQ 5 does it:

==========================  =======================================================================
message                     stored
==========================  =======================================================================
plain                       where it says; properties with MSG_REGION, TRACE_ON, UNIQ_KEY, CLUSTER
``DELAY`` of 1 and above    in SCHEDULE_TOPIC_XXXX, queue level - 1, with REAL_TOPIC and REAL_QID
``TRAN_MSG`` true           in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, likewise
to ``%RETRY%g``, too often  in ``%DLQ%g``
member of a batch           where it says; properties as they are
==========================  =======================================================================

Properties stand in the order of Java's ``HashMap``. Bodies are stored as they came, compressed
or not. Sources: ``SendMessageProcessor``, ``AbstractSendMessageProcessor``, ``HookUtils``.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Mapping
from itertools import islice
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.properties import REDIRECTING_NAMES, PropertyWriter
from rocketlens.broker.registry import topic_text
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import FormatError, MessageIllegal
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.model import properties as props
from rocketlens.model.message_id import UniqueKey
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    FAQ,
    HALF_TOPIC,
    NOT_ALLOWED_SEND_TOPICS,
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYS_FLAG_TRANSACTION_MASK,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    topic_problem,
)
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import in_thread
from rocketlens.store.write.append import Appended
from rocketlens.wire.codes import V3_4_9, RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import send as commands
from rocketlens.wire.declare import read_i32

Pending = Response | Awaitable[Response | None]

MULTI_TAGS_FLAG: Final = 0x2
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
_pick_long: Final = commands.SEND_MESSAGE.request.picker(*_FIELDS)
_pick_short: Final = commands.SEND_MESSAGE_V2.request.picker(*_FIELDS)

Refused = tuple[ResponseCode, str]
Fields = tuple[str, int, int, int, int, str | None, int | None, bool | None]

MEMBERS_AT_ONCE: Final = 500
"""Members of a batch that are stored in one piece of work: some milliseconds."""


class SendProcessor:
    """Stores what producers send."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        config = core.config
        self._topics: Final = core.topics.topics
        self._pending: Final = core.topics.pending
        self._is_sync: Final = core.settings.store.is_sync_flush
        self._writer: Final = PropertyWriter(
            region=config.regionId, trace_on=config.traceOn, cluster=config.brokerClusterName
        )
        self._reply: Final = {
            props.MSG_REGION: config.regionId,
            props.TRACE_ON: "true" if config.traceOn else "false",
        }
        self._highest_level: Final = len(core.settings.store.messageDelayLevel.split())
        self._keys_made = 0

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, command: RemotingCommand, channel: Channel) -> Pending:
        """Store a message, or the members of a batch, and say where."""
        pick = _pick_long if command.code == RequestCode.SEND_MESSAGE else _pick_short
        fields = pick(command.ext_fields)
        topic, queue_id, batch = fields[0], fields[1], fields[7]
        config = self._topics.get(topic)
        if config is None or topic in NOT_ALLOWED_SEND_TOPICS:
            config, refused = self._topic_for(topic, command)
            if config is None:
                return self._refuse(refused)
        if not config.perm & PERM_WRITE:
            words = f"the topic[{topic}] sending message is forbidden"
            return self._refuse((ResponseCode.NO_PERMISSION, words))
        if queue_id >= config.write_queue_count and queue_id >= config.read_queue_count:
            words = f"request queueId[{queue_id}] is illegal, {topic_text(config)} Producer: "
            return self._refuse((ResponseCode.INVALID_PARAMETER, words + channel.address))
        if queue_id < 0:
            queue_id = self.core.chance.randrange(max(config.write_queue_count, 1))
        if batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            answer = self._store_batch(command, channel, queue_id, fields)
        else:
            answer = self._store(command, channel, config, queue_id, fields)
        if self._pending and topic in self._pending:
            return _after(self._pending[topic], answer)
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
        if topic[:1] == "%" and topic.startswith(RETRY_PREFIX):
            config, queue_id, changes = self._to_retry(command, config, queue_id, reconsume_times)
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
        core.figures.put += 1
        response = Response(
            ext_fields={
                "msgId": f"{core.id_prefix}{appended.physical_offset:016X}",
                "queueId": str(reply_queue_id),
                "queueOffset": str(appended.queue_offset),
                "transactionId": unique_key,
                **self._reply,
            }
        )
        if self._is_sync and properties.get(props.WAIT, "true").lower() == "true":
            return self._when_durable(appended, response)
        return response

    def _when_durable(
        self, appended: Appended, response: Response
    ) -> asyncio.Future[Response | None]:
        end_offset = appended.physical_offset + appended.store_size
        return self.core.durable.answer(end_offset, response)

    def _refuse(self, refused: Refused) -> Response:
        return Response(refused[0], dict(self._reply), remark=refused[1])

    def _topic_for(
        self, topic: str, command: RemotingCommand
    ) -> tuple[StoredTopic | None, Refused]:
        """Make the topic of a message, if it may be made; otherwise say why not."""
        problem = topic_problem(topic)
        if problem is not None:
            return None, (ResponseCode.INVALID_PARAMETER, problem)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            words = f"Sending message to topic[{topic}] is forbidden."
            return None, (ResponseCode.NO_PERMISSION, words)
        is_long = command.code == RequestCode.SEND_MESSAGE
        codec = (commands.SEND_MESSAGE if is_long else commands.SEND_MESSAGE_V2).request
        asked = codec.decode(command.ext_fields)
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = 0
        if asked.unit_mode:
            sys_flag = UNIT_SUB_FLAG if is_retry else UNIT_FLAG
        topics = self.core.topics
        made = topics.create_for_send(
            topic, asked.default_topic, asked.default_topic_queue_nums, sys_flag
        )
        if made is None and is_retry:
            made = topics.create_for_group(topic, 1, sys_flag)
        words = f"topic[{topic}] not exist, apply first please!{FAQ}"
        return made, (ResponseCode.TOPIC_NOT_EXIST, words)

    def _to_retry(
        self,
        command: RemotingCommand,
        config: StoredTopic,
        queue_id: int,
        reconsume_times: int | None,
    ) -> tuple[StoredTopic, int, dict[str, str]]:
        """Send what failed too often to the dead letters; return what to change of properties."""
        name = config.topic[len(RETRY_PREFIX) :]
        group = self.core.groups.find(name)
        if group is None:
            raise SubscriptionGroupMissing(name)
        most = int(group.get("retryMaxTimes", 16))
        codec = commands.SEND_MESSAGE_V2 if "b" in command.ext_fields else commands.SEND_MESSAGE
        asked = codec.request.decode(command.ext_fields)
        if command.version >= V3_4_9 and asked.max_reconsume_times is not None:
            most = asked.max_reconsume_times
        if (reconsume_times or 0) <= most:
            return config, queue_id, {}
        dead = self.core.topics.create_for_group(f"{DEAD_LETTER_PREFIX}{name}", 1)
        return dead, 0, {props.DELAY: "-1"}

    def _redirect(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        properties: dict[str, str],
        reconsume_times: int,
    ) -> tuple[str, int, int]:
        """Return where a delayed or half message is stored, and change its properties."""
        level = read_i32(properties.get(props.DELAY, "0"), props.DELAY)
        is_half = properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
        if is_half and not (reconsume_times > 0 and level > 0):
            properties[props.TRANSACTION_ID] = properties[props.UNIQUE_KEY]
            properties[props.REAL_TOPIC] = topic
            properties[props.REAL_QUEUE_ID] = str(queue_id)
            return HALF_TOPIC, 0, sys_flag & ~SYS_FLAG_TRANSACTION_MASK
        if props.TIMER_NAMES & properties.keys():
            raise TimerMissing
        if level > 0:
            level = min(level, self._highest_level)
            properties[props.DELAY] = str(level)
            properties[props.REAL_TOPIC] = topic
            properties[props.REAL_QUEUE_ID] = str(queue_id)
            return SCHEDULE_TOPIC, level - 1, sys_flag
        return topic, queue_id, sys_flag

    def _store_batch(
        self,
        command: RemotingCommand,
        channel: Channel,
        queue_id: int,
        fields: Fields,
    ) -> Pending:
        topic, text = fields[0], fields[5]
        if topic.startswith(RETRY_PREFIX):
            raise MessageIllegal(f"batch request does not support retry group {topic}")
        members = _members(command.body, MEMBERS_AT_ONCE + 1)
        if len(members) > MEMBERS_AT_ONCE:
            return self._store_large_batch(command, channel, queue_id, fields)
        _check_no_delay(command.body, text or "", members)
        appended = self._append(channel, queue_id, fields, members)
        ids = self._ids_of(appended)
        return self._batch_answer(queue_id, text or "", ids, appended[0], appended[-1])

    async def _store_large_batch(
        self, command: RemotingCommand, channel: Channel, queue_id: int, fields: Fields
    ) -> Response | None:
        """Store a batch in steps of a millisecond or two, with turns for others between them.

        Those may store messages of the same queue there.
        """
        most = self.core.settings.store.maxMessageSize
        topic, text = fields[0], fields[5] or ""
        members = await in_thread(lambda: _checked_members(command.body, text, most))
        ids, first, last = [], None, None
        for start in range(0, len(members), MEMBERS_AT_ONCE):
            if topic not in self._topics:
                words = f"topic[{topic}] was deleted while the batch was stored"
                return self._refuse((ResponseCode.TOPIC_NOT_EXIST, words))
            step = members[start : start + MEMBERS_AT_ONCE]
            appended = self._append(channel, queue_id, fields, step)
            ids.append(self._ids_of(appended))
            first, last = first or appended[0], appended[-1]
            await asyncio.sleep(0)
        assert first is not None and last is not None  # noqa: S101, PT018 - there are members
        answer = self._batch_answer(queue_id, text, ",".join(ids), first, last)
        return answer if isinstance(answer, Response) else await answer

    def _append(
        self, channel: Channel, queue_id: int, fields: Fields, members: list[BatchMember]
    ) -> list[Appended]:
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
        core.figures.put += len(appended)
        return appended

    def _ids_of(self, appended: list[Appended]) -> str:
        prefix = self.core.id_prefix
        return ",".join([f"{prefix}{each.physical_offset:016X}" for each in appended])

    def _batch_answer(
        self, queue_id: int, text: str, ids: str, first: Appended, last: Appended
    ) -> Pending:
        ext_fields = {
            "msgId": ids,
            "queueId": str(queue_id),
            "queueOffset": str(first.queue_offset),
            **self._reply,
        }
        properties = props.parse(text)
        if props.UNIQUE_KEY in properties:
            # Producers of 5.x give the batch itself a key, too.
            ext_fields["transactionId"] = properties[props.UNIQUE_KEY]
        response = Response(ext_fields=ext_fields)
        if self._is_sync and properties.get(props.WAIT, "true").lower() == "true":
            return self._when_durable(last, response)
        return response

    def _new_key(self) -> str:
        """Make a unique key for a message that came without one."""
        self._keys_made += 1
        address = self.core.store.store_host.address
        made = UniqueKey.at(
            self.core.clock(),
            address,
            process_id=os.getpid(),
            client_hash=hash(socket.gethostname()),
            counter=self._keys_made,
        )
        return made.encode()


class SubscriptionGroupMissing(MessageIllegal):
    """A retry topic's group is not there, and may not make itself."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def __init__(self, group: str) -> None:
        """Take the group."""
        super().__init__(f"subscription group not exist, {group} {FAQ}")


class TimerMissing(MessageIllegal):
    """A message is to be delivered at any time of its own; only delay levels are kept."""

    code = ResponseCode.SYSTEM_ERROR

    def __init__(self) -> None:
        """Build the message in RocketMQ's words."""
        super().__init__("accurate timer message is not enabled, timerWheelEnable is false")


def _members(body: bytes, most: int) -> list[BatchMember]:
    """Read the first members of a batch, ``most`` of them."""
    try:
        return list(islice(batch_body.decode(body), most))
    except FormatError as error:
        raise MessageIllegal(f"the message is illegal: {error}") from None


def _checked_members(body: bytes, text: str, message_bytes: int) -> list[BatchMember]:
    """Read the members of a large batch; each must be fit to be stored, before any is."""
    most = limits.MAX_BATCH_MEMBERS
    members = _members(body, most + 1)
    if len(members) > most:
        words = f"the message is illegal: a batch of more than {most} members: send it in parts"
        raise MessageIllegal(words)
    for number, member in enumerate(members):
        if len(member.body) > message_bytes or len(member.properties) > limits.MAX_PROPERTIES_BYTES:
            words = f"the message is illegal: member {number} of the batch is too large"
            raise MessageIllegal(words)
    _check_no_delay(body, text, members)
    return members


def _check_no_delay(body: bytes, text: str, members: list[BatchMember]) -> None:
    if b"DELAY\x01" not in body and "DELAY\x01" not in text:
        return
    for each in (text, *(member.properties.decode(errors="replace") for member in members)):
        level = props.parse(each).get(props.DELAY, "0")
        if read_i32(level, props.DELAY) > 0:
            raise MessageIllegal("a batch has no delayed messages: send them one by one")


async def _after(told: asyncio.Future[None], answer: Pending) -> Response | None:
    """Return an answer once the name servers know the topic."""
    await asyncio.shield(told)
    return answer if isinstance(answer, Response) else await answer

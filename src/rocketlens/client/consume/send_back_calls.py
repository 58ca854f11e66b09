"""Sends messages that a group could not consume back to a broker, which delivers them again later.

Request 36 to the message's own broker stores a copy in the group's retry topic, with a growing
delay, or after 16 times (``max_reconsume_times``) as a dead letter. A plain send to the retry topic
does the same on any broker. It is used if request 36 fails, by ordered consumers, for members of a
batch, and if a listener failed: only this copy can hold the reason (`CONSUME_FAILURE`). In a plain
send, the client decides between a retry and a dead letter: RocketMQ 4 and 5 compare the numbers
differently. Source: ``DefaultMQPushConsumerImpl.sendMessageBack``,
``ConsumeMessageOrderlyService``, ``SendMessageProcessor.handleRetryAndDLQ``.
"""

import logging
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error
from rocketlens.client.connect.namespace import with_namespace
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import encoded_properties
from rocketlens.client.send.send_request import COMPRESS_OVER_BYTES
from rocketlens.client.send.send_result import STATUS_OF_CODE
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.errors import MessageIllegal, RocketLensError
from rocketlens.formats.body_compression import COMPRESSED, ZLIB, compress
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import (
    DEFAULT_TOPIC,
    DELAY_LEVEL_COUNT,
    RETRY_PREFIX,
    SYS_FLAG_NEED_UNWRAP,
)
from rocketlens.wire.commands import messages as commands

logger: Final = logging.getLogger("rocketlens.client")

INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_COMPRESSION_BITS: Final = 0x701
_COMPRESSION_LEVEL: Final = 5
_NOT_SENT_AGAIN: Final = frozenset({props.TRANSACTION_PREPARED, props.DELAY, props.MSG_REGION})


class SendBack:
    """Sends messages of one group back; ``group`` includes its namespace."""

    def __init__(
        self, cluster: ClusterCalls, group: str, namespace: str, max_reconsume_times: int
    ) -> None:
        self._cluster: Final = cluster
        self._group: Final = group
        self._namespace: Final = namespace
        self.max_reconsume_times: Final = max_reconsume_times

    async def send_back(
        self, message: MessageExt, queue: MessageQueue, delay_level: int, failure: str = ""
    ) -> bool:
        """Send a message back in one of the two ways; return False if both failed, which is logged.

        ``failure`` is the reason for its copy; empty for none.
        """
        if message.sys_flag & SYS_FLAG_NEED_UNWRAP:
            # Request 36 would deliver the whole batch again, as one message.
            return await self.send_to_retry(message, failure, delay_level)
        if failure:
            problem = await self._send_copy(message, failure, delay_level, queue.broker_name)
            if problem is None:
                return True
            logger.info("the retry of %s has no failure reason: %s", message.msg_id, problem)
        header = commands.ConsumerSendMessageBackRequest(
            physical_offset=message.physical_offset,
            consumer_group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=with_namespace(self._namespace, message.topic),
            max_reconsume_times=self.max_reconsume_times,
            broker_name=queue.broker_name,
        )
        try:
            route = await self._cluster.route(queue.topic, wait=False)
            broker = route.brokers.get(queue.broker_name)
            if broker is not None and broker.master is not None:
                await self._cluster.ask(broker.master, commands.CONSUMER_SEND_MSG_BACK, header)
                return True
            reason = "its broker has no master now"
        except RocketLensError as error:
            reason = str(error)
        logger.warning("%s is sent to the retry topic instead: %s", message.msg_id, reason)
        return await self.send_to_retry(message, failure, delay_level)

    async def send_to_retry(
        self, message: MessageExt, failure: str = "", delay_level: int = 0
    ) -> bool:
        """Send a copy to the retry topic; return False if no broker stored it, which is logged."""
        problem = await self._send_copy(message, failure, delay_level)
        if problem is not None:
            logger.warning("%s could not be sent back: %s", message.msg_id, problem)
        return problem is None

    async def _send_copy(
        self, message: MessageExt, failure: str, delay_level: int, first_broker: str = ""
    ) -> object:
        """Send a copy to the retry topic; return the problem, or None if it was stored."""
        problem: RocketLensError | None = None
        body, sys_flag = _body_of(message)
        try:
            route = await self._cluster.fresh_route(RETRY_PREFIX + self._group)
            first_queues = {each.broker_name: each for each in reversed(route.write_queues)}
            in_order = list(reversed(first_queues.values()))
            in_order.sort(key=lambda each: each.broker_name != first_broker)
            for queue in in_order:
                address = route.brokers[queue.broker_name].master
                if address is None:
                    continue
                header = self._retry_header(message, queue, sys_flag, failure, delay_level)
                try:
                    answer = await self._cluster.call(
                        address, commands.SEND_MESSAGE_V2, header, body
                    )
                    if answer.code in STATUS_OF_CODE:
                        return None
                    problem = broker_error(address, answer)
                except RocketLensError as error:
                    problem = error
        except RocketLensError as error:
            problem = error
        return problem or "its retry topic has no queue to write to"

    def _retry_header(
        self,
        message: MessageExt,
        queue: MessageQueue,
        sys_flag: int,
        failure: str,
        delay_level: int,
    ) -> commands.SendMessageRequest:
        is_dead = delay_level < 0 or message.reconsume_times >= self.max_reconsume_times
        level = min(delay_level or 3 + message.reconsume_times, DELAY_LEVEL_COUNT)
        named = {
            name: value for name, value in message.properties.items() if name not in _NOT_SENT_AGAIN
        }
        named[props.RETRY_TOPIC] = with_namespace(self._namespace, message.topic)
        named.setdefault(props.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        if props.UNIQUE_KEY not in named:
            named[props.UNIQUE_KEY] = new_unique_key()
        named[props.DELAY] = "0" if is_dead else str(level)
        named.pop(props.CONSUME_FAILURE, None)
        if failure:
            named[props.CONSUME_FAILURE] = failure
        try:
            properties = encoded_properties(named)
        except MessageIllegal:
            # The properties had the largest size already: drop those that only inform.
            del named[props.ORIGIN_MESSAGE_ID]
            named.pop(props.CONSUME_FAILURE, None)
            properties = encoded_properties(named)
        return commands.SendMessageRequest(
            producer_group=INNER_PRODUCER_GROUP,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            flag=message.flag,
            properties=properties,
            reconsume_times=message.reconsume_times + 1,
            unit_mode=False,
            batch=False,
            max_reconsume_times=0 if is_dead else limits.MAX_INT,
            broker_name=queue.broker_name,
        )


def _body_of(message: MessageExt) -> tuple[bytes, int]:
    """Return the body to send again, and its compression flags."""
    if message.body_error is not None:
        # The body is as stored, still compressed.
        return message.body, message.sys_flag & _COMPRESSION_BITS
    if len(message.body) < COMPRESS_OVER_BYTES:
        return message.body, 0
    sys_flag = COMPRESSED | ZLIB
    return compress(message.body, sys_flag, _COMPRESSION_LEVEL), sys_flag

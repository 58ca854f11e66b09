"""A message to send, and the checks before a send.

======================  =======================================================================
property                source
======================  =======================================================================
TAGS, KEYS              ``tags``, ``keys`` (joined with single spaces)
WAIT                    ``wait_store``: true if the answer waits for the disk or the slave
DELAY                   ``delay_level`` 1 .. 18: 1s 5s 10s 30s 1m .. 10m 20m 30m 1h 2h
TIMER_DELIVER_MS        ``deliver_at``
__SHARDINGKEY           the sharding key of the send
UNIQ_KEY                the producer, before the first attempt; retries keep it
INSTANCE_ID             the producer's namespace
======================  =======================================================================

Source: ``Message``, ``Validators``, ``TopicValidator``.

A stored message that is sent again (`message_again`) goes to its own topic with all its properties.
It keeps its unique key, so two records then have it, and every group of the topic gets the message
again. Source: ``QueryMsgByIdSubCommand``.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput, MessageIllegal
from rocketlens.model import properties as props
from rocketlens.model.arguments import check_int, check_text, epoch_ms, wrong_type
from rocketlens.model.message import MessageExt
from rocketlens.model.properties import TRANSACTION_PREPARED
from rocketlens.model.rocketmq import DELAY_LEVEL_COUNT, NOT_ALLOWED_SEND_TOPICS, check_topic
from rocketlens.query.options import refuses_others

FLAG_RANGE: Final = range(-(2**31), 2**31)
RESEND_GROUP: Final = "ReSendMsgById"
"""The producer group of RocketMQ's tool."""


class Message:
    """A message to send. Sending sets its ``unique_key`` unless it has one.

    ``keys`` is one key, several separated by spaces, or a collection of keys without spaces.
    ``body`` is bytes, or a text that is sent as UTF-8. ``flag`` is a 32-bit number for the
    application. Invalid parts raise an error in the constructor, or at the latest in the send.

    ``deliver_at``, in epoch milliseconds or as a datetime, is the time of delivery: immediate if it
    has passed, or if the broker is older than RocketMQ 5.0. Brokers bound it (``timerMaxDelaySec``,
    three days by default).

    :raises WrongType: if the topic is not a str, or the body neither str nor bytes.
    :raises BadInput: if a part is not valid.
    :raises MessageIllegal: if RocketMQ would refuse the topic.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    @refuses_others
    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tags: str | None = None,
        keys: str | Collection[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        deliver_at: int | datetime | None = None,
        wait_store: bool = True,
        unique_key: str | None = None,
    ) -> None:
        check_topic(check_text(topic, "topic"))
        self.topic: Final = topic
        self.body: Final = _body_bytes(body)
        if check_int(flag, "flag") not in FLAG_RANGE:
            raise BadInput(f"flag {flag} does not fit 32 bits")
        self.flag: Final = flag
        self.properties: Final[dict[str, str]] = {}
        for name, value in (properties or {}).items():
            if name in props.SYSTEM_PROPERTIES:
                raise BadInput(f"property {name!r} is RocketMQ's own: choose another name")
            self.put(name, value)
        if tags is not None:
            self.put(props.TAGS, tags)
        joined = _join_keys(keys)
        if joined:
            self.put(props.KEYS, joined)
        self.put(props.WAIT, "true" if wait_store else "false")
        if not 0 <= check_int(delay_level, "delay_level") <= DELAY_LEVEL_COUNT:
            raise BadInput(
                f"delay level {delay_level}: give 1 (a second) to {DELAY_LEVEL_COUNT} (two hours), "
                "or 0 for none"
            )
        if delay_level:
            self.put(props.DELAY, str(delay_level))
        if deliver_at is not None:
            self.put(props.TIMER_DELIVER_MS, str(_delivery_ms(deliver_at, delay_level)))
        if unique_key is not None:
            self.put(props.UNIQUE_KEY, unique_key)

    def put(self, name: str, value: str) -> None:
        """Set a property, either RocketMQ's or an application's.

        :raises BadInput: if name or value is empty, or has one of the separator characters.
        """
        for what, text in (("name", name), ("value", value)):
            if not _is_text(text):
                raise BadInput(f"property {name!r}: its {what} is {text!r}; give some text")
            if props.NAME_VALUE_SEPARATOR in text or props.PROPERTY_SEPARATOR in text:
                raise BadInput(f"property {name!r}: its {what} has a U+0001 or U+0002 in it")
            _check_unicode(f"property {name!r}", text)
        self.properties[name] = value

    @property
    def tags(self) -> str | None:
        """The tag; None without one."""
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in their original order."""
        return props.split_keys(self.properties.get(props.KEYS))

    @property
    def unique_key(self) -> str | None:
        """The unique key that the producer set; None before the first send."""
        return self.properties.get(props.UNIQUE_KEY)

    @property
    def delay_level(self) -> int:
        """The delay level; 0 for none."""
        return int(self.properties.get(props.DELAY, "0"))

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, flag={self.flag}, properties={self.properties}, "
            f"body={len(self.body)} bytes)"
        )


def check_sendable(message: Message, topic: str, max_message_bytes: int) -> None:
    """Check that a broker would accept a message; ``topic`` includes the namespace.

    :raises MessageIllegal: if the topic only accepts messages from brokers, or the body is empty or
        too large.
    """
    check_topic(topic)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise MessageIllegal(f"only brokers write to topic {topic}")
    size = len(message.body)
    if size == 0:
        raise MessageIllegal("the body is empty; RocketMQ stores no empty bodies")
    if size > max_message_bytes:
        raise MessageIllegal(f"the body has {size} bytes, {max_message_bytes} allowed")


def encoded_properties(properties: Mapping[str, str]) -> str:
    """Encode properties in the order of Java's producers.

    :raises MessageIllegal: if they are longer than a record can hold.
    """
    text = props.format_properties(props.java_order(properties, 16))
    size = len(text.encode())
    if size > limits.MAX_PROPERTIES_BYTES:
        raise MessageIllegal(
            f"the properties have {size} bytes, {limits.MAX_PROPERTIES_BYTES} allowed: shorten keys"
        )
    return text


def check_message(message: object) -> None:
    """Check that an object is a `Message`.

    :raises WrongType: if it is not; a `MessageExt` is already stored.
    """
    if isinstance(message, MessageExt):
        raise wrong_type(
            message,
            "message",
            "a rocketlens.Message (one that was stored is sent again as a new one: "
            "Message(stored.topic, stored.body, tags=stored.tags, keys=stored.keys))",
        )
    if not isinstance(message, Message):
        raise wrong_type(message, "message", "a rocketlens.Message")


def _body_bytes(body: object) -> bytes:
    """Return the bytes of a body. Types are checked because ``bytes(5)`` is five NUL bytes."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"body: {error.reason}") from None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise wrong_type(body, "body", "bytes or a str (of JSON: json.dumps(...))")


def _delivery_ms(deliver_at: int | datetime, delay_level: int) -> int:
    deliver_ms = epoch_ms(deliver_at, "deliver_at")
    if deliver_ms < 0:
        raise BadInput(f"deliver_at is {deliver_ms}, before 1970; give epoch milliseconds")
    if delay_level:
        # A broker would ignore the time.
        raise BadInput("a message can have a delay level or a delivery time: give one of them")
    return deliver_ms


def _join_keys(keys: str | Collection[str]) -> str:
    if isinstance(keys, str):
        return keys
    if not isinstance(keys, Collection):
        raise wrong_type(keys, "keys", "a str or a collection of them")
    for key in keys:
        if not _is_text(key) or props.KEY_SEPARATOR in key:
            raise BadInput(f"key {key!r}: a key is a text without spaces, which separate keys")
    return props.KEY_SEPARATOR.join(keys)


def _is_text(value: object) -> bool:
    """Return True for a non-blank str; callers may not be type-checked."""
    return isinstance(value, str) and bool(value.strip())


def _check_unicode(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{what}: {error.reason}") from None


def message_again(stored: MessageExt) -> Message:
    """Return a stored message as a new message.

    :raises BadInput: if it was sent in a transaction, which would never end, or its body cannot be
        decompressed.
    """
    if stored.body_error is not None:
        raise BadInput(f"{stored.msg_id} cannot be sent again as it was: {stored.body_error}")
    if stored.properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        raise BadInput(
            f"{stored.msg_id} was sent in a transaction: sent again, it would stay a half message"
        )
    message = Message(stored.topic, stored.body, flag=stored.flag)
    for name, value in stored.properties.items():
        message.put(name, value)
    return message

"""A message to send, and its checks before anything is sent.

======================  =======================================================================
property                from
======================  =======================================================================
TAGS, KEYS              ``tags``, ``keys`` (joined with single spaces)
WAIT                    ``wait_store``: whether the answer waits for the disk or the slave
DELAY                   ``delay_level`` 1 .. 18: 1s 5s 10s 30s 1m .. 10m 20m 30m 1h 2h
TIMER_DELIVER_MS        ``deliver_at``
__SHARDINGKEY           the sharding key it was sent by
UNIQ_KEY                the producer, before the first attempt; kept by all later ones
INSTANCE_ID             the producer's namespace
======================  =======================================================================

Source: ``Message``, ``Validators``, ``TopicValidator``.

A stored message that is sent again (`message_again`) goes to its own topic with all its properties.
It keeps its unique key, so that afterwards two records have it, and every group of the topic gets
the message again. Source: ``QueryMsgByIdSubCommand``.
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
"""The producer group that RocketMQ's tool sends with."""


class Message:
    """A message to send. Sending sets its ``unique_key`` unless it has one.

    ``keys`` is one key, several separated by spaces, or a collection of keys; a key in it can have
    no space. ``body`` is bytes, or a text that is sent as UTF-8. ``flag`` is the user's own 32-bit
    number. What is wrong is said when it is made, or when it is sent at the latest.

    ``deliver_at``, in epoch milliseconds or as a datetime, is when consumers get it: at once if
    that is over, or if the broker is older than RocketMQ 5.0. Brokers bound how far off it can be
    (``timerMaxDelaySec``, three days by default).

    :raises WrongType: when the topic is not a str, or the body neither str nor bytes.
    :raises BadInput: when a part cannot be used.
    :raises MessageIllegal: when RocketMQ would refuse the topic.
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
        """Set a property, RocketMQ's own or another.

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
        """The tag."""
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
        """Return all but the body."""
        return (
            f"Message(topic={self.topic!r}, flag={self.flag}, properties={self.properties}, "
            f"body={len(self.body)} bytes)"
        )


def check_sendable(message: Message, topic: str, max_message_bytes: int) -> None:
    """Check what a broker would refuse; ``topic`` is the message's, with its namespace.

    :raises MessageIllegal: if messages cannot be sent to the topic, or the body is empty or too
        large.
    """
    check_topic(topic)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise MessageIllegal(f"topic {topic} is filled by brokers only")
    size = len(message.body)
    if size == 0:
        raise MessageIllegal("the body is empty; RocketMQ stores none")
    if size > max_message_bytes:
        raise MessageIllegal(f"the body has {size} bytes, {max_message_bytes} allowed")


def encoded_properties(properties: Mapping[str, str]) -> str:
    """Return properties in the order in which Java's producers write them.

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
    """Check that an object is a message to send.

    :raises WrongType: for anything but a `Message`; a `MessageExt` was stored already.
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
        # A broker would drop the time.
        raise BadInput("a message has a delay level or a time to be delivered at: give one of them")
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
    """Return whether a value is a non-blank str; callers may not be type-checked."""
    return isinstance(value, str) and bool(value.strip())


def _check_unicode(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{what}: {error.reason}") from None


def message_again(stored: MessageExt) -> Message:
    """Return a stored message as it is sent again.

    :raises BadInput: if it was sent in a transaction, which would never be ended, or its body
        cannot be decompressed.
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

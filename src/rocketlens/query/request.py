"""The one question that every source is asked: what to find, and how much of it.

It is read and checked here and nowhere else, so a store, a cluster and the command line take the
same text for the same thing and refuse the same mistakes in the same words.

==================  ===========================================================================
kind                what the text is
==================  ===========================================================================
``offset-id``       an offset message id: the broker's address and a physical offset, in hex
``queue-offset``    a queue position, ``TOPIC/QUEUE/OFFSET`` in ASCII digits
``key``             one of a message's keys
``unique-key``      the id that the producer gave
``auto``            each of these that it can be, in this order, until one is found
==================  ===========================================================================
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, get_args

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_int, check_text, epoch_ms
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.query.topic_choice import asked_topics
from rocketlens.query.verify import MessageFilter

if TYPE_CHECKING:
    from datetime import datetime

Kind = Literal["auto", "key", "unique-key", "offset-id", "queue-offset"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_QUEUE_POSITION: Final = re.compile(
    r"(?P<topic>.+)/(?P<queue_id>\d{1,10})/(?P<queue_offset>\d{1,19})\Z", re.ASCII | re.DOTALL
)


class QueuePosition(NamedTuple):
    """One position of one queue."""

    topic: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        """Return ``TOPIC/QUEUE/OFFSET``."""
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


@dataclass(frozen=True, slots=True)
class FindRequest:
    """What to find. Without a text the topics, the times and the tags alone decide.

    ``topics`` are names and patterns, none for every topic. Times are store times in epoch
    milliseconds, both ends included. The newest ``max_num`` messages are returned, or with
    ``oldest`` the oldest; None for all.
    """

    text: str | None = None
    topics: tuple[str, ...] = ()
    kind: Kind = "auto"
    begin: int | None = None
    end: int = limits.MAX_TIMESTAMP_MS
    tags: frozenset[str] | None = None
    max_num: int | None = None
    oldest: bool = False

    @classmethod
    def parse(
        cls,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        begin: "int | datetime | None" = None,
        end: "int | datetime | None" = None,
        tag: str | None = None,
        max_num: int | None = None,
        oldest: bool = False,
    ) -> Self:
        """Return the request for what a caller passed; arguments as `rocketlens.Store.find`.

        ``tag`` is a tag expression: ``TagA``, ``TagA || TagB``, or ``*`` for all.

        :raises WrongType: if an argument is of a type that cannot be used.
        :raises BadInput: if the text cannot be what ``kind`` says, or a number is negative.
        """
        if kind not in KINDS:
            raise BadInput(f"unknown kind {kind!r}: expected one of {', '.join(KINDS)}")
        low, high = time_range(begin, end)
        request = cls(
            None if text is None else check_text(text, "text"),
            asked_topics(topic),
            kind,
            low,
            high,
            parse_tags(tag),
            check_max_num(max_num),
            oldest,
        )
        request._check_text()
        return request

    def _check_text(self) -> None:
        if self.text is None:
            return
        check_key(self.text)
        if self.kind == "offset-id":
            OffsetMessageId.decode(self.text)
        elif self.kind == "queue-offset":
            position = _position_in(self.text)
            if position is None:
                raise BadInput(
                    f"{self.text[:80]!r} is not a queue position: expected TOPIC/QUEUE/OFFSET"
                )
            check_queue_position(position)

    @property
    def query(self) -> str:
        """What was asked for, in one line: the text, or the topics."""
        return ",".join(self.topics) if self.text is None else self.text

    @property
    def offset_msg_id(self) -> OffsetMessageId | None:
        """The text as an offset message id, if it is to be taken for one and can be."""
        if self.text is None or self.kind not in {"auto", "offset-id"}:
            return None
        try:
            return OffsetMessageId.decode(self.text)
        except BadInput:
            return None

    @property
    def queue_position(self) -> QueuePosition | None:
        """The text as a queue position, if it is to be taken for one and can be.

        With the kind ``auto`` it is one only where there is such a topic.
        """
        if self.text is None or self.kind not in {"auto", "queue-offset"}:
            return None
        position = _position_in(self.text)
        return position if position and is_topic_name(position.topic) else None

    @property
    def is_key(self) -> bool:
        """Whether the text can be a key or a unique key."""
        return self.text is not None and self.kind in {"auto", "key", "unique-key"}

    def filter_of(self, topics: Collection[str] = (), *, with_key: bool = False) -> MessageFilter:
        """Return what messages of some topics must have to match; no topics are every topic."""
        key = self.text if with_key and self.kind != "unique-key" else None
        unique_key = self.text if with_key and self.kind != "key" else None
        single = next(iter(topics)) if len(topics) == 1 else None
        several = frozenset(topics) if len(topics) > 1 else None
        return MessageFilter(single, key, unique_key, self.begin, self.end, self.tags, several)


def time_range(
    begin: "int | datetime | None", end: "int | datetime | None"
) -> tuple[int | None, int]:
    """Return both ends in epoch milliseconds. A ``begin`` of None or 0 is no lower bound.

    :raises WrongType: if one is neither an int nor a datetime.
    :raises BadInput: if one is negative.
    """
    low = 0 if begin is None else epoch_ms(begin, "begin")
    high = limits.MAX_TIMESTAMP_MS if end is None else epoch_ms(end, "end")
    for name, value in (("begin", low), ("end", high)):
        if value < 0:
            raise BadInput(f"{name} is {value}: times are epoch milliseconds, not negative")
    return low or None, high


def parse_tags(tag: str | None) -> frozenset[str] | None:
    """Return the tags of a tag expression; None for every tag.

    :raises WrongType: if it is not a str.
    """
    if tag is None or check_text(tag, "tag").strip() == "*":
        return None
    return frozenset(part.strip() for part in tag.split("||"))


def check_max_num(max_num: int | None) -> int | None:
    """Return a number of messages; None is all.

    :raises WrongType: if it is not an int.
    :raises BadInput: if it is negative.
    """
    if max_num is not None and check_int(max_num, "max_num") < 0:
        raise BadInput(f"max_num is {max_num}: pass how many messages to return, or None for all")
    return max_num


def check_key(key: str) -> None:
    """Refuse a key that a record cannot have.

    :raises BadInput: if it is empty, or longer than a record's properties can be.
    """
    if not key:
        raise BadInput("the key is empty: pass the order number or id the message was sent with")
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    if size > limits.MAX_KEY_BYTES:
        raise BadInput(f"the key has {size} bytes: a message holds at most {limits.MAX_KEY_BYTES}")


def check_queue_position(position: QueuePosition) -> None:
    """Refuse a position that no queue can have.

    :raises BadInput: if the topic is not a valid topic name, or a number is negative.
    """
    topic, queue_id, queue_offset = position
    if not is_topic_name(topic):
        raise BadInput(
            f"{topic[:80]!r} is not a valid topic name: it may have letters, digits, % | _ and -"
        )
    if queue_id < 0 or queue_offset < 0:
        raise BadInput(f"queue {queue_id}, offset {queue_offset}: both begin at 0")


def _position_in(text: str) -> QueuePosition | None:
    match = _QUEUE_POSITION.match(text)
    if match is None:
        return None
    return QueuePosition(match["topic"], int(match["queue_id"]), int(match["queue_offset"]))

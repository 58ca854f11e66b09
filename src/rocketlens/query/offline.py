"""A store directory, open for questions: what :func:`rocketlens.open_store` gives."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args, overload

from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.arguments import check_int, check_text, epoch_ms
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.by_id import view_by_offset_id
from rocketlens.query.by_key import check_max_num, query_by_key
from rocketlens.query.by_queue_offset import message_of_answer, query_by_queue_offset
from rocketlens.query.by_time import Scan
from rocketlens.query.held import held_bytes
from rocketlens.query.merge import merge
from rocketlens.query.source import StoreSource
from rocketlens.query.topic_choice import asked_topics, is_pattern
from rocketlens.query.verify import Wanted

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike

Kind = Literal["auto", "key", "unique-key", "offset-id", "queue-offset"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_QUEUE_PLACE: Final = re.compile(
    r"(?P<topic>.+)/(?P<queue_id>\d{1,10})/(?P<queue_offset>\d{1,19})\Z"
)


def open_store(
    path: "str | PathLike[str]",
    *,
    max_topic_scan_bytes: int | None = limits.MAX_TOPIC_SCAN_BYTES,
    before_long_scan: Callable[[int], None] = lambda _: None,
) -> "Store":
    """Open a RocketMQ store directory (the one that holds ``commitlog``) for reading.

    Needs no lock and changes nothing; the store may have been closed cleanly or not, and a broker
    may be running on it. Stores of RocketMQ 4.9 and 5 are read alike.

    A key that is asked for without a topic may be one of a topic that was deleted: only the log
    knows its name. If the key is in no known topic, log of up to ``max_topic_scan_bytes`` bytes is
    read for more (None: all of it, a second a GiB); above that the answer is incomplete and says
    so. ``before_long_scan`` is called with the number of bytes before more than
    :data:`rocketlens.limits.MAX_TOPIC_SCAN_BYTES` are read.

    :raises NotAStore: when it is no directory, or holds no commit log.
    """
    return Store(
        Path(path),
        max_topic_scan_bytes=max_topic_scan_bytes,
        before_long_scan=before_long_scan,
    )


class Store:
    """Finds the messages of one store. A context manager. Not for several threads at once.

    Times are store times in epoch milliseconds, both ends of a range included. Answers list
    messages in the order of the commit log, each once.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_topic_scan_bytes: int | None = limits.MAX_TOPIC_SCAN_BYTES,
        before_long_scan: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open the store: see :func:`open_store`."""
        self._opened = StoreSource(
            path, max_topic_scan_bytes=max_topic_scan_bytes, before_long_scan=before_long_scan
        )

    @property
    def path(self) -> Path:
        """The store directory."""
        return self._opened.path

    @property
    def _source(self) -> StoreSource:
        self._opened.check_open()
        return self._opened

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...

    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Give one message by its id of either kind, of one topic or of any.

        The id is taken as an offset message id first, then as a unique key. Several records can
        carry one unique key; the oldest is given.

        :raises MessageNotFound: when the store has none.
        :raises AnswerIncomplete: when it has none that could be read, but not all could be.
        :raises BadInput: when the id is empty or far too long.
        """
        topic, msg_id = (None, first) if second is None else (first, second)
        self._source.refresh()
        check_text(msg_id, "msg_id")
        if topic is not None:
            check_text(topic, "topic")
        message = self._by_offset_id(topic, msg_id)
        if message is not None:
            return message
        wanted = Wanted(topic=topic, unique_key=msg_id)
        return message_of_answer(query_by_key(self._source, msg_id, wanted, oldest=True))

    def query_message(
        self,
        topic: str | None,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime" = 0,
        end: "int | datetime" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Give the messages with a key or unique key; the newest ``max_num``, None for all.

        ``topic`` None searches every topic. Where nothing names the topic, the coverage says so,
        and which was probably meant; `find` refuses such a topic.

        :raises BadInput: when the key is empty or longer than one can be, or a number is negative.
        :raises WrongType: when an argument is of a type that it cannot be.
        """
        self._source.refresh()
        wanted = Wanted(
            topic=None if topic is None else check_text(topic, "topic"),
            key=check_text(key, "key"),
            unique_key=key,
            begin=epoch_ms(begin, "begin"),
            end=epoch_ms(end, "end"),
        )
        answer = query_by_key(self._source, key, wanted, max_num)
        if topic is None or answer.messages:
            return answer
        told = tuple(self._source.topics.tell_unknown((topic,)))
        return replace(answer, coverage=(*answer.coverage, *told)) if told else answer

    def query_by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Give the message at one offset of one queue.

        :raises MessageNotFound: when the store has none.
        :raises AnswerIncomplete: when what could hold it could not be read.
        :raises BadInput: when the topic can be none, or a number is negative.
        """
        self._source.refresh()
        check_text(topic, "topic")
        check_int(queue_id, "queue_id")
        check_int(queue_offset, "queue_offset")
        answer = query_by_queue_offset(self._source, topic, queue_id, queue_offset)
        return message_of_answer(answer)

    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        begin: "int | datetime | None" = None,
        end: "int | datetime | None" = None,
        tag: str | None = None,
    ) -> Scan:
        """Read the log for messages of a topic or several, a time range, a tag.

        ``topic`` is as `find` has it. ``tag`` is a tag expression: ``TagA``, ``TagA || TagB``, or
        ``*`` for all.

        Iterate over the result; after that its ``failures`` tell what could not be read.

        :raises WrongType: when an argument is of a type that it cannot be.
        """
        tags = None
        if tag is not None and check_text(tag, "tag").strip() != "*":
            tags = frozenset(part.strip() for part in tag.split("||"))
        asked = asked_topics(topic)
        topics = self._source.topics.choose(asked)
        low, high = _time_range(begin, end)
        return Scan(self._source, _of_topics(topics, begin=low, end=high, tags=tags))

    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        begin: "int | datetime | None" = None,
        end: "int | datetime | None" = None,
        max_num: int | None = None,
    ) -> Answer:
        """Find messages by whatever is at hand.

        ``text`` is a key, a unique key, an offset message id, or a queue position
        ``TOPIC/QUEUE/OFFSET``; ``kind`` says which, ``auto`` tries all that it can be. Without
        ``text`` the topic and the times alone decide. All messages that match are given, or the
        newest ``max_num``.

        ``topic`` is one topic, or several as an iterable or with commas between them; ``*``,
        ``?`` and ``[ab]`` in a name make it a pattern. ``begin`` and ``end`` are epoch
        milliseconds or datetimes; a datetime without a zone is local time.

        :raises BadInput: when the text cannot be what ``kind`` says, or ``max_num`` is negative.
        :raises WrongType: when an argument is of a type that it cannot be.
        :raises TopicNotFound: when there is nothing to give, and the store has no such topic; of
            several, when one of them is none.
        """
        if kind not in KINDS:
            message = f"kind {kind!r} is none of {', '.join(KINDS)}"
            raise BadInput(message)
        self._source.refresh()
        check_max_num(max_num)
        low, high = _time_range(begin, end)
        asked = asked_topics(topic)
        topics = self._source.topics.choose(asked)
        if text is None:
            answer = self._in_time(topics, low, high, max_num)
        else:
            answer = self._by_text(check_text(text, "text"), topics, kind, (low, high), max_num)
        return self._of_known_topics(answer, asked)

    def _by_text(
        self, text: str, topics: list[str], kind: Kind, times: tuple[int, int], most: int | None
    ) -> Answer:
        answers: list[Answer] = []
        if kind in ("auto", "offset-id"):
            answers += self._offset_id_answer(topics, text, kind)
        if not any(answers) and kind in ("auto", "queue-offset"):
            answers += self._queue_offset_answer(text, kind)
        if not any(answers) and kind in ("auto", "key", "unique-key"):
            key = None if kind == "unique-key" else text
            unique_key = None if kind == "key" else text
            wanted = _of_topics(
                topics, key=key, unique_key=unique_key, begin=times[0], end=times[1]
            )
            answers.append(query_by_key(self._source, text, wanted, most))
        return _within(merge(text, answers), *times)

    def _of_known_topics(self, answer: Answer, asked: Sequence[str]) -> Answer:
        """Return the answer, unless it lacks something because the store has no such topic.

        :raises TopicNotFound: in that case.
        """
        topics = self._source.topics
        coverage: list[Coverage] = []
        if any(map(is_pattern, asked)):
            coverage += topics.coverage(is_found=bool(answer.messages))
        if len(asked) > 1 or (asked and not answer.messages and answer.complete):
            coverage += topics.check_known(asked)
        return replace(answer, coverage=(*answer.coverage, *coverage)) if coverage else answer

    def _in_time(self, topics: list[str], begin: int, end: int, max_num: int | None) -> Answer:
        """Return the newest messages of some topics and a time; older ones are not even decoded."""
        scan = Scan(self._source, _of_topics(topics, begin=begin, end=end))
        count = 0
        most = limits.MAX_ANSWER_BYTES // limits.MESSAGE_OVERHEAD_BYTES
        newest: deque[int] = deque(maxlen=most if max_num is None else min(max_num, most))
        for physical_offset in scan.offsets():
            newest.append(physical_offset)
            count += 1
        messages: list[MessageExt] = []
        size, truncated = 0, count > len(newest)
        while newest:
            message = scan.message_at(newest.pop())
            if message is None:
                continue
            size += held_bytes(message)
            if size > limits.MAX_ANSWER_BYTES:
                truncated = True
                break
            messages.append(message)
        return Answer(
            ",".join(topics),
            tuple(reversed(messages)),
            scan.coverage,
            truncated=truncated,
            index_last_update_timestamp_ms=scan.last_timestamp_ms,
        )

    def _by_offset_id(self, topic: str | None, msg_id: str) -> MessageExt | None:
        """Give the message with this offset message id; None when it has none or is no such id."""
        try:
            OffsetMessageId.decode(msg_id)
        except BadInput:
            return None
        try:
            message = view_by_offset_id(self._source, msg_id)
        except MessageNotFound:
            return None
        return message if topic is None or message.topic == topic else None

    def _offset_id_answer(self, topics: list[str], text: str, kind: Kind) -> list[Answer]:
        def view() -> MessageExt:
            message = view_by_offset_id(self._source, text)
            if topics and message.topic not in topics:
                detail = f"{text} is a message of topic {message.topic}"
                raise MessageNotFound(detail)
            return message

        try:
            OffsetMessageId.decode(text)
        except BadInput:
            if kind == "auto":
                return []
            raise
        return [_answer_of(self._source, text, view)]

    def _queue_offset_answer(self, text: str, kind: Kind) -> list[Answer]:
        place = _QUEUE_PLACE.match(text)
        if place is None:
            if kind == "auto":
                return []
            message = f"{text[:80]!r} is no queue position: write TOPIC/QUEUE/OFFSET"
            raise BadInput(message)
        if kind == "auto" and place["topic"] not in self._source.topics.known():
            return []
        numbers = int(place["queue_id"]), int(place["queue_offset"])
        return [query_by_queue_offset(self._source, place["topic"], *numbers)]

    def close(self) -> None:
        """Unmap the store's files."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Give the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap the store's files."""
        self.close()


def _answer_of(source: StoreSource, offset_msg_id: str, view: Callable[[], MessageExt]) -> Answer:
    """Turn a view, which raises, into an answer, which says."""
    asked = OffsetMessageId.decode(offset_msg_id).physical_offset
    try:
        message = view()
    except AnswerIncomplete as error:
        return error.answer
    except MessageNotFound as error:
        return Answer(offset_msg_id, (), (source.record_coverage(asked, detail=str(error)),))
    newest_ms = message.store_timestamp_ms
    searched = source.record_coverage(asked, message.store_size, newest_ms=newest_ms)
    return Answer(offset_msg_id, (message,), (searched,))


def _of_topics(topics: list[str], **others: Any) -> Wanted:
    """Return what is wanted of some topics; no topics are every topic."""
    if len(topics) == 1:
        return Wanted(topic=topics[0], **others)
    return Wanted(topics=frozenset(topics) or None, **others)


def _time_range(begin: "int | datetime | None", end: "int | datetime | None") -> tuple[int, int]:
    """Return both ends in epoch milliseconds; the widest where None is given."""
    low = 0 if begin is None else epoch_ms(begin, "begin")
    high = limits.MAX_TIMESTAMP_MS if end is None else epoch_ms(end, "end")
    return low, high


def _within(answer: Answer, begin: int, end: int) -> Answer:
    """Drop the messages outside a time range."""
    wanted = Wanted(begin=begin, end=end)
    kept = tuple(m for m in answer.messages if wanted.is_in_time(m.store_timestamp_ms))
    return replace(answer, messages=kept)

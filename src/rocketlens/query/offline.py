"""A store directory, open for questions: what :func:`rocketlens.open_store` gives."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, get_args, overload

from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.by_id import view_by_offset_id
from rocketlens.query.by_key import query_by_key
from rocketlens.query.by_queue_offset import message_of_answer, query_by_queue_offset
from rocketlens.query.by_time import Scan
from rocketlens.query.merge import merge
from rocketlens.query.source import COMMIT_LOG, StoreSource, torn_coverage
from rocketlens.query.verify import Wanted

if TYPE_CHECKING:
    from os import PathLike

Kind = Literal["auto", "key", "unique-key", "offset-id", "queue-offset"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_QUEUE_PLACE: Final = re.compile(
    r"(?P<topic>.+)/(?P<queue_id>\d{1,10})/(?P<queue_offset>\d{1,19})\Z"
)


def open_store(path: "str | PathLike[str]") -> "Store":
    """Open a RocketMQ store directory (the one that holds ``commitlog``) for reading.

    Needs no lock and changes nothing; the store may have been closed cleanly or not, and a broker
    may be running on it. Stores of RocketMQ 4.9 and 5 are read alike.

    :raises NotAStore: when it is no directory, or holds no commit log.
    """
    return Store(Path(path))


class Store:
    """Finds the messages of one store. A context manager. Not for several threads at once.

    Times are store times in epoch milliseconds, both ends of a range included. Answers list
    messages in the order of the commit log, each once.
    """

    def __init__(self, path: Path) -> None:
        """Open the store: see :func:`open_store`."""
        self._source = StoreSource(path)

    @property
    def path(self) -> Path:
        """The store directory."""
        return self._source.path

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
        message = self._by_offset_id(topic, msg_id)
        if message is not None:
            return message
        wanted = Wanted(topic=topic, unique_key=msg_id)
        return message_of_answer(query_by_key(self._source, msg_id, wanted))

    def query_message(
        self,
        topic: str | None,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int = 0,
        end: int = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Give the messages with a key or unique key; the newest ``max_num``, None for all.

        ``topic`` None searches every topic.

        :raises BadInput: when the key is empty or longer than one can be, or a number is negative.
        """
        wanted = Wanted(topic=topic, key=key, unique_key=key, begin=begin, end=end)
        return query_by_key(self._source, key, wanted, max_num)

    def query_by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Give the message at one offset of one queue.

        :raises MessageNotFound: when the store has none.
        :raises AnswerIncomplete: when what could hold it could not be read.
        :raises BadInput: when the topic can be none, or a number is negative.
        """
        answer = query_by_queue_offset(self._source, topic, queue_id, queue_offset)
        return message_of_answer(answer)

    def scan(
        self,
        topic: str | None = None,
        begin: int | None = None,
        end: int | None = None,
        tag: str | None = None,
    ) -> Scan:
        """Read the log for messages of a topic, a time range, a tag.

        ``tag`` is a tag expression: ``TagA``, ``TagA || TagB``, or ``*`` for all.

        Iterate over the result; after that its ``failures`` tell what could not be read.
        """
        tags = None
        if tag is not None and tag.strip() != "*":
            tags = frozenset(part.strip() for part in tag.split("||"))
        wanted = Wanted(
            topic=topic,
            begin=0 if begin is None else begin,
            end=limits.MAX_TIMESTAMP_MS if end is None else end,
            tags=tags,
        )
        return Scan(self._source, wanted)

    def find(
        self,
        text: str | None = None,
        topic: str | None = None,
        *,
        kind: Kind = "auto",
        begin: int | None = None,
        end: int | None = None,
        max_num: int | None = None,
    ) -> Answer:
        """Find messages by whatever is at hand.

        ``text`` is a key, a unique key, an offset message id, or a queue position
        ``TOPIC/QUEUE/OFFSET``; ``kind`` says which, ``auto`` tries all that it can be. Without
        ``text`` the topic and the times alone decide. All messages that match are given, or the
        newest ``max_num``.

        :raises BadInput: when the text cannot be what ``kind`` says.
        """
        if kind not in KINDS:
            message = f"kind {kind!r} is none of {', '.join(KINDS)}"
            raise BadInput(message)
        low = 0 if begin is None else begin
        high = limits.MAX_TIMESTAMP_MS if end is None else end
        if text is None:
            return self._in_time(topic, low, high, max_num)
        answers: list[Answer] = []
        if kind in ("auto", "offset-id"):
            answers += self._offset_id_answer(topic, text, kind)
        if not any(answers) and kind in ("auto", "queue-offset"):
            answers += self._queue_offset_answer(text, kind)
        if not any(answers) and kind in ("auto", "key", "unique-key"):
            wanted = Wanted(
                topic=topic,
                key=None if kind == "unique-key" else text,
                unique_key=None if kind == "key" else text,
                begin=low,
                end=high,
            )
            return merge(text, [*answers, query_by_key(self._source, text, wanted, max_num)])
        return _within(merge(text, answers), low, high)

    def _in_time(self, topic: str | None, begin: int, end: int, max_num: int | None) -> Answer:
        scan = Scan(self._source, Wanted(topic=topic, begin=begin, end=end))
        messages: list[MessageExt] = []
        body_bytes, truncated = 0, False
        for message in scan:
            messages.append(message)
            body_bytes += len(message.body)
            while len(messages) > (max_num if max_num is not None else len(messages)) or (
                body_bytes > limits.ANSWER_BYTES
            ):
                body_bytes -= len(messages.pop(0).body)
                truncated = True
        searched = Coverage(
            COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.SEARCHED, scan.last_timestamp_ms or None
        )
        failures = tuple(self._source.log_failures(scan.failures))
        return Answer(
            topic or "",
            tuple(messages),
            complete=not failures,
            coverage=(searched, *torn_coverage(scan.torn_at), *failures),
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

    def _offset_id_answer(self, topic: str | None, text: str, kind: Kind) -> list[Answer]:
        def view() -> MessageExt:
            message = view_by_offset_id(self._source, text)
            if topic is not None and message.topic != topic:
                detail = f"{text} is a message of topic {message.topic}"
                raise MessageNotFound(detail)
            return message

        try:
            OffsetMessageId.decode(text)
        except BadInput:
            if kind == "auto":
                return []
            raise
        return [_answer_of(text, view)]

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
        self._source.close()

    def __enter__(self) -> Self:
        """Give the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap the store's files."""
        self.close()


def _answer_of(query: str, view: Callable[[], MessageExt]) -> Answer:
    """Turn a view, which raises, into an answer, which says."""
    try:
        message = view()
    except AnswerIncomplete as error:
        return error.answer
    except MessageNotFound as error:
        coverage = Coverage(
            COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, str(error)
        )
        return Answer(query, (), complete=True, coverage=(coverage,))
    coverage = Coverage(
        COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.SEARCHED, message.store_timestamp_ms
    )
    return Answer(query, (message,), complete=True, coverage=(coverage,))


def _within(answer: Answer, begin: int, end: int) -> Answer:
    """Drop the messages outside a time range."""
    wanted = Wanted(begin=begin, end=end)
    kept = tuple(m for m in answer.messages if wanted.is_in_time(m.store_timestamp_ms))
    return replace(answer, messages=kept)

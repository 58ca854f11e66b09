"""The methods that stores and archives share."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self, Unpack, overload

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.answer_builder import AnswerMessages, Findings, OnRead
from rocketlens.query.find import find_steps, one_message
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import FindOptions, StoryOptions, TailOptions, takes
from rocketlens.query.request import (
    FindRequest,
    QueuePosition,
    StoryRequest,
    check_key,
    check_max_num,
    tail_filter,
    time_range,
)
from rocketlens.query.source import Source, run

if TYPE_CHECKING:
    from rocketlens.query.story.story import Story
    from rocketlens.query.story.story_search import StorySource


class SearchApi(ABC):
    """Finds the messages of one store or archive. A context manager; all methods block."""

    source: Source
    """This source, as an argument for `rocketlens.find`."""
    _where: ClassVar[str]
    """A phrase for errors, such as "this store"."""

    @abstractmethod
    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages with a key."""

    @abstractmethod
    def _search(self, conditions: MessageFilter, findings: Findings) -> None:
        """Add the newest messages that match."""

    @abstractmethod
    def _unknown(self, topic: str) -> Iterable[Coverage]:
        """Return a remark if nothing names the topic."""

    def _message_at(self, _where: OffsetMessageId | QueuePosition) -> MessageExt | None:
        """Return the message if it can be read directly; None if it must be searched."""
        return None

    @abstractmethod
    def _story_source(self) -> "StorySource":
        """Return the source for stories."""

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: Unpack[FindOptions],
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content.

        ``text`` is a key, a unique key, an offset message id, or a queue position
        ``TOPIC/QUEUE/OFFSET``. Without it, messages are selected by topic, time and content alone.
        ``topic`` is a name, a comma-separated list, or an iterable of names; ``*``, ``?`` and
        ``[ab]`` make a name a pattern. The keywords are described in
        `rocketlens.query.options.FindOptions`.

        Returns all matching messages, or the newest ``max_num``. The newest messages of a topic are
        read from the ends of its consume queues. If they are far from the end of the log, the
        answer relies on these queues, and ``relies_on`` says so; pass ``exhaustive=True`` to avoid
        that.

        :raises BadInput: if the text is not of the given ``kind``, a number is negative, or a
            filter, pattern or file of body rules is malformed.
        :raises WrongType: if an argument has the wrong type.
        :raises PackageMissing: if a regular expression needs google-re2, which is not installed.
        :raises TopicNotFound: if nothing is found and the topic does not exist; with several
            topics, if any of them does not exist.
        """
        return self.find_for(FindRequest.parse(text, topic, **options))

    def find_for(self, request: FindRequest, on_read: OnRead | None = None) -> Answer:
        """Find messages for a parsed request; otherwise like `find`.

        ``on_read`` is called with the bytes read, the bytes to read (None if unknown) and the
        number of messages read. If it returns False, the search stops and is incomplete.
        """
        return run(find_steps(request, self.source, on_read=on_read))

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...

    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message by its offset message id or unique key.

        The id is tried as an offset message id first. If several records have the same unique key,
        the oldest is returned.

        :raises MessageNotFound: if there is no such message.
        :raises AnswerIncomplete: if no message was found, but something could not be searched.
        :raises BadInput: if the id is empty or too long.
        """
        topics: tuple[str, ...] = () if second is None else (check_text(first, "topic"),)
        msg_id = check_text(first if second is None else second, "msg_id")
        check_key(msg_id)
        by_id = FindRequest(
            msg_id,
            topics,
            "offset-id",
            max_num=1,
            oldest=True,
            all_topics=True,
            only_delivered=True,
        )
        offset_msg_id = by_id.offset_msg_id
        message = None if offset_msg_id is None else self._message_at(offset_msg_id)
        if message is not None and message.topic in (topics or (message.topic,)):
            return message
        findings = self._findings(1, oldest=True)
        if offset_msg_id is not None:
            self.source.find(by_id, findings)
        if not findings.messages:
            self.source.find(replace(by_id, kind="unique-key"), findings)
        return one_message(findings.answer(msg_id), self._where)

    def query_message(
        self,
        topic: str | None,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int | datetime | str = 0,
        end: int | datetime | str = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages with a key or unique key: the newest ``max_num``, or None for all.

        ``topic`` None searches every topic. If nothing names the topic, the coverage says so and
        suggests a name, whereas `find` raises `TopicNotFound`.

        :raises BadInput: if the key is empty or too long, or a number is negative.
        :raises WrongType: if an argument has the wrong type.
        """
        times = time_range(begin, end)
        return self._by_key(topic, check_text(key, "key"), key, max_num, times)

    def query_message_by_unique_key(
        self,
        topic: str | None,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int | datetime | str = 0,
        end: int | datetime | str = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages with a unique key: several after a resend. Like `query_message`."""
        times = time_range(begin, end)
        return self._by_key(topic, None, check_text(unique_key, "unique_key"), max_num, times)

    def _by_key(
        self,
        topic: str | None,
        key: str | None,
        unique_key: str,
        max_num: int | None,
        times: tuple[int | None, int],
    ) -> Answer:
        findings = self._findings(check_max_num(max_num))
        named = None if topic is None else check_text(topic, "topic")
        check_key(unique_key)
        message_filter = MessageFilter(named, key, unique_key, *times, tally=findings.tally)
        self._look_up(message_filter, findings)
        if named is not None and not findings.messages:
            findings.cover(tuple(self._unknown(named)))
        return findings.answer(unique_key)

    def query_by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Return the message at an offset of a queue.

        :raises MessageNotFound: if there is no such message.
        :raises AnswerIncomplete: if no message was found, but something could not be searched.
        :raises BadInput: if ``topic`` is not a valid topic name, a number is negative, or several
            brokers have a message at this position.
        """
        request = FindRequest.at(topic, queue_id, queue_offset)
        message = self._message_at(QueuePosition(topic, queue_id, queue_offset))
        if message is not None:
            return message
        findings = self._findings(None)
        self.source.find(request, findings)
        return one_message(findings.answer(request.query), self._where)

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        **options: Unpack[TailOptions],
    ) -> Answer:
        """Return the newest messages of a topic that match all conditions.

        The keywords are described in `rocketlens.query.options.TailOptions`. Equivalent to
        `MQAdmin.tail` on a cluster.

        :raises BadInput: if a condition is malformed, or a number is negative.
        :raises TopicNotFound: if the topic does not exist.
        """
        conditions = tail_filter(check_text(topic, "topic"), **options)
        findings = self._findings(check_max_num(newest))
        self._search(replace(conditions, tally=findings.tally), findings)
        if not findings.messages and findings.is_complete:
            self.source.check_topics((topic,), findings)
            for error in findings.unknown.values():
                raise error
        return findings.answer(topic)

    @takes(StoryOptions, StoryRequest.parse)
    def story(
        self, text: str, topic: str | Iterable[str] | None = None, **options: Unpack[StoryOptions]
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, and each group's progress.

        Arguments and errors as in `MQAdmin.story`. The progress of groups is derived from stored
        copies and traces and, for a store, from the last offsets that the broker wrote. An archive
        has no offsets.
        """
        from rocketlens.query.story.story_search import story_steps

        return run(story_steps(StoryRequest.parse(text, topic, **options), [self._story_source()]))

    def expect(
        self,
        key: str,
        topic: str | Iterable[str] | None = None,
        *,
        by: int | datetime | str,
        consumed_by: str | None = None,
        on_event: Callable[[str], None] | None = None,
    ) -> MessageExt:
        """Wait until a message with a key is stored, or consumed by a group, and return it.

        Returns at once if that has already happened. Arguments and errors as in `MQAdmin.expect`.
        Consumption is determined as in `story`: an archive has no offsets, and a store does not
        record which clients are online.
        """
        from rocketlens.query.expect import ExpectRequest, expect_steps

        request = ExpectRequest.parse(key, topic, by=by, consumed_by=consumed_by)
        return run(expect_steps(request, self._story_source, time.sleep, on_event))

    def _findings(self, max_num: int | None, *, oldest: bool = False) -> Findings:
        in_log_order = self.source.is_one_log
        return Findings(AnswerMessages(max_num, oldest=oldest, in_log_order=in_log_order))

    @abstractmethod
    def close(self) -> None:
        """Close all files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

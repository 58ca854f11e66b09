"""The methods that an open store and an open archive share."""

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
from rocketlens.query.find import find_local, one_message
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
    """Finds the messages of one source that need not be awaited. A context manager."""

    source: Source
    """The source for `rocketlens.find`."""
    _where: ClassVar[str]
    """What an error calls it, such as "this store"."""

    @abstractmethod
    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages with a key."""

    @abstractmethod
    def _search(self, conditions: MessageFilter, findings: Findings) -> None:
        """Add the newest messages that match."""

    @abstractmethod
    def _unknown(self, topic: str) -> Iterable[Coverage]:
        """Return what says that there is no topic of a name, if nothing names it."""

    def _message_at(self, _where: OffsetMessageId | QueuePosition) -> MessageExt | None:
        """Return the message that is there, if it is found at once; None if it must be searched."""
        return None

    @abstractmethod
    def _story_source(self) -> "StorySource":
        """Return what tells of messages and groups."""

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: Unpack[FindOptions],
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content.

        ``text`` is a key, a unique key, an offset message id, or a queue position
        ``TOPIC/QUEUE/OFFSET``. Without it the topic, the times and the content alone decide.
        ``topic`` is one topic, or several as an iterable or with commas between them; ``*``,
        ``?`` and ``[ab]`` in a name make it a pattern. The keywords are those of
        `rocketlens.query.options.FindOptions`. All messages that match are returned, or the newest
        ``max_num``. The newest of a topic are found from the ends of a store's consume queues; of a
        topic whose newest messages are far from the end of the log, the answer relies on those
        queues and says so (``relies_on``), unless it is ``exhaustive``.

        :raises BadInput: if the text cannot be what ``kind`` says, a number is negative, or a
            filter, a pattern or the rules are not well-formed.
        :raises WrongType: if an argument is of a type that cannot be used.
        :raises PackageMissing: if a regular expression needs google-re2, which is not installed.
        :raises TopicNotFound: if nothing is found and there is no such topic; of several, if there
            is no topic of one name.
        """
        return self.find_for(FindRequest.parse(text, topic, **options))

    def find_for(self, request: FindRequest, on_read: OnRead | None = None) -> Answer:
        """Find messages for a request; otherwise as `find`.

        ``on_read`` is called with the bytes that were read, those to read if that is known, and the
        messages; a search ends, incomplete, if it returns False.
        """
        return find_local(request, self.source, on_read)

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...

    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message by its id of either kind, of one topic or of any.

        The id is taken as an offset message id first, then as a unique key. Several records can
        carry one unique key; the oldest is returned.

        :raises MessageNotFound: if there is none.
        :raises AnswerIncomplete: if there is none that could be read, but not all could be.
        :raises BadInput: if the id is empty or far too long.
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
        """Return the messages with a key or unique key; the newest ``max_num``, None for all.

        ``topic`` None searches every topic. Where nothing names the topic, the coverage says so,
        and which was probably meant; `find` refuses such a topic.

        :raises BadInput: if the key is empty or longer than one can be, or a number is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
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
        """Return the messages with a unique key: several after a resend. As `query_message`."""
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
        """Return the message at one offset of one queue.

        :raises MessageNotFound: if there is none.
        :raises AnswerIncomplete: if what could hold it could not be read.
        :raises BadInput: if `topic` is not a valid topic name, a number is negative, or several
            brokers have a message there.
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
        """Return the newest messages of a topic that match, as `MQAdmin.tail` does.

        They are found as `find` finds the newest. The keywords are those of
        `rocketlens.query.options.TailOptions`.

        :raises BadInput: if a condition is not well-formed, or a number is negative.
        :raises TopicNotFound: if there is no such topic.
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
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        **options: Unpack[StoryOptions],
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, what each group did with it.

        Arguments and errors as `MQAdmin.story`. What groups did follows from the copies and traces
        that were stored and, in a store, from the offsets that the broker wrote last. An archive
        has no groups.
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
        """Wait until a message with a key is stored, or a group has consumed it; return it.

        It may have been stored before. Arguments and errors as `MQAdmin.expect`. What a group
        consumed is known as `story` knows it: an archive has no offsets of groups, and a store
        does not show which clients are online.
        """
        from rocketlens.query.expect import ExpectRequest, expect_steps

        request = ExpectRequest.parse(key, topic, by=by, consumed_by=consumed_by)
        return run(expect_steps(request, self._story_source, time.sleep, on_event))

    def _findings(self, max_num: int | None, *, oldest: bool = False) -> Findings:
        in_log_order = self.source.is_one_log
        return Findings(AnswerMessages(max_num, oldest=oldest, in_log_order=in_log_order))

    @abstractmethod
    def close(self) -> None:
        """Close its files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Searches of the console: pages of answers, rows, facets, and counts by time.

`rocketlens.query.find` makes the answer. This module cuts it into pages and turns messages into
rows. Streams show rows before the answer is complete; newer messages can replace these rows.

Facets count the messages of a page by topic, tag and hour. They use the masked rows of the page, so
they reveal no more. A facet with one value is left out.

Bars count messages by time. Their lengths are equal and round, aligned to UTC. If the question is a
topic with or without times, the bars count all messages of its queues. Otherwise they count the
rows of the page: over the whole time range if the page has all results and several bars, else from
the oldest to the newest row.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, contextmanager, suppress
from itertools import pairwise
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.message.message_view import row_of
from rocketlens.console.preferences import time_text, zone_named
from rocketlens.console.room import hold
from rocketlens.console.search.question import MAX_CONSOLE_SKIPPED, Cursor, Question
from rocketlens.console.sources.masks import MASK, Masks
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import (
    CoverageValue,
    FacetCount,
    FacetName,
    FacetValue,
    MessageRow,
    SearchAnswer,
    TimeCountsValue,
)
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.query.answer_builder import order_in_time
from rocketlens.query.find import find_in_all
from rocketlens.query.request import FindRequest, parse_tags
from rocketlens.query.source import Source
from rocketlens.query.topic_choice import is_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_CONSOLE_ANSWER_BYTES: Final = 16 << 20
"""Bytes of messages of a page while it is made; a cursor continues."""
MAX_EXPORT_PAGE_BYTES: Final = 8 << 20
"""The same for an export, which holds a page while its client does not read."""
MAX_TIME_BARS: Final = 60
"""Bars of the plot above the messages."""
_FEW_TIME_BARS: Final = 20
"""The fewest bars; also their number if the topic has many queues."""
_COUNTING_S: Final = 1.0
"""Seconds for the counts of a topic."""
MAX_FACET_VALUES: Final = 8
"""Listed values of a facet."""
MAX_CONSOLE_SEARCH_S: Final = 600.0
"""Seconds after which a search ends with what it has found."""
ROW_THREADS: Final = WorkThreads(2, "console-rows")
"""Decodes bodies for rows and pages."""
_PROGRESS_S: Final = 1.0
"""Seconds after which a search without new results reports its progress."""


class ReadSoFar(NamedTuple):
    """The amount that a search has read."""

    read_bytes: int
    messages: int
    total_bytes: int | None
    """Bytes that it reads at most; None if a source cannot know, such as a cluster."""

    def left_ms(self, elapsed_ms: int) -> int | None:
        """Estimate the remaining time; None if unknown."""
        if self.total_bytes is None or self.read_bytes <= 0:
            return None
        left_bytes = max(0, self.total_bytes - self.read_bytes)
        return elapsed_ms * left_bytes // self.read_bytes


class FoundSoFar(NamedTuple):
    """New findings of a search. Newer messages can replace ``rows``."""

    rows: tuple[MessageRow, ...]
    coverage: tuple[CoverageValue, ...]
    elapsed_ms: int
    read: ReadSoFar | None = None
    """None while only indexes are read."""


class ResultPage(NamedTuple):
    """A page of an export, newest first."""

    messages: list[MessageExt]
    answer: Answer
    is_more: bool
    """True if there are older messages."""


class _Watch:
    """Collects the findings of a search from any thread, in bounded memory."""

    def __init__(
        self, sources: Sequence[ConsoleSource], max_num: int, wake: Callable[[], None]
    ) -> None:
        self._by_source: Final = {id(each.source): each for each in sources}
        self._max_num: Final = max_num
        self._wake: Final = wake
        self._lock: Final = Lock()
        self._origins: dict[tuple[Any, ...], ConsoleSource] = {}
        """The first source of each message by rank, also of some dropped messages."""
        self.added_since: Final[deque[tuple[ConsoleSource, MessageExt]]] = deque(
            maxlen=limits.MAX_CONSOLE_ROWS
        )
        self.covered_since: Final[deque[CoverageValue]] = deque()
        self._read: Final[dict[int, tuple[int, int | None, int]]] = {}

    def added(self, source: Source, message: MessageExt) -> None:
        """Take a message. Large ones come with the answer only."""
        origin = self._by_source[id(source)]
        with self._lock:
            self._origins.setdefault(order_in_time(message), origin)
            if len(self._origins) > 2 * self._max_num + limits.MAX_CONSOLE_ROWS:
                # The answer has the newest messages only.
                newest = sorted(self._origins, reverse=True)[: self._max_num]
                self._origins = {rank: self._origins[rank] for rank in newest}
        if len(message.body) <= limits.MAX_PREVIEW_BYTES:
            self.added_since.append((origin, message))
            self._wake()

    def covered(self, source: Source, coverage: Sequence[Coverage]) -> None:
        name = self._by_source[id(source)].name
        for each in coverage:
            named = replace(each, source=f"{name}: {each.source}")
            self.covered_since.append(CoverageValue.of(named))
        self._wake()

    def read(self, source: Source, read_bytes: int, total_bytes: int | None, messages: int) -> None:
        """Record how much a source has read."""
        self._read[id(source)] = read_bytes, total_bytes, messages

    def read_so_far(self) -> ReadSoFar | None:
        """Return the total of all sources; None if none reads many messages."""
        parts = tuple(self._read.values())
        if not parts:
            return None
        totals = [total for _, total, _ in parts if total is not None]
        total = sum(totals) if len(totals) == len(parts) else None
        return ReadSoFar(sum(each[0] for each in parts), sum(each[2] for each in parts), total)

    def origin(self, message: MessageExt) -> ConsoleSource:
        return self._origins[order_in_time(message)]


class Searches:
    """Searches the sources of a console."""

    def __init__(
        self,
        sources: Sources,
        rules: BodyRules,
        clock: Callable[[], float] = monotonic,
        audit: AuditLog | None = None,
        masks: Masks | None = None,
    ) -> None:
        self.sources: Final = sources
        self.rules: Final = rules
        self.audit: Final = audit or AuditLog()
        self._masks: Final = masks or Masks()
        self._clock: Final = clock
        self.running = 0
        self.counts: Final = {"complete": 0, "incomplete": 0, "failed": 0, "left": 0}
        """Ended searches by result."""
        self.seconds = 0.0
        """Total duration of ended searches."""

    async def search(self, question: Question, *, may_be_streamed: bool = False) -> SearchAnswer:
        """Return a page of an answer.

        ``may_be_streamed``: a cancelled search will be repeated by `stream`, and is neither counted
        nor in the audit log.

        :raises BadInput: if a source or a text cannot be used.
        :raises TopicNotFound: if nothing was found, and no source has the topic.
        """
        with self._count(counts_left=not may_be_streamed) as since:
            request, chosen = self.check(question)
            if not may_be_streamed:
                self._record(question)
            watch = _Watch(chosen, question.max_kept, lambda: None)
            answer = await _find(request, chosen, watch, MAX_CONSOLE_ANSWER_BYTES)
            page = await self._page(question, chosen, answer, watch, since)
            if may_be_streamed:
                self._record(question)
            return page

    async def stream(self, question: Question) -> AsyncIterator[FoundSoFar | SearchAnswer]:
        """Yield findings as they come, and the answer in the end; errors as `search`."""
        with self._count() as since:
            request, chosen = self.check(question)
            self._record(question)
            loop, changed = asyncio.get_running_loop(), asyncio.Event()

            def wake() -> None:
                loop.call_soon_threadsafe(changed.set)

            watch = _Watch(chosen, question.max_kept, wake)
            searching = asyncio.create_task(_find(request, chosen, watch, MAX_CONSOLE_ANSWER_BYTES))
            searching.add_done_callback(lambda _: changed.set())
            rows_left, reported = question.max_num, since
            try:
                while not searching.done():
                    try:
                        async with asyncio.timeout(_PROGRESS_S):
                            await changed.wait()
                        # Messages can still arrive after the last shown row.
                        is_due = self._clock() - reported >= _PROGRESS_S
                    except TimeoutError:
                        is_due = True
                    changed.clear()
                    progress = await self._found(question, watch, since, rows_left)
                    rows_left -= len(progress.rows)
                    if progress.rows or progress.coverage or (is_due and not searching.done()):
                        reported = self._clock()
                        yield progress
                page = await self._page(question, chosen, await searching, watch, since)
            finally:
                searching.cancel()
                await asyncio.gather(searching, return_exceptions=True)
            # Free the rest: a slow client keeps the page for long.
            del searching, watch
            yield page

    async def pages(self, question: Question, form: str) -> AsyncGenerator[ResultPage]:
        """Yield all results for an export, newest first, page by page; errors as `search`.

        :raises BadInput: if one millisecond has more messages than a cursor can skip.
        """
        with self._count():
            hold(MAX_EXPORT_PAGE_BYTES + limits.MAX_EXPORT_PIECE_BYTES)
            whole = replace(question, cursor=None, max_num=limits.MAX_EXPORT_ROWS)
            self.check(whole)
            parameters = question.parameters(cursor=None, max_num=limits.DEFAULT_CONSOLE_ROWS)
            self.audit.record("export", asked=dict(parameters), form=form)
            async with aclosing(self._pages(whole, MAX_EXPORT_PAGE_BYTES)) as pages:
                async for of_sources, page in pages:
                    yield page._replace(messages=await self._all_masked(of_sources))

    async def unmasked_pages(
        self, question: Question, page_rows: int
    ) -> AsyncGenerator[ResultPage]:
        """Yield all results without masks, to be sent again. They must not be shown."""
        with self._count():
            whole = replace(question, cursor=None, max_num=page_rows)
            self.check(whole)
            self._record(replace(question, cursor=None))
            async with aclosing(self._pages(whole, MAX_CONSOLE_ANSWER_BYTES)) as pages:
                async for _, page in pages:
                    yield page

    async def _pages(
        self, question: Question, max_bytes: int
    ) -> AsyncGenerator[tuple[list[tuple[ConsoleSource, MessageExt]], ResultPage]]:
        """Yield each page, with the sources of its messages. A page takes at most so many bytes."""
        is_complete = True
        while True:
            request, chosen = self.check(question)
            watch = _Watch(chosen, question.max_kept, lambda: None)
            answer = await _find(request, chosen, watch, max_bytes)
            page, is_more, answer = await self._newest(question, chosen, answer, watch)
            is_complete = is_complete and answer.complete
            is_more = is_more and bool(page)
            messages = page[::-1]
            of_sources = [(watch.origin(each), each) for each in messages]
            yield of_sources, ResultPage(messages, answer, is_more)
            if not is_more:
                break
            cursor = Cursor.after(page, question.cursor)
            if cursor.seen > MAX_CONSOLE_SKIPPED:
                at = cursor.store_timestamp_ms
                raise BadInput(Sentence("one_millisecond", count=MAX_CONSOLE_SKIPPED, time=at))
            question = replace(question, cursor=cursor)
        self.counts["complete" if is_complete else "incomplete"] += 1

    def check(self, question: Question) -> tuple[FindRequest, list[ConsoleSource]]:
        """Return the request and the sources of a question.

        :raises BadInput: if a source, a text or a filter cannot be used, or the filter could reveal
            masked content.
        """
        chosen = self.sources.chosen(question.sources)
        request = question.request(self.rules)
        if request.content is not None:
            self.check_unmasked(chosen)
        return request, chosen

    def hides_in(self, source_name: str) -> bool:
        """Return whether anything of a source is masked for the current user."""
        return self._masks.hide_from(current_viewer(), source_name)

    def check_unmasked(self, sources: "Iterable[ConsoleSource]") -> None:
        """Check that a content filter cannot reveal masked content.

        :raises BadInput: if it can.
        """
        if any(self.hides_in(each.name) for each in sources):
            raise BadInput(Sentence("contents_masked"))

    def _record(self, question: Question) -> None:
        self.audit.record("search", asked=dict(question.parameters()))

    @contextmanager
    def _count(self, *, counts_left: bool = True) -> "Iterator[float]":
        self.running += 1
        since = self._clock()
        try:
            yield since
        except (asyncio.CancelledError, GeneratorExit):
            if counts_left:
                self.counts["left"] += 1
            else:
                since = self._clock()
            raise
        except BaseException:
            self.counts["failed"] += 1
            raise
        finally:
            self.running -= 1
            self.seconds += self._clock() - since

    async def with_counts(self, question: Question, answer: SearchAnswer) -> SearchAnswer:
        """Return an answer with the counts of all messages by time, if the queues have them."""
        counts = None
        with suppress(TimeoutError, RocketLensError, OSError):
            async with asyncio.timeout(_COUNTING_S):
                counts = await self._counts_of_all(question, answer.messages)
        return answer if counts is None else answer.model_copy(update={"time_counts": counts})

    async def _counts_of_all(
        self, question: Question, rows: Sequence[MessageRow]
    ) -> TimeCountsValue | None:
        topic = question.topic
        is_plain = not (question.text or question.tag or question.has_filter or not rows)
        if not (topic and is_plain) or is_pattern(topic) or "," in topic:
            return None
        chosen = self.sources.chosen(question.sources)
        names = await asyncio.gather(*(each.topic_names() for each in chosen))
        # Two sources, such as a cluster and its store, can have the same messages.
        having = [each for each, known in zip(chosen, names, strict=True) if topic in known]
        if len(having) != 1:
            return None
        (source,) = having
        begin = question.begin
        if begin is None and source.kind == "cluster":
            answer = await source.topics([topic])
            begin = answer.topics[0].oldest_ms if answer and answer.topics else None
        own = [each for each in rows if source.plain(each.topic) == topic]
        newest_ms = max((each.store_timestamp_ms for each in own), default=0)
        if question.begin is not None or question.cursor is not None:
            newest_ms = max(newest_ms, time.time_ns() // 1_000_000)
        end = newest_ms if question.end is None else min(newest_ms, question.end)
        if begin is None or begin >= end:
            return None
        for most in (MAX_TIME_BARS, _FEW_TIME_BARS):
            step = _step_for(end - begin, most)
            borders = range(begin // step * step, end + 1, step)
            times = [begin, *borders[1:], end + 1]
            since = await source.stored_since(topic, times)
            if since is not None:
                counts = [max(0, a - b) for a, b in pairwise(since)]
                if sum(counts) < len(own):
                    # The queues lack messages.
                    return None
                return TimeCountsValue(
                    begin_ms=borders[0], step_ms=step, counts=counts, is_of_all=True
                )
        return None

    def _elapsed_ms(self, since: float) -> int:
        return round((self._clock() - since) * 1000)

    async def _found(
        self, question: Question, watch: _Watch, since: float, rows_left: int
    ) -> FoundSoFar:
        added = [watch.added_since.popleft() for _ in range(len(watch.added_since))]
        covered = [watch.covered_since.popleft() for _ in range(len(watch.covered_since))]
        cursor = question.cursor
        shown = [each for each in added if cursor is None or cursor.is_before(each[1])]
        rows = await self.rows(shown[:rows_left], question.columns)
        read = watch.read_so_far()
        return FoundSoFar(tuple(rows), tuple(covered), self._elapsed_ms(since), read)

    async def rows(
        self, messages: Sequence[tuple[ConsoleSource, MessageExt]], columns: Sequence[str] = ()
    ) -> list[MessageRow]:
        """Return messages as rows in the same order, with the values of these columns."""
        brokers: dict[tuple[str, object], str] = {}
        for source, message in messages:
            host = (source.name, message.store_host)
            if host not in brokers:
                brokers[host] = await source.broker_of(message)
        if not messages:
            return []

        viewer = current_viewer()

        def row(source: ConsoleSource, each: MessageExt) -> MessageRow:
            most = limits.MAX_PREVIEW_BYTES
            shown = self._masks.masked(each, viewer, source, self.rules, most)
            broker = brokers[source.name, each.store_host]
            made = row_of(shown, source.name, broker, self.rules, columns)
            return made if shown is each else made.model_copy(update={"is_masked": True})

        return await in_thread(lambda: [row(*each) for each in messages], ROW_THREADS)

    async def masked(self, source: ConsoleSource, message: MessageExt) -> MessageExt:
        """Return a message as the current user may see it: the same object if nothing is masked."""
        (masked,) = await self._all_masked([(source, message)])
        return masked

    async def _all_masked(
        self, messages: Sequence[tuple[ConsoleSource, MessageExt]]
    ) -> list[MessageExt]:
        viewer, bound = current_viewer(), limits.MAX_SHOWN_JSON_BYTES

        def masked(source: ConsoleSource, each: MessageExt) -> MessageExt:
            return self._masks.masked(each, viewer, source, self.rules, bound)

        return await in_thread(lambda: [masked(*each) for each in messages], ROW_THREADS)

    async def _page(
        self,
        question: Question,
        chosen: Sequence[ConsoleSource],
        answer: Answer,
        watch: _Watch,
        since: float,
    ) -> SearchAnswer:
        page, is_more, answer = await self._newest(question, chosen, answer, watch)
        of_sources = [(watch.origin(each), each) for each in reversed(page)]
        rows = await self.rows(of_sources, question.columns)
        cursor = str(Cursor.after(page, question.cursor)) if page and is_more else None
        self.counts["complete" if answer.complete else "incomplete"] += 1
        return SearchAnswer(
            query=answer.query,
            complete=answer.complete,
            truncated=is_more,
            messages=rows,
            next_cursor=cursor,
            facets=facets_of(rows),
            time_counts=time_counts(
                rows, question, is_whole=not is_more and question.cursor is None
            ),
            relies_on=list(answer.relies_on),
            coverage=[CoverageValue.of(each) for each in answer.coverage],
            elapsed_ms=self._elapsed_ms(since),
        )

    async def _newest(
        self, question: Question, chosen: Sequence[ConsoleSource], answer: Answer, watch: _Watch
    ) -> tuple[list[MessageExt], bool, Answer]:
        """Return a page, oldest message first; whether there are older ones; and their answer."""
        page, is_more = _newest_of(question, answer)
        if not page and is_more:
            # A message larger than a page is a page of its own.
            question = replace(question, max_num=1)
            request = question.request(self.rules)
            answer = await _find(request, chosen, watch, limits.MAX_ANSWER_BYTES)
            page, is_more = _newest_of(question, answer)
        return page, is_more, answer


def _newest_of(question: Question, answer: Answer) -> tuple[list[MessageExt], bool]:
    """Return the messages of a page, oldest first, and whether there are older ones."""
    cursor = question.cursor
    messages = [each for each in answer.messages if cursor is None or cursor.is_before(each)]
    page = messages[-question.max_num :]
    return page, answer.truncated or len(messages) > len(page)


async def _find(
    request: FindRequest, chosen: Sequence[ConsoleSource], watch: _Watch, max_bytes: int
) -> Answer:
    sources = [each.source for each in chosen]
    return await find_in_all(
        request, sources, watch=watch, max_bytes=max_bytes, max_s=MAX_CONSOLE_SEARCH_S
    )


_HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(each * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * 60 * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR_MS for each in (1, 2, 3, 6, 12)),
    *(each * _DAY_MS for each in (1, 2, 7, 14, 30, 90, 365)),
)
"""Lengths of bars. Longer ones are multiples of the last."""


def facets_of(rows: Sequence[MessageRow]) -> list[FacetValue]:
    """Return the facets of a page: topics and tags by count, hours newest first."""
    hours = Counter(each.store_timestamp_ms // _HOUR_MS * _HOUR_MS for each in rows)
    facets = (
        _facet("topic", Counter(each.topic for each in rows).most_common()),
        _facet("tag", Counter(each.tags or None for each in rows).most_common()),
        _facet("hour", [(str(hour), hours[hour]) for hour in sorted(hours, reverse=True)]),
    )
    return [each for each in facets if len(each.counts) > 1]


def _facet(name: FacetName, counts: Sequence[tuple[str | None, int]]) -> FacetValue:
    listed = counts[:MAX_FACET_VALUES]
    return FacetValue(
        name=name,
        counts=[FacetCount(value=value, count=count) for value, count in listed],
        more=len(counts) - len(listed),
    )


def question_for_facet(question: Question, name: FacetName, value: str | None) -> Question | None:
    """Return the question for one value of a facet; None if it cannot be asked."""
    if value is None or len(value) > limits.MAX_TOPIC_CHARACTERS:
        return None
    first_page = replace(question, cursor=None)
    if name == "topic":
        return None if is_pattern(value) or "," in value else replace(first_page, topic=value)
    if name == "tag":
        is_tag = MASK not in value and parse_tags(value) == frozenset({value})
        return replace(first_page, tag=value) if is_tag else None
    begin = max(int(value), question.begin or 0)
    end = int(value) + _HOUR_MS - 1
    end = end if question.end is None else min(end, question.end)
    return replace(first_page, since=str(begin), until=str(end), begin=begin, end=end, zone_name="")


def time_counts(
    rows: Sequence[MessageRow], question: Question, *, is_whole: bool
) -> TimeCountsValue | None:
    """Return the counts of a page by time; None if all are in one bar.

    ``is_whole``: the page has all results.
    """
    times = [each.store_timestamp_ms for each in rows]
    if not times:
        return None
    own = min(times), max(times)
    span = (
        own[0] if question.begin is None else min(own[0], question.begin),
        own[1] if question.end is None else max(own[1], question.end),
    )
    # In a long time range, all rows can be in one bar.
    return (_counts(times, *span) if is_whole else None) or _counts(times, *own)


def _counts(times: Sequence[int], low: int, high: int) -> TimeCountsValue | None:
    step = _step_for(high - low, MAX_TIME_BARS)
    # A few messages do not make wide bars.
    high = max(high, low + (_FEW_TIME_BARS - 1) * step)
    first = low // step
    counted = Counter(each // step - first for each in times)
    if len(counted) < 2:
        return None
    length = high // step - first + 1
    return TimeCountsValue(
        begin_ms=first * step, step_ms=step, counts=[counted[number] for number in range(length)]
    )


def _step_for(span_ms: int, most: int) -> int:
    """Return the shortest round length with at most so many bars."""
    # An unaligned range touches one bar more.
    shortest = span_ms // (most - 1) + 1
    longest = _STEPS_MS[-1]
    return next((each for each in _STEPS_MS if each >= shortest), -(-shortest // longest) * longest)


def question_for_bar(question: Question, begin_ms: int, end_ms: int, zone_name: str) -> Question:
    """Return the question for a part of its time range, both ends included, in the user's zone."""
    begin = max(begin_ms, question.begin or 0)
    end = end_ms if question.end is None else min(end_ms, question.end)
    zone = zone_named(zone_name)
    return replace(
        question,
        since=time_text(begin, zone),
        until=time_text(end, zone),
        begin=begin,
        end=end,
        zone_name=zone_name,
        cursor=None,
    )

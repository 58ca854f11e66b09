"""Queries sources and merges their messages into one answer.

Each source verifies its messages. This module orders, limits and deduplicates them, and collects
the coverage; the rule in `rocketlens.model.answer` determines if an answer is complete.

======================================  =========================================================
case                                    answer
======================================  =========================================================
one source                              in the order of its log if it has one, else by store time;
                                        errors of the source are raised
several sources                         by store time, each message once; coverage is prefixed
                                        with the name of the source
one of several sources fails            incomplete, with the messages of the others
a source without a proof                incomplete: see `Coverage.is_proof`
a topic that no source has              `TopicNotFound`, if several topics were requested, or if
                                        nothing was found and everything was searched
======================================  =========================================================
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    RocketLensError,
    TopicNotFound,
    WrongUse,
)
from rocketlens.model.answer import Answer, Coverage, failure
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import AnswerMessages, Findings, OnRead
from rocketlens.query.kept import describe_waiting, kept_steps
from rocketlens.query.pasted import merge_parts, requests_in_text
from rocketlens.query.request import FindRequest
from rocketlens.query.source import Source, Steps, awaited, run_in_loop


class FindWatch(Protocol):
    """Callbacks of a search in progress."""

    def added(self, source: Source, message: MessageExt) -> None:
        """Called with each added message, in the thread that adds it; it can be dropped later."""
        ...

    def covered(self, source: Source, coverage: Sequence[Coverage]) -> None:
        """Called with the coverage of a source at the end of its search."""
        ...

    def read(self, source: Source, read_bytes: int, total_bytes: int | None, messages: int) -> None:
        """Called with the progress of a source, in its thread; unknown totals are None."""
        ...


async def find(
    request: FindRequest,
    source: Source,
    *,
    on_cancelled: Callable[[], None] | None = None,
    on_read: OnRead | None = None,
) -> Answer:
    """Query one source from an event loop.

    If ``on_cancelled`` is given, a cancelled search calls it and returns an incomplete answer with
    the messages found so far. ``on_read`` is called while queues of a cluster are read.

    :raises TopicNotFound: if nothing was found and the source does not have the topic.
    :raises RocketLensError: if the source cannot be searched.
    """
    return await run_in_loop(find_steps(request, source, on_cancelled, on_read))


def find_steps(
    request: FindRequest,
    source: Source,
    on_cancelled: Callable[[], None] | None = None,
    on_read: OnRead | None = None,
) -> Steps[Answer]:
    """The steps of `find`, with the same arguments."""
    in_log_order = source.is_one_log
    messages = AnswerMessages(request.max_num, oldest=request.oldest, in_log_order=in_log_order)
    findings = Findings(messages, on_read=on_read)
    try:
        yield from _search_steps(request, source, findings)
    except BaseException as error:
        if on_cancelled is None:
            raise
        # Late import: reading a store needs no event loop.
        from asyncio import CancelledError

        if not isinstance(error, CancelledError):
            raise
        on_cancelled()
        findings.cover((failure(source.name, source.kind, "interrupted"),))
        return findings.answer(request.query)
    if _asks_for_topics(request, [findings]):
        yield partial(source.check_topics, request.topics, findings)
    _raise_unknown([findings])
    answer = yield from describe_waiting(request, findings.answer(request.query), [source])
    more: list[Answer] = []
    for each in requests_in_text(request, answer):
        more += [(yield from find_steps(each, source, on_read=on_read))]
    return merge_parts(request, answer, more)


def _search_steps(request: FindRequest, source: Source, findings: Findings) -> Steps[None]:
    """Search a source, then the messages that brokers keep for the topics."""
    yield partial(source.find, request, findings)
    try:
        yield from kept_steps(request, findings, source)
    except RocketLensError as error:
        # It is unknown which brokers have these topics; the first search may have failed likewise.
        if findings.is_complete:
            findings.cover((failure("", source.kind, str(error)),))


def _asks_for_topics(request: FindRequest, results: Sequence[Findings]) -> bool:
    """Return whether to check that the requested topics exist.

    Several topics are always checked, a single one only after a complete search without results.
    """
    is_empty = not results[0].messages and all(each.is_complete for each in results)
    return len(request.topics) > 1 or bool(request.topics and is_empty)


async def find_in_all(
    request: FindRequest,
    sources: Sequence[Source],
    *,
    watch: FindWatch | None = None,
    max_bytes: int | None = None,
    max_s: float | None = None,
) -> Answer:
    """Query several sources concurrently.

    ``watch`` receives each message when it is found. ``max_bytes`` limits the memory of the
    messages (None: `rocketlens.limits.MAX_ANSWER_BYTES`). The search of a source stops after
    ``max_s`` seconds; the answer is then incomplete, with the messages found so far.

    :raises TopicNotFound: if nothing was found and no source has the topic.
    """
    # Late: commands that read a store need no event loop.
    from asyncio import gather, timeout

    messages = AnswerMessages(request.max_num, oldest=request.oldest, max_bytes=max_bytes)
    results = [_findings_of(source, messages, watch) for source in sources]

    async def find_in_time(source: Source, findings: Findings) -> None:
        end = timeout(max_s)
        try:
            async with end:
                await run_in_loop(_search_steps(request, source, findings))
        except TimeoutError:
            if not end.expired():
                raise
            error = Sentence("search_too_long", seconds=max_s or 0)
            findings.cover((failure("", source.kind, error),))

    async def ask(source: Source, findings: Findings) -> Mapping[str, int]:
        work = find_in_time(source, findings)
        dating = _oldest_ms(source, is_alone=len(sources) == 1)
        _, dated = await gather(_ask(source, findings, work), dating)
        if not findings.is_complete and not any(each.is_failure for each in findings.coverage):
            error = "it did not report what was searched"
            findings.cover((failure("", source.kind, error),))
        if watch is not None:
            watch.covered(source, findings.coverage)
        return dated

    async def check(source: Source, findings: Findings) -> None:
        work = awaited(partial(source.check_topics, request.topics, findings))
        await _ask(source, findings, work)

    oldest = await gather(*map(ask, sources, results))
    if results and _asks_for_topics(request, results):
        await gather(*map(check, sources, results))
    _raise_unknown(results, [each.name for each in sources])
    kept = messages.in_order()
    answer = Answer(
        request.query,
        kept,
        tuple(
            _named(each, source, dated)
            for source, findings, dated in zip(sources, results, oldest, strict=True)
            for each in findings.coverage
        ),
        truncated=messages.truncated,
        index_last_update_timestamp_ms=max((each.indexed_to_ms for each in results), default=0),
        held_by=messages.holders_of(kept, [each.name for each in sources]),
    )
    answer = await run_in_loop(describe_waiting(request, answer, sources))
    again = partial(find_in_all, sources=sources, watch=watch, max_bytes=max_bytes, max_s=max_s)
    return merge_parts(
        request, answer, [await again(each) for each in requests_in_text(request, answer)]
    )


def _findings_of(source: Source, messages: AnswerMessages, watch: FindWatch | None) -> Findings:
    if watch is None:
        return Findings(messages, source=source.name)
    added, read = partial(watch.added, source), partial(watch.read, source)
    return Findings(messages, added, read, source=source.name)


def _named(each: Coverage, source: Source, oldest_ms: Mapping[str, int]) -> Coverage:
    name = f"{source.name}: {each.source}" if each.source else source.name
    held_from_ms = each.held_from_ms or oldest_ms.get(each.source)
    return replace(each, source=name, held_from_ms=held_from_ms)


async def _oldest_ms(source: Source, *, is_alone: bool) -> Mapping[str, int]:
    oldest_ms = getattr(source, "oldest_ms", None)
    if is_alone or oldest_ms is None:
        return {}
    try:
        oldest: Mapping[str, int] = await awaited(oldest_ms)
        return oldest
    except (RocketLensError, OSError):
        # The search reports the error.
        return {}


async def _ask(source: Source, findings: Findings, work: Awaitable[None]) -> None:
    """Query one of several sources. Turn its errors into coverage, except those of the caller."""
    try:
        await work
    except (BadInput, WrongUse):
        raise
    except (RocketLensError, OSError) as error:
        findings.cover((failure("", source.kind, str(error)),))


def _raise_unknown(results: Sequence[Findings], sources: Sequence[str] = ()) -> None:
    """Raise the error of a requested topic that no source has.

    :raises TopicNotFound: if there is one. For several sources, the text has the error of each.
    """
    for name, error in results[0].unknown.items() if results else ():
        if all(name in each.unknown for each in results):
            if len(results) == 1:
                raise error
            errors = (str(each.unknown[name]) for each in results)
            raise TopicNotFound(
                "; ".join(f"{source}: {text}" for source, text in zip(sources, errors, strict=True))
            ) from error


def one_message(answer: Answer, searched: str) -> MessageExt:
    """Return the only message of an answer; ``searched`` describes the source for errors.

    :raises MessageNotFound: if there is none, and everything was searched.
    :raises AnswerIncomplete: if there is none, and something could not be searched.
    :raises BadInput: if several brokers have one.
    """
    if answer.messages:
        hosts = {each.store_host for each in answer.messages}
        if len(hosts) > 1:
            brokers = ", ".join(sorted(map(str, hosts)))
            raise BadInput(f"{answer.query} is a message of each of {brokers}: find() returns all")
        return answer.messages[0]
    if answer.complete:
        # A missing topic or queue explains more than the list of sources.
        by_weight = sorted(answer.coverage, key=lambda each: each.source != "position")
        reason = next(filter(None, (each.note or each.error for each in by_weight)), None)
        detail = f": {reason}" if reason else ""
        raise MessageNotFound(f"{answer.query} is not in {searched}{detail}")
    failed = (f"{each.source}: {each.error}" for each in answer.failures[:3])
    errors = "; ".join(failed) or "nothing was searched"
    raise AnswerIncomplete(f"{answer.query} was not found, but: {errors}", answer)

"""The interface of message sources (stores, clusters, archives), and functions to query them.

A source reads and verifies: it adds only messages that match the request and their record.
`rocketlens.query.find` limits and orders them.

Methods of a source over files block; those of a cluster return awaitables. Queries are written once
as generators of calls (`Steps`), which `run` executes, or `run_in_loop` in an event loop. There,
`rocketlens.query.threaded_source` moves the calls to files into a thread.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable
from typing import Any, Protocol, TypeVar, runtime_checkable

from rocketlens.model.answer import SourceKind
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest

T = TypeVar("T")
Question = Callable[[], Any]
"""A call of a source, with bound arguments; its result can be an awaitable."""
Steps = Generator[Question, Any, T]
"""A generator that yields questions, receives their answers, and returns a result."""


@runtime_checkable
class Source(Protocol):
    """A source of messages.

    Two more methods are optional, and cheap: ``oldest_ms()`` returns the store times of the oldest
    messages by their source name in coverage, and ``lacks(topics)`` returns True if the source is
    known to have no message of these topics.
    """

    @property
    def name(self) -> str:
        """Its name in coverage, such as a path or an address."""
        ...

    @property
    def kind(self) -> SourceKind:
        """Its kind in the coverage of a failure."""
        ...

    @property
    def is_one_log(self) -> bool:
        """Whether all messages are in one commit log, whose order the answer then has."""
        ...

    def find(self, request: FindRequest, findings: Findings) -> Awaitable[None] | None:
        """Add matching messages as they are found, and the coverage.

        Requested topics that the source does not have can be added to ``findings.unknown``.

        :raises RocketLensError: if the source cannot be searched.
        """
        ...

    def check_topics(self, names: Sequence[str], findings: Findings) -> Awaitable[None] | None:
        """Add topics that the source does not have to ``findings.unknown``.

        If that cannot be determined, add the reason to the coverage.
        """
        ...


def run(steps: Steps[T]) -> T:
    """Run the queries of blocking sources, and return the result."""
    try:
        question = next(steps)
        while True:
            try:
                answer = question()
            except BaseException as error:  # noqa: BLE001 - the steps decide
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def run_in_loop(steps: Steps[T]) -> T:
    """Run queries, awaiting their answers if necessary, and return the result."""
    try:
        question = next(steps)
        while True:
            try:
                answer = await awaited(question)
            except BaseException as error:  # noqa: BLE001 - the steps decide
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def awaited(question: Question) -> Any:
    answer = question()
    return await answer if isawaitable(answer) else answer

"""The interface of every source of messages, a store directory, a cluster or another, and how it is
asked.

A source reads and verifies: it adds only messages that match the request, each compared with its
record. It decides neither how many are returned nor in which order: `rocketlens.query.find` does.

The methods of a source that reads files return when they are done; those of a cluster return what
must be awaited. What asks them is written once, as a generator that yields its questions (`Steps`),
and is run by `run` or, in an event loop, by `run_in_loop`. There a source that reads files is asked
in a thread: see `rocketlens.query.threaded_source`.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable
from typing import Any, Protocol, TypeVar, runtime_checkable

from rocketlens.model.answer import SourceKind
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest

T = TypeVar("T")
Question = Callable[[], Any]
"""A call of a source without its arguments; its result may have to be awaited."""
Steps = Generator[Question, Any, T]
"""What yields one question after another, is sent the answer of each, and returns a result."""


@runtime_checkable
class Source(Protocol):
    """A source of messages.

    It may have two more methods, each of which costs little: ``oldest_ms()`` returns the store
    times of the oldest messages by the names that its coverage has, and ``lacks(topics)`` whether
    it is known to have no message of these topics.
    """

    @property
    def name(self) -> str:
        """Its name in coverage: a path, an address."""
        ...

    @property
    def kind(self) -> SourceKind:
        """Its kind in coverage, if it fails as a whole."""
        ...

    @property
    def is_one_log(self) -> bool:
        """Whether all of its messages are of one commit log, whose order an answer then has."""
        ...

    def find(self, request: FindRequest, findings: Findings) -> Awaitable[None] | None:
        """Add the messages that match, as they come, and the coverage of what was searched.

        Of the request's topics, those that the source is sure not to have may be added to
        ``findings.unknown``.

        :raises RocketLensError: if it cannot be searched at all.
        """
        ...

    def check_topics(self, names: Sequence[str], findings: Findings) -> Awaitable[None] | None:
        """Add to ``findings.unknown`` the topics that the source is sure not to have.

        What keeps it from being sure is added to the coverage.
        """
        ...


def run(steps: Steps[T]) -> T:
    """Return the result of questions to sources that need not be awaited."""
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
    """Return the result of questions to sources, each awaited if it must be."""
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
    """Return the answer to one question, awaited if it must be."""
    answer = question()
    return await answer if isawaitable(answer) else answer

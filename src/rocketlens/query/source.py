"""The interfaces of every source of messages: a store directory, a cluster, and others.

A `LocalSource` never waits: its methods return when they are done. A `Source` is awaited. A cluster
is one; `rocketlens.query.threaded_source` makes one of a local source.

A source reads and verifies: it adds only messages that match the request, each compared with its
record. It decides neither how many are returned nor in which order: `rocketlens.query.find` does.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from rocketlens.model.answer import SourceKind
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest


class _NamedSource(Protocol):
    """The properties of a source that cost no question."""

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


class LocalSource(_NamedSource, Protocol):
    """A source that never waits; its methods are those of `Source`."""

    def lacks(self, topics: Sequence[str]) -> bool:
        """Return whether the source is known to have no message of these topics, at little cost."""
        ...

    def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match, and the coverage of what was searched."""
        ...

    def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add to ``findings.unknown`` the topics that the source is sure not to have."""
        ...


@runtime_checkable
class DatedSource(Protocol):
    """A source that also says from when on it has messages; a local one returns it at once."""

    async def oldest_ms(self) -> Mapping[str, int]:
        """Return store times of the oldest messages, in epoch milliseconds, by the names that its
        coverage has; those that are not known are left out.
        """
        ...


@runtime_checkable
class Source(_NamedSource, Protocol):
    """A source of messages that is awaited."""

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match, as they come, and the coverage of what was searched.

        Of the request's topics, those that the source is sure not to have may be added to
        ``findings.unknown``.

        :raises RocketLensError: if it cannot be searched at all.
        """
        ...

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add to ``findings.unknown`` the topics that the source is sure not to have.

        What keeps it from being sure is added to the coverage.
        """
        ...

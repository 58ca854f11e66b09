"""The brokers of all clusters, and the state of stores and archives, for the page *Brokers* and the
API.

Each broker is asked once, all of them side by side. A user who may see some topics of a source only
learns which brokers it has and whether they answer: what they count is of all topics, and so are
the files of a store or an archive.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from rocketlens import limits
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.message.look_up import coverage_values, failed_answer
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.sources.sources import Sources
from rocketlens.console.values import ConsoleValue, CoverageValue, SentenceText
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.status import ArchiveStatus, BrokersAnswer, BrokerStatus, StoreStatus


class BrokerValue(ConsoleValue):
    """A broker, a master or a slave; None stands for values that it does not report, or that the
    user may not see.
    """

    source: str
    cluster: str
    name: str
    broker_id: int
    role: Literal["master", "slave"]
    address: str
    error: SentenceText | None = Field(description="why it could not be asked")
    is_hidden: bool = Field(description="whether its counts are hidden: they are of all topics")
    version: str | None
    started_ms: int | None
    put_per_second: float | None = Field(description="messages stored, in the last 10 s or so")
    get_per_second: float | None = Field(description="messages sent to consumers, likewise")
    put_today: int | None = Field(description="messages stored since its midnight")
    get_today: int | None = Field(description="messages sent to consumers since then")
    oldest_ms: int | None
    disk_ratio: float | None = Field(description="the used part of its disk, 0 to 1")
    log_bytes: int | None
    min_offset: int | None
    end_offset: int | None
    behind_bytes: int | None = Field(description="the larger of the next two: the pipeline's lag")
    dispatch_behind_bytes: int | None = Field(description="bytes of log that are in no queue yet")
    index_behind_bytes: int | None = Field(description="bytes of log that index files lack")
    index_builder: str | None = Field(description="what builds index files, and how it is")


class BuilderValue(ConsoleValue):
    """The index builder of a store of RocketLens."""

    is_running: bool
    safe_offset: int
    behind_bytes: int
    silent_since_ms: int


class TapValue(ConsoleValue):
    """Of which broker's log a store is the copy, and how far it came."""

    broker_name: str
    address: str
    behind_bytes: int = Field(description="bytes of the broker's log that were not copied")
    behind_ms: int = Field(description="how old the last copied message was, if some were not")
    written_ms: int = Field(description="when this was noted; 0 if nothing was copied yet")
    gaps: list[tuple[int, int]] = Field(
        description="physical offsets that the broker deleted before they were copied"
    )
    replaced: list[str] = Field(description="directories with copies of earlier logs of the broker")
    problem: SentenceText = Field(description="why nothing was copied then; empty if it was")


class StoreStateValue(ConsoleValue):
    """A store directory."""

    source: str
    path: str
    closing: Literal["clean", "killed", "in_use"]
    written_by: str
    log_files: int
    log_bytes: int
    min_offset: int
    end_offset: int
    queue_bytes: int
    index_files: int
    index_damaged_files: int
    index_entries: int
    index_bytes: int
    index_newest_ms: int | None
    index_uncovered_bytes: int = Field(description="bytes of log that no index file covers")
    builder: BuilderValue | None = Field(description="None if no broker of RocketLens wrote it")
    tap: TapValue | None = Field(description="None if it is no copy that a tap wrote")
    disk_total_bytes: int
    disk_free_bytes: int
    topics: int
    messages: int | None
    oldest_ms: int | None
    newest_ms: int | None


class ArchivedSourceValue(ConsoleValue):
    """What an archive has of one source: a broker, or the topics of a cluster."""

    name: str
    topics: list[str] = Field(description="those that are archived, names or patterns; none: all")
    batches: int
    messages: int = Field(description="those of days that are not kept any more included")
    oldest_ms: int | None
    newest_ms: int | None
    archived_ms: int = Field(description="when the last batch was added")
    gaps: list[str] = Field(description="what could not be archived")


class ArchiveStateValue(ConsoleValue):
    """An archive."""

    source: str
    root: str
    sources: list[ArchivedSourceValue]
    topics: int
    files: int
    size_bytes: int


class BrokersValue(ConsoleValue):
    """Brokers, stores and archives, and whether these are all."""

    complete: bool
    brokers: list[BrokerValue]
    left_out: int = Field(description="brokers beyond those that one answer has")
    stores: list[StoreStateValue]
    archives: list[ArchiveStateValue]
    hidden: list[str] = Field(description="sources of which the user may not see all topics")
    coverage: list[CoverageValue]


class BrokerLookUps:
    """Asks the sources of a console for their brokers."""

    def __init__(self, sources: Sources) -> None:
        self._sources: Final = sources

    async def brokers(self, names: Sequence[str] = ()) -> BrokersValue:
        """Return the state of some sources, all without names; a failure is coverage.

        :raises BadInput: if there is no source of a name.
        """
        chosen = self._sources.chosen(names)
        answers = await asyncio.gather(*map(_status_of, chosen))
        covered = [(s, each) for s, each in zip(chosen, answers, strict=True) if each is not None]
        brokers = [
            broker_value(source, each)
            for source, answer in covered
            if isinstance(answer, BrokersAnswer)
            for each in answer.brokers
        ]
        viewer = current_viewer()
        return BrokersValue(
            complete=all(answer.complete for _, answer in covered),
            brokers=brokers[: limits.MAX_CONSOLE_BROKERS],
            left_out=max(len(brokers) - limits.MAX_CONSOLE_BROKERS, 0),
            stores=[_store(s, each) for s, each in covered if isinstance(each, StoreStatus)],
            archives=[
                ArchiveStateValue.of(each, source=source.name)
                for source, each in covered
                if isinstance(each, ArchiveStatus)
            ],
            hidden=[each.name for each in chosen if not viewer.sees_all(each.name)],
            coverage=coverage_values(covered),
        )


async def _status_of(
    source: ConsoleSource,
) -> BrokersAnswer | StoreStatus | ArchiveStatus | None:
    try:
        return await source.status()
    except BadInput:
        raise
    except (RocketLensError, OSError) as error:
        return BrokersAnswer((), failed_answer(source, str(error)).coverage)


def broker_value(source: ConsoleSource, broker: BrokerStatus) -> BrokerValue:
    """Return a broker of a source as its viewer may see it."""
    return BrokerValue.of(
        broker,
        source=source.name,
        cluster=broker.cluster_name,
        role="master" if broker.is_master else "slave",
        is_hidden=not current_viewer().sees_all(source.name),
    )


def _store(source: ConsoleSource, store: StoreStatus) -> StoreStateValue:
    index = store.index
    return StoreStateValue.of(
        store,
        source=source.name,
        closing=store.closing.value,
        index_files=index.files,
        index_damaged_files=index.damaged_files,
        index_entries=index.entries,
        index_bytes=index.size_bytes,
        index_newest_ms=index.newest_ms,
        index_uncovered_bytes=index.uncovered_bytes,
        builder=index.builder,
    )

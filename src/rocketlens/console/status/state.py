"""The state of sources: brokers, stores and archives, clients, and an overview.

Brokers are asked once and concurrently. For users who may not see all topics of a source, it shows
only the brokers and whether they answer: counts, files and producers concern all topics. Consumers
are shown as on the page of groups.

The first page loads the overview after it is shown, and again each minute: groups of a large
cluster take seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal

from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from rocketlens import __version__
from rocketlens.console.act.permission import ActRefused
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.pages import SEE_OTHER, Here, Sourced, api_router, form_of, page_router
from rocketlens.console.search.saved_searches import SavedSearchValue, failed_alarms
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.status.lists import ask_all, coverage_values, groups_of
from rocketlens.console.values import (
    ConsoleValue,
    CoverageValue,
    GroupsValue,
    GroupValue,
    SentenceText,
    SourcesValue,
    SourceValue,
)
from rocketlens.model.group import GroupClient, GroupsAnswer, ProducersAnswer
from rocketlens.model.status import ArchiveStatus, BrokersAnswer, StoreStatus
from rocketlens.model.text.sentences import Sentence
from rocketlens.wire.codes import version_name

MAX_CONSOLE_BROKERS: Final = 1_000
"""Brokers of one answer."""
MAX_OVERVIEW_GROUPS: Final = 3
"""Groups that the overview names for each source: alarms, then the worst."""
MAX_CONSOLE_CLIENTS: Final = 2_000
"""Clients of one answer."""
_Status = BrokersAnswer | StoreStatus | ArchiveStatus


class BrokerValue(ConsoleValue):
    """A broker. None stands for values that are not reported, or hidden."""

    source: str
    cluster: str
    name: str
    broker_id: int
    role: Literal["master", "slave"]
    address: str
    error: SentenceText | None = Field(description="why it could not be asked")
    is_hidden: bool = Field(description="true if its counts, which concern all topics, are hidden")
    version: str | None
    started_ms: int | None
    put_per_second: float | None = Field(description="messages stored, in about the last 10 s")
    get_per_second: float | None = Field(description="messages sent to consumers, likewise")
    put_today: int | None = Field(description="messages stored since midnight of the broker")
    get_today: int | None = Field(description="messages sent to consumers since then")
    oldest_ms: int | None
    disk_ratio: float | None = Field(description="the used fraction of its disk, 0 to 1")
    log_bytes: int | None
    min_offset: int | None
    end_offset: int | None
    behind_bytes: int | None = Field(description="the indexing lag: the larger of the next two")
    dispatch_behind_bytes: int | None = Field(description="bytes of log not in queues yet")
    index_behind_bytes: int | None = Field(description="bytes of log not in index files yet")
    index_builder: str | None = Field(description="the builder of index files and its state")


class IndexBuilderValue(ConsoleValue):
    """The progress of RocketLens's own index builder."""

    is_running: bool
    safe_offset: int
    behind_bytes: int
    silent_since_ms: int


class TapValue(ConsoleValue):
    """The origin and the progress of a copied log."""

    broker_name: str
    address: str
    behind_bytes: int
    behind_ms: int
    written_ms: int
    gaps: tuple[tuple[int, int], ...]
    replaced: tuple[str, ...]
    problem: str


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
    builder: IndexBuilderValue | None = Field(description="null: not of a RocketLens broker")
    tap: TapValue | None = Field(description="null if no tap wrote the store")
    disk_total_bytes: int
    disk_free_bytes: int
    topics: int
    messages: int | None
    oldest_ms: int | None
    newest_ms: int | None


class ArchivedSourceValue(ConsoleValue):
    """A source of an archive: a broker, or topics of a cluster."""

    name: str
    topics: list[str] = Field(description="archived topics, names or patterns; empty: all")
    batches: int
    messages: int = Field(description="including those of deleted days")
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
    """Brokers, stores and archives."""

    complete: bool
    brokers: list[BrokerValue]
    left_out: int = Field(description="how many further brokers are left out")
    stores: list[StoreStateValue]
    archives: list[ArchiveStateValue]
    hidden: list[str] = Field(description="sources of which the user may not see all topics")
    coverage: list[CoverageValue]


async def brokers_of(sources: Sources, names: Sequence[str] = ()) -> BrokersValue:
    """Return the state of sources; failures are coverage.

    :raises BadInput: if a source does not exist.
    """
    chosen = sources.chosen(names)
    answers: list[tuple[ConsoleSource, _Status]]
    answers = await ask_all(chosen, lambda each: each.status(), BrokersAnswer)
    hidden = [each.name for each in chosen if not current_viewer().sees_all(each.name)]
    brokers = [
        BrokerValue.of(
            each,
            source=source.name,
            cluster=each.cluster_name,
            role="master" if each.is_master else "slave",
            is_hidden=source.name in hidden,
        )
        for source, answer in answers
        if isinstance(answer, BrokersAnswer)
        for each in answer.brokers
    ]
    return BrokersValue(
        complete=all(answer.complete for _, answer in answers),
        brokers=brokers[:MAX_CONSOLE_BROKERS],
        left_out=max(len(brokers) - MAX_CONSOLE_BROKERS, 0),
        stores=[_store(s, each) for s, each in answers if isinstance(each, StoreStatus)],
        archives=[
            ArchiveStateValue.of(each, source=source.name)
            for source, each in answers
            if isinstance(each, ArchiveStatus)
        ],
        hidden=hidden,
        coverage=coverage_values(answers),
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


class ClientValue(ConsoleValue):
    """A connected client."""

    source: str
    client_id: str
    address: str = Field(description="its address at one of its brokers")
    language: str | None
    version: str
    consumes: list[str] = Field(description="its consumer groups")
    produces: list[str] = Field(description="its producer groups")


class ClientsValue(ConsoleValue):
    """Connected clients."""

    complete: bool
    clients: list[ClientValue]
    left_out: int = Field(description="how many further clients are left out")
    without: list[str] = Field(description="stores and archives, which have no clients")
    hidden: list[str] = Field(description="sources of which the user may not see all topics")
    coverage: list[CoverageValue]


async def clients_of(sources: Sources, names: Sequence[str] = ()) -> ClientsValue:
    """Return the clients of clusters; failures are coverage.

    :raises BadInput: if a source does not exist.
    """
    chosen = sources.chosen(names)
    clusters = [each for each in chosen if each.kind == "cluster"]
    groups, producers = await asyncio.gather(
        ask_all(clusters, lambda each: each.groups(), GroupsAnswer),
        ask_all(clusters, lambda each: each.producers(), ProducersAnswer),
    )
    answers: list[tuple[ConsoleSource, GroupsAnswer | ProducersAnswer]]
    answers = [*groups, *producers]
    clients = [
        each
        for source in clusters
        for each in _clients(source, [answer for asked, answer in answers if asked is source])
    ]
    return ClientsValue(
        complete=all(answer.complete for _, answer in answers),
        clients=clients[:MAX_CONSOLE_CLIENTS],
        left_out=max(len(clients) - MAX_CONSOLE_CLIENTS, 0),
        without=[each.name for each in chosen if each.kind != "cluster"],
        hidden=[each.name for each in clusters if not current_viewer().sees_all(each.name)],
        coverage=coverage_values(answers),
    )


def _clients(
    source: ConsoleSource, answers: Sequence[GroupsAnswer | ProducersAnswer]
) -> list[ClientValue]:
    """Return the clients of one source, sorted by id."""
    members: dict[str, GroupClient] = {}
    consumes: dict[str, list[str]] = {}
    produces: dict[str, list[str]] = {}
    for answer in answers:
        groups = produces if isinstance(answer, ProducersAnswer) else consumes
        for group in answer.groups:
            for each in group.members or ():
                members.setdefault(each.client_id, each)
                groups.setdefault(each.client_id, []).append(group.name)
    return [
        ClientValue(
            source=source.name,
            client_id=name,
            address=client.address,
            language=client.language,
            version=version_name(client.version),
            consumes=consumes.get(name, []),
            produces=produces.get(name, []),
        )
        for name, client in sorted(members.items())
    ]


DISK_DELETES: Final = 0.85
"""The disk usage from which a RocketMQ broker deletes messages."""
DISK_FULL: Final = 0.9
"""The disk usage from which a RocketMQ broker refuses messages."""
SMALL_LAG_BYTES: Final = 1 << 20
"""The indexing lag up to which there is no warning."""


class GroupCountValue(ConsoleValue):
    """A consumer group, and its count of lagging messages or dead letters."""

    group: str
    count: int
    is_alarm: bool = Field(description="true if no member consumes them, or dead letters are new")
    behind_ms: int | None = Field(description="how far the group is behind; null: unknown")


class SourceStateValue(ConsoleValue):
    """The state of one source."""

    source: str
    kind: str
    complete: bool
    brokers: int
    silent: list[str] = Field(description="brokers that do not answer")
    full_disk: float | None = Field(description="the fullest disk, if RocketMQ deletes messages")
    behind_bytes: int = Field(description="the largest indexing lag of a broker")
    closing: str | None = Field(description="how a store directory was closed")
    archived_to_ms: int | None = Field(description="store time; all older messages are archived")
    groups: int
    needs_help: bool = Field(description="true if a broker or a group needs attention")
    lag: list[GroupCountValue] = Field(description="the groups with the most lag")
    dead_letters: list[GroupCountValue] = Field(description="the groups with the most dead letters")
    more_lag: int = Field(description="how many further groups have lag")
    more_dead_letters: int
    coverage: list[CoverageValue] = Field(description="what failed")


class OverviewValue(ConsoleValue):
    """The state of all sources, and alarms."""

    sources: list[SourceStateValue]
    alarms: list[SavedSearchValue] = Field(description="missed, or with an unknown result")
    alarms_error: SentenceText | None = Field(description="why alarms are unknown")


async def _state(sources: Sources, source: ConsoleSource) -> SourceStateValue:
    brokers, groups = await asyncio.gather(
        brokers_of(sources, [source.name]), groups_of(sources, [source.name])
    )
    # A store without groups is complete.
    answers: list[BrokersValue | GroupsValue] = [brokers]
    if source.kind == "cluster":
        answers.append(groups)
    disks = [each.disk_ratio for each in brokers.brokers if each.disk_ratio is not None]
    fullest = max(disks, default=0.0)
    lag, more_lag = _most(groups.groups, lambda each: (each.lag, each.is_left))
    dead, more_dead = _most(
        groups.groups, lambda each: (each.dead_letters, each.has_new_dead_letters)
    )
    silent = [each.name for each in brokers.brokers if each.error is not None]
    return SourceStateValue(
        source=source.name,
        kind=source.kind,
        complete=all(each.complete for each in answers),
        brokers=len(brokers.brokers) + brokers.left_out,
        silent=silent,
        full_disk=fullest if fullest >= DISK_DELETES else None,
        behind_bytes=max((each.behind_bytes or 0 for each in brokers.brokers), default=0),
        closing=next((each.closing for each in brokers.stores), None),
        archived_to_ms=min(
            (
                one.newest_ms
                for each in brokers.archives
                for one in each.sources
                if one.newest_ms is not None
            ),
            default=None,
        ),
        groups=len(groups.groups),
        needs_help=bool(silent)
        or any(each.is_left or each.has_new_dead_letters for each in groups.groups),
        lag=lag,
        dead_letters=dead,
        more_lag=more_lag,
        more_dead_letters=more_dead,
        coverage=_once(part for each in answers for part in each.coverage if part.is_failure),
    )


def _once(failures: Iterable[CoverageValue]) -> list[CoverageValue]:
    """Return the first failure of each broker: all requests to it fail alike."""
    by_name = {each.source.partition(" (")[0]: each for each in reversed(list(failures))}
    return list(reversed(by_name.values()))


def _most(
    groups: Sequence[GroupValue], count_of: Callable[[GroupValue], tuple[int | None, bool]]
) -> tuple[list[GroupCountValue], int]:
    """Return the groups with the highest counts, alarms first, and how many more there are."""
    counted = []
    for each in groups:
        count, is_alarm = count_of(each)
        if count:
            value = GroupCountValue(
                group=each.name, count=count, is_alarm=is_alarm, behind_ms=each.behind_ms
            )
            counted.append(value)
    some = sorted(counted, key=lambda each: (not each.is_alarm, -each.count, each.group))
    shown = some[:MAX_OVERVIEW_GROUPS]
    return shown, len(some) - len(shown)


api = api_router()
pages = page_router()


@api.get("/sources")
async def sources(here: Here) -> SourcesValue:
    """Return the sources of this console."""
    values = [SourceValue.of(each) for each in here.sources]
    return SourcesValue(sources=values, version=__version__)


@api.get("/overview")
async def overview(here: Here) -> OverviewValue:
    """Return the state of all sources: brokers, lag and dead letters of groups."""
    states = await asyncio.gather(*(_state(here.sources, each) for each in here.sources))
    alarms, error = await failed_alarms(here)
    return OverviewValue(sources=list(states), alarms=alarms, alarms_error=error)


@pages.get("/overview")
async def _overview_page(here: Here) -> Response:
    found = await overview(here)
    return here.page("overview.html", found=found, small_lag=SMALL_LAG_BYTES)


@api.get("/clients")
async def clients(here: Here, source: Sourced) -> ClientsValue:
    """Return the clients that are connected to clusters, with their groups."""
    return await clients_of(here.sources, source)


@pages.get("/clients")
async def _clients_page(here: Here, source: Sourced) -> Response:
    return here.page("clients.html", found=await clients_of(here.sources, source))


@api.get("/brokers")
async def brokers(here: Here, source: Sourced) -> BrokersValue:
    """Return brokers, with their rates and how far they are behind, and store directories."""
    return await brokers_of(here.sources, source)


@pages.get("/brokers")
async def _brokers_page(here: Here, source: Sourced) -> Response:
    found = await brokers_of(here.sources, source)
    return here.page(
        "brokers.html",
        found=found,
        clusters=by_cluster(found.brokers),
        disk_deletes=DISK_DELETES,
        disk_full=DISK_FULL,
    )


@pages.post("/brokers/forget")
async def _forget_broker(here: Here) -> Response:
    """Forget a broker that is gone for good: answers are complete without it until it returns."""
    form = await form_of(here.request)
    source, name = here.sources.named(form.get("source", "")), form.get("broker", "")
    viewer = current_viewer()
    if source.cluster is None or not (viewer.is_operator and viewer.sees_all(source.name)):
        raise ActRefused(Sentence("may_not_forget", source=source.name))
    here.searches.audit.record("forget-broker", source=source.name, broker=name)
    source.cluster.admin.forget_broker(name)
    return RedirectResponse("/brokers", SEE_OTHER)


def by_cluster(brokers: list[BrokerValue]) -> list[tuple[tuple[str, str], list[BrokerValue]]]:
    key = attrgetter("source", "cluster")
    return [(name, list(several)) for name, several in groupby(brokers, key)]

"""The state of sources: brokers, stores and archives, clients, and an overview of them.

Each broker is asked once, all of them side by side. A user who may see some topics of a source only
learns which brokers it has and whether they answer: what they count is of all topics, and so are
the files of a store or an archive. Who consumes what is shown as on the page of groups; producers
are of no topic in particular, so they are for users who may see all topics of a source.

The overview is asked for when the first page is there already, and again each minute: groups of a
large cluster take seconds.
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
from rocketlens.console.pages import (
    SEE_OTHER,
    Here,
    HereNow,
    Sourced,
    api_router,
    form_of,
    page_router,
)
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
from rocketlens.model.status import (
    ArchiveStatus,
    BrokersAnswer,
    StoreStatus,
)
from rocketlens.model.text.sentences import Sentence
from rocketlens.wire.codes import version_name

MAX_CONSOLE_BROKERS: Final = 1_000
"""Brokers, masters and slaves, that one page of the console lists; more are counted."""
MAX_OVERVIEW_GROUPS: Final = 3
"""Groups that the first page names for each source: alarms, then those with the most lag, or
dead letters."""
MAX_CONSOLE_CLIENTS: Final = 2_000
"""Clients that one page of the console lists; more are counted."""
_Status = BrokersAnswer | StoreStatus | ArchiveStatus


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


class IndexBuilderValue(ConsoleValue):
    """The progress of RocketLens's own index builder."""

    is_running: bool
    safe_offset: int
    behind_bytes: int
    silent_since_ms: int


class TapValue(ConsoleValue):
    """Of which broker's log a store is the copy, and how far it came."""

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
    builder: IndexBuilderValue | None = Field(description="None if no RocketLens broker wrote it")
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


async def brokers_of(sources: Sources, names: Sequence[str] = ()) -> BrokersValue:
    """Return the state of some sources, all without names; a failure is coverage.

    :raises BadInput: if there is no source of a name.
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
    """A client that is connected."""

    source: str
    client_id: str
    address: str = Field(description="as one of its brokers sees it")
    language: str | None
    version: str
    consumes: list[str] = Field(description="its consumer groups")
    produces: list[str] = Field(description="its producer groups")


class ClientsValue(ConsoleValue):
    """Clients, and whether these are all."""

    complete: bool
    clients: list[ClientValue]
    left_out: int = Field(description="clients beyond those that one answer has")
    without: list[str] = Field(description="stores and archives: no file names clients")
    hidden: list[str] = Field(description="sources of which the user may not see all topics")
    coverage: list[CoverageValue]


async def clients_of(sources: Sources, names: Sequence[str] = ()) -> ClientsValue:
    """Return the clients of some sources, all without names; a failure is coverage.

    :raises BadInput: if there is no source of a name.
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
    """Return the clients of one source, by their id."""
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
"""The used part of its disk from which on a broker of RocketMQ deletes messages."""
DISK_FULL: Final = 0.9
"""The used part of its disk from which on it takes no more."""
SMALL_LAG_BYTES: Final = 1 << 20
"""Bytes that queues and index files may be behind without a warning."""


class GroupCountValue(ConsoleValue):
    """A consumer group, and how many messages of something it has."""

    group: str
    count: int
    is_alarm: bool = Field(description="it has no member for these, or they are new dead letters")
    behind_ms: int | None = Field(description="how far it is behind; null if that is not known")


class SourceStateValue(ConsoleValue):
    """The state of one source."""

    source: str
    kind: str
    complete: bool
    brokers: int
    silent: list[str] = Field(description="brokers that do not answer")
    full_disk: float | None = Field(
        description="the used part of the fullest disk, if RocketMQ deletes messages there"
    )
    behind_bytes: int = Field(
        description="of the broker whose queues or index files are behind most"
    )
    closing: str | None = Field(description="how a store directory was closed")
    archived_to_ms: int | None = Field(
        description="of an archive, the store time up to which all of its sources are archived"
    )
    groups: int
    needs_help: bool = Field(description="whether a broker or a group needs someone now")
    lag: list[GroupCountValue] = Field(description="the groups that are behind most")
    dead_letters: list[GroupCountValue] = Field(description="the groups with the most of them")
    more_lag: int = Field(description="more groups that are behind")
    more_dead_letters: int
    coverage: list[CoverageValue] = Field(description="what failed")


class OverviewValue(ConsoleValue):
    """The state of all sources, and alarms."""

    sources: list[SourceStateValue]
    alarms: list[SavedSearchValue] = Field(
        description="those whose message did not come, or of which that is not known"
    )
    alarms_error: SentenceText | None = Field(description="why alarms are not known")


async def overview_of(here: HereNow) -> OverviewValue:
    """Return the state of each source; what failed is in its coverage."""
    sources = here.sources
    states = await asyncio.gather(*(_state(sources, each) for each in sources))
    alarms, error = await failed_alarms(here)
    return OverviewValue(sources=list(states), alarms=alarms, alarms_error=error)


async def _state(sources: Sources, source: ConsoleSource) -> SourceStateValue:
    brokers, groups = await asyncio.gather(
        brokers_of(sources, [source.name]), groups_of(sources, [source.name])
    )
    # That no file of a store names groups is not a failure of the store.
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
    """Return the first failure of each broker: every question to it fails alike."""
    by_name = {each.source.partition(" (")[0]: each for each in reversed(list(failures))}
    return list(reversed(by_name.values()))


def _most(
    groups: Sequence[GroupValue],
    count_of: Callable[[GroupValue], tuple[int | None, bool]],
) -> tuple[list[GroupCountValue], int]:
    """Return the groups that have most of something, alarms first, and how many more have some."""
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
    return await overview_of(here)


@pages.get("/overview")
async def _overview_page(here: Here) -> Response:
    found = await overview_of(here)
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
    """Forget a broker that is gone for good: answers do without it until it is seen again."""
    form = await form_of(here.request)
    source, name = here.sources.named(form.get("source", "")), form.get("broker", "")
    viewer = current_viewer()
    if source.cluster is None or not (viewer.is_operator and viewer.sees_all(source.name)):
        raise ActRefused(Sentence("may_not_forget", source=source.name))
    here.console.searches.audit.record("forget-broker", source=source.name, broker=name)
    source.cluster.admin.forget_broker(name)
    return RedirectResponse("/brokers", SEE_OTHER)


def by_cluster(brokers: list[BrokerValue]) -> list[tuple[tuple[str, str], list[BrokerValue]]]:
    """Return brokers by the name of their source and of their cluster."""
    key = attrgetter("source", "cluster")
    return [(name, list(several)) for name, several in groupby(brokers, key)]

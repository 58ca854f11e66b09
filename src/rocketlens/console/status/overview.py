"""The state of all sources in few lines, for the first page: brokers, lag, dead letters.

It is asked for when the first page is there already, and again each minute: groups of a large
cluster take seconds.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from rocketlens import limits
from rocketlens.console.api import ERRORS
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.pages import Pages
from rocketlens.console.search.parameters import Preferred
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.status.brokers import BrokerLookUps, BrokersValue
from rocketlens.console.values import ConsoleValue, CoverageValue, GroupsValue, GroupValue

_DISK_IS_FULL: Final = 0.85
"""The used part of its disk from which on a broker of RocketMQ deletes messages."""


class GroupCountValue(ConsoleValue):
    """A consumer group, and how many messages of something it has."""

    group: str
    count: int


class SourceStateValue(ConsoleValue):
    """The state of one source."""

    source: str
    kind: str
    complete: bool
    brokers: int
    silent: list[str]
    """Brokers that do not answer."""
    full_disk: float | None
    """Of the broker whose disk is fullest, the used part of it, where RocketMQ deletes messages."""
    behind_bytes: int
    """Of the broker whose queues or index files are behind most."""
    closing: str | None
    """How a store directory was closed."""
    archived_to_ms: int | None
    """Of an archive, the store time up to which all of its sources are archived."""
    groups: int
    lag: list[GroupCountValue]
    """The groups that are behind most, the first of all."""
    dead_letters: list[GroupCountValue]
    """The groups with the most dead letters, likewise."""
    more_lag: int
    """More groups that are behind."""
    more_dead_letters: int
    coverage: list[CoverageValue]
    """What failed."""


class OverviewValue(ConsoleValue):
    """The state of all sources."""

    sources: list[SourceStateValue]


class OverviewLookUps:
    """Asks all sources of a console for their state."""

    def __init__(self, look_up: LookUps, brokers: BrokerLookUps) -> None:
        self._look_up: Final = look_up
        self._brokers: Final = brokers

    async def overview(self) -> OverviewValue:
        """Return the state of each source; what failed is in its coverage."""
        sources = list(self._look_up.sources)
        return OverviewValue(sources=list(await asyncio.gather(*map(self._state, sources))))

    async def _state(self, source: ConsoleSource) -> SourceStateValue:
        brokers, groups = await asyncio.gather(
            self._brokers.brokers([source.name]), self._look_up.groups([source.name])
        )
        # That no file of a store names groups is not a failure of the store.
        answers: list[BrokersValue | GroupsValue] = [brokers]
        if source.kind == "cluster":
            answers.append(groups)
        return _state_of(source, brokers, groups, answers)


def _state_of(
    source: ConsoleSource,
    brokers: BrokersValue,
    groups: GroupsValue,
    answers: Sequence[BrokersValue | GroupsValue],
) -> SourceStateValue:
    disks = [each.disk_ratio for each in brokers.brokers if each.disk_ratio is not None]
    fullest = max(disks, default=0.0)
    lag, more_lag = _most(groups.groups, lambda each: each.lag)
    dead, more_dead = _most(groups.groups, lambda each: each.dead_letters)
    return SourceStateValue(
        source=source.name,
        kind=source.kind,
        complete=all(each.complete for each in answers),
        brokers=len(brokers.brokers) + brokers.left_out,
        silent=[each.name for each in brokers.brokers if each.error is not None],
        full_disk=fullest if fullest >= _DISK_IS_FULL else None,
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
        lag=lag,
        dead_letters=dead,
        more_lag=more_lag,
        more_dead_letters=more_dead,
        coverage=[part for each in answers for part in each.coverage if part.is_failure],
    )


def _most(
    groups: Sequence[GroupValue], count_of: Callable[[GroupValue], int | None]
) -> tuple[list[GroupCountValue], int]:
    """Return the groups that have most of something, and how many more have some."""
    counted = [GroupCountValue(group=each.name, count=count_of(each) or 0) for each in groups]
    some = sorted(
        (each for each in counted if each.count), key=lambda each: (-each.count, each.group)
    )
    shown = some[: limits.MAX_OVERVIEW_GROUPS]
    return shown, len(some) - len(shown)


def overview_routes(pages: Pages, look_up: OverviewLookUps) -> APIRouter:
    """Return the routes of the page and of the API."""
    routes = APIRouter(responses=ERRORS)

    @routes.get("/api/overview")
    async def overview() -> OverviewValue:
        """Return the state of all sources: brokers, lag and dead letters of groups."""
        return await look_up.overview()

    @routes.get("/overview", include_in_schema=False, response_class=HTMLResponse)
    async def overview_page(request: Request, preferences: Preferred) -> Response:
        overview = await look_up.overview()
        return pages.page("overview.html", request, preferences, found=overview)

    return routes

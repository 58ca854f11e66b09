"""The pages and the API of brokers and clients: what runs, and how far it is behind."""

from itertools import groupby
from operator import attrgetter
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from rocketlens.console.api import ERRORS, Name, Sourced
from rocketlens.console.pages import Pages
from rocketlens.console.search.parameters import Preferred
from rocketlens.console.sources.sources import Sources
from rocketlens.console.status.brokers import BrokerLookUps, BrokersValue, BrokerValue
from rocketlens.console.status.clients import ClientLookUps, ClientsValue
from rocketlens.console.status.pipeline_samples import PipelineSamples
from rocketlens.console.status.pipeline_view import (
    FOLLOWS_S,
    PipelineBroker,
    PipelineValue,
    pipeline_value,
)
from rocketlens.console.status.plots import Plot, plot_of

_PLOTS: Final = {
    "lag": {"dispatch": "dispatch_behind_bytes", "index": "index_behind_bytes"},
    "messages": {"put": "put_per_second"},
    "bytes": {
        "stored": "stored_per_second",
        "dispatched": "dispatched_per_second",
        "indexed": "indexed_per_second",
    },
}
"""Plots of a broker: the lines of each, and what of a point they show."""


def by_cluster(brokers: list[BrokerValue]) -> list[tuple[tuple[str, str], list[BrokerValue]]]:
    """Return brokers by the name of their source and of their cluster."""
    key = attrgetter("source", "cluster")
    return [(name, list(several)) for name, several in groupby(brokers, key)]


def plots_of(broker: PipelineBroker) -> list[tuple[str, Plot]]:
    """Return the plots of a broker that has points, each with its kind."""
    points = broker.points or []
    times = [each.time_ms for each in points]
    return [
        (
            kind,
            plot_of(
                times,
                [
                    (name, [getattr(each, value) for each in points])
                    for name, value in lines.items()
                ],
                max_step_ms=FOLLOWS_S * 1000,
                is_bytes=kind != "messages",
            ),
        )
        for kind, lines in _PLOTS.items()
    ]


def status_api_routes(
    brokers: BrokerLookUps, clients: ClientLookUps, sources: Sources, samples: PipelineSamples
) -> APIRouter:
    """Return the routes of the API."""
    routes = APIRouter(prefix="/api", responses=ERRORS)

    @routes.get("/brokers")
    async def all_brokers(source: Sourced = []) -> BrokersValue:  # noqa: B006
        """Return brokers, with their rates and how far they are behind, and store directories."""
        return await brokers.brokers(source)

    @routes.get("/clients")
    async def all_clients(source: Sourced = []) -> ClientsValue:  # noqa: B006
        """Return the clients that are connected to clusters, with their groups."""
        return await clients.clients(source)

    @routes.get("/pipeline")
    async def pipeline(source: Sourced = [], broker: Name = None) -> PipelineValue:  # noqa: B006
        """Return samples of brokers: rates, and how far queues and index were behind."""
        return pipeline_value(sources, samples, source, broker or "")

    return routes


def status_page_routes(
    pages: Pages, brokers: BrokerLookUps, clients: ClientLookUps, samples: PipelineSamples
) -> APIRouter:
    """Return the routes of pages."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @routes.get("/brokers")
    async def brokers_page(
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        answer = await brokers.brokers(source)
        return pages.page(
            "brokers.html", request, preferences, found=answer, clusters=by_cluster(answer.brokers)
        )

    @routes.get("/clients")
    async def clients_page(
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        answer = await clients.clients(source)
        return pages.page("clients.html", request, preferences, found=answer)

    @routes.get("/pipeline")
    async def pipeline_page(
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
        broker: Name = None,
    ) -> Response:
        answer = pipeline_value(pages.searches.sources, samples, source, broker or "")
        chosen = pages.searches.sources.chosen(source)
        return pages.page(
            "pipeline.html",
            request,
            preferences,
            found=answer,
            broker=broker,
            has_clusters=any(each.kind == "cluster" for each in chosen),
            plotted=[(each, plots_of(each)) for each in answer.brokers if each.points],
        )

    return routes

"""The pages and the API of brokers: what they are doing, and how far they are behind."""

from itertools import groupby
from operator import attrgetter

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from rocketlens.console.api import ERRORS, Sourced
from rocketlens.console.brokers import BrokerLookUps, BrokersValue, BrokerValue
from rocketlens.console.pages import Pages, Preferred


def by_cluster(brokers: list[BrokerValue]) -> list[tuple[tuple[str, str], list[BrokerValue]]]:
    """Return brokers by the name of their source and of their cluster."""
    key = attrgetter("source", "cluster")
    return [(name, list(several)) for name, several in groupby(brokers, key)]


def status_api_routes(brokers: BrokerLookUps) -> APIRouter:
    """Return the routes of the API."""
    routes = APIRouter(prefix="/api", responses=ERRORS)

    @routes.get("/brokers")
    async def all_brokers(source: Sourced = []) -> BrokersValue:  # noqa: B006
        """Return brokers, with their rates and how far they are behind, and store directories."""
        return await brokers.brokers(source)

    return routes


def status_page_routes(pages: Pages, brokers: BrokerLookUps) -> APIRouter:
    """Return the routes of pages."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @routes.get("/brokers")
    async def brokers_page(
        request: Request,
        preferences: Preferred,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        found = await brokers.brokers(source)
        return pages.page(
            "brokers.html", request, preferences, found=found, clusters=by_cluster(found.brokers)
        )

    return routes

"""The console's values for Prometheus."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from rocketlens.console.search.search import Searches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CountedRequests:
    """Counts the answers of an application, by route and status."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app: Final = app
        self.counts: Final[Counter[tuple[str, int]]] = Counter()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request, and count it."""

        async def counting(message: "Message") -> None:
            if message["type"] == "http.response.start":
                # By the route's pattern: an address is chosen by others.
                route = getattr(scope.get("route"), "path", "other")
                self.counts[route, message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)


def console_metrics(requests: CountedRequests, searches: Searches) -> "Iterable[Metric]":
    """Yield all values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    answered = CounterMetricFamily(
        "rocketlens_console_requests", "Answered requests.", labels=["route", "status"]
    )
    for (route, status), count in requests.counts.items():
        answered.add_metric([route, str(status)], count)
    yield answered
    ended = CounterMetricFamily(
        "rocketlens_console_searches", "Searches that ended, by how.", labels=["result"]
    )
    for result, count in searches.counts.items():
        ended.add_metric([result], count)
    yield ended
    yield CounterMetricFamily(
        "rocketlens_console_search_seconds", "Seconds that searches took.", value=searches.seconds
    )
    yield GaugeMetricFamily(
        "rocketlens_console_searches_running", "Searches that run now.", value=searches.running
    )
    yield GaugeMetricFamily(
        "rocketlens_console_sources", "Sources of the console.", value=len(searches.sources)
    )

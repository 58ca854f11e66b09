"""The pages and the API of lists: topics, groups, clients, brokers, the pipeline."""

import asyncio
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Path, Query
from fastapi.responses import RedirectResponse, Response

from rocketlens import __version__, limits
from rocketlens.console.act.permission import may_send
from rocketlens.console.failures import known_failure
from rocketlens.console.forms import form_of
from rocketlens.console.pages import (
    SEE_OTHER,
    Here,
    HereNow,
    Name,
    Sourced,
    api_router,
    page_router,
)
from rocketlens.console.preferences import choose, local_path
from rocketlens.console.search.columns import GROUP_COLUMNS, TOPIC_COLUMNS, ListView
from rocketlens.console.search.question import Question
from rocketlens.console.status.lists import groups_of, topics_of
from rocketlens.console.status.pipeline_view import (
    FOLLOWS_S,
    PipelineBroker,
    PipelineValue,
    pipeline_value,
)
from rocketlens.console.status.plots import Plot, plot_of
from rocketlens.console.status.state import (
    DISK_DELETES,
    DISK_FULL,
    SMALL_LAG_BYTES,
    BrokersValue,
    BrokerValue,
    ClientsValue,
    OverviewValue,
    brokers_of,
    clients_of,
    overview_of,
)
from rocketlens.console.status.topic_page import (
    TopicNamesValue,
    TopicPageValue,
    topic_in,
    topic_names_of,
)
from rocketlens.console.values import GroupsValue, SourcesValue, SourceValue, TopicsValue
from rocketlens.query.topic_choice import is_pattern

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
_TopicName = Annotated[str, Path(max_length=limits.MAX_TOPIC_CHARACTERS)]
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
    return await overview_of(here.sources)


@pages.get("/overview")
async def _overview_page(here: Here) -> Response:
    found = await overview_of(here.sources)
    return here.page("overview.html", found=found, small_lag=SMALL_LAG_BYTES)


@api.get("/topics")
async def topics(here: Here, source: Sourced, topic: Name = None) -> TopicsValue:
    """Return topics: their queues, messages and times."""
    return await topics_of(here.sources, source, None if topic is None else [topic])


@pages.get("/topics")
async def _topics_page(
    *,
    here: Here,
    source: Sourced,
    topic: Name = None,
    everything: Annotated[bool, Query(alias="all")] = False,
) -> Response:
    if topic and not is_pattern(topic):
        query = urlencode([("source", each) for each in source])
        path = f"/topics/{quote(topic, safe='')}"
        return RedirectResponse(f"{path}?{query}" if query else path, SEE_OTHER)
    return here.page(
        "topics.html",
        found=await topics_of(here.sources, source, [topic] if topic else None),
        everything=everything or bool(topic),
        view=ListView(here.request, TOPIC_COLUMNS),
    )


@api.get("/topics/{name}")
async def topic(here: Here, name: _TopicName, source: Sourced) -> TopicPageValue:
    """Return one topic: queues, consumer groups with their lag, and configuration."""
    return await topic_in(here.sources, name, source)


@api.get("/topic-names")
async def topic_names(here: Here, source: Sourced) -> TopicNamesValue:
    """Return the names of topics: quicker than /topics, and without what is in them."""
    return await topic_names_of(here.sources.chosen(source))


@pages.get("/topics/{name}")
async def _topic_page(here: Here, name: _TopicName, source: Sourced) -> Response:
    found = await topic_in(here.sources, name, source)
    newest = await asyncio.gather(*(_newest(here, name, each.source) for each in found.sources))
    clusters = [each for each in here.sources if each.kind == "cluster"]
    return here.page(
        "topic.html",
        found=found,
        shown=list(zip(found.sources, newest, strict=True)),
        live=ListView(here.request, {}),
        may_send=[each.name for each in clusters if may_send(here.sources, each, name)],
    )


async def _newest(here: HereNow, name: str, source: str) -> dict[str, Any]:
    """Return the newest messages of a topic in a source, or why they are not known."""
    question = Question.read(topic=name, sources=[source], max_num=limits.TOPIC_PAGE_ROWS)
    try:
        return {"answer": await here.console.searches.search(question), "error": None}
    except Exception as error:  # noqa: BLE001 - one that is not known is raised again
        return {"answer": None, "error": known_failure(error).answer.error}


@api.get("/groups")
async def groups(here: Here, source: Sourced, group: Name = None) -> GroupsValue:
    """Return consumer groups: their members, and how far they came."""
    return await groups_of(here.sources, source, group)


@pages.get("/groups")
async def _groups_page(here: Here, source: Sourced, group: Name = None) -> Response:
    found = await groups_of(here.sources, source, group)
    view = ListView(here.request, GROUP_COLUMNS)
    return here.page("groups.html", found=found, group=group, view=view)


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


@api.get("/pipeline")
async def pipeline(here: Here, source: Sourced, broker: Name = None) -> PipelineValue:
    """Return samples of brokers: rates, and how far queues and index were behind."""
    return pipeline_value(here.sources, here.console.samples, source, broker or "")


@pages.get("/pipeline")
async def _pipeline_page(here: Here, source: Sourced, broker: Name = None) -> Response:
    found = pipeline_value(here.sources, here.console.samples, source, broker or "")
    return here.page(
        "pipeline.html",
        found=found,
        broker=broker,
        has_clusters=any(each.kind == "cluster" for each in here.sources.chosen(source)),
        plotted=[(each, plots_of(each)) for each in found.brokers if each.points],
    )


@pages.post("/preferences")
async def _preferences(here: Here) -> Response:
    fields = await form_of(here.request)
    answer = RedirectResponse(local_path(fields.get("back", "/")), SEE_OTHER)
    choose(answer, fields, is_https=here.request.url.scheme == "https")
    return answer


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

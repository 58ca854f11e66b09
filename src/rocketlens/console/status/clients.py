"""The clients that are connected to clusters, for the page *Clients* and the API.

A client of several groups, or of producers and consumers, is one row. Who consumes what is shown as
on the page of groups; producers are of no topic in particular, so they are for users who may see
all topics of a source.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from rocketlens import limits
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.message.look_up import coverage_values, failed_answer
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.sources.sources import Sources
from rocketlens.console.values import ConsoleValue, CoverageValue
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.group import GroupClient, GroupsAnswer, ProducersAnswer
from rocketlens.wire.codes import version_name


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


class ClientLookUps:
    """Asks the sources of a console for their clients."""

    def __init__(self, sources: Sources) -> None:
        self._sources: Final = sources

    async def clients(self, names: Sequence[str] = ()) -> ClientsValue:
        """Return the clients of some sources, all without names; a failure is coverage.

        :raises BadInput: if there is no source of a name.
        """
        chosen = self._sources.chosen(names)
        clusters = [each for each in chosen if each.kind == "cluster"]
        answers = await asyncio.gather(*map(_asked, clusters))
        covered = [
            (source, answer)
            for source, several in zip(clusters, answers, strict=True)
            for answer in several
        ]
        clients = [
            each
            for source, several in zip(clusters, answers, strict=True)
            for each in _clients(source, several)
        ]
        viewer = current_viewer()
        return ClientsValue(
            complete=all(answer.complete for _, answer in covered),
            clients=clients[: limits.MAX_CONSOLE_CLIENTS],
            left_out=max(len(clients) - limits.MAX_CONSOLE_CLIENTS, 0),
            without=[each.name for each in chosen if each.kind != "cluster"],
            hidden=[each.name for each in clusters if not viewer.sees_all(each.name)],
            coverage=coverage_values(covered),
        )


async def _asked(source: ConsoleSource) -> list[GroupsAnswer | ProducersAnswer]:
    try:
        answers = await asyncio.gather(source.groups(), source.producers())
    except BadInput:
        raise
    except (RocketLensError, OSError) as error:
        return [GroupsAnswer((), failed_answer(source, str(error)).coverage)]
    return [each for each in answers if each is not None]


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

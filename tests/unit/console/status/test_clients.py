"""Clients, each once; what could not be asked is named, and producers are not for everyone."""

import asyncio

import pytest

from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.status.state import clients_of
from rocketlens.errors import BadInput
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import (
    FoundGroup,
    GroupClient,
    GroupsAnswer,
    ProducerGroup,
    ProducersAnswer,
)
from tests.support.console_client import answer, cluster_at, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store

SEARCHED = Coverage("a", SourceKind.BROKER, SourceState.SEARCHED)
ONE, TWO = (GroupClient(each, f"10.0.0.{each}:5", "JAVA", 477) for each in "12")


def group(name, *members):
    return FoundGroup(name, members or None, None, {}, (), 0)


class Listed(ConsoleSource):
    """A cluster with these groups and producers."""

    name, kind = "s", "cluster"

    async def groups(self, asked=None):
        assert asked is None
        return GroupsAnswer((group("g", ONE), group("h", ONE, TWO), group("i")), (SEARCHED,))

    async def producers(self):
        return ProducersAnswer((ProducerGroup("p", (TWO,)),), (SEARCHED,))


def look_up(*sources, names=()):
    return asyncio.run(clients_of(Sources(sources), names))


def test_a_client_of_several_groups_is_one_row_with_all_of_them():
    value = look_up(Listed())
    rows = [(each.client_id, each.consumes, each.produces) for each in value.clients]
    assert rows == [("1", ["g", "h"], []), ("2", ["h"], ["p"])]
    assert (value.complete, value.left_out, value.clients[0].language) == (True, 0, "JAVA")


def test_clients_beyond_what_a_page_lists_are_counted(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.state.MAX_CONSOLE_CLIENTS", 1)
    value = look_up(Listed())
    assert (len(value.clients), value.left_out) == (1, 1)


def test_an_unknown_source_is_an_error():
    with pytest.raises(BadInput, match="no source"):
        look_up(names=["other"])


def test_connected_producers_are_listed_and_a_store_has_no_clients(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    with testing.cluster() as running, running.producer(group="payers") as producer:
        producer.send(Message("order-paid", b"x"))
        contexts = cluster_at(running.name_server, "live"), store_at(made.path, "s")
        value = answer("/api/clients", *contexts).json()
        page = answer("/clients", *contexts).text
    (client,) = [each for each in value["clients"] if "payers" in each["produces"]]
    assert (client["source"], client["consumes"]) == ("live", [])
    assert (value["complete"], value["without"]) == (True, ["s"])
    assert client["client_id"] in page
    assert "stores and archives have no clients" in page


def test_a_cluster_that_does_not_answer_is_named_and_not_an_empty_list():
    gone = cluster_at("127.0.0.1:1", "gone")
    value = answer("/api/clients", gone).json()
    assert (value["complete"], value["clients"]) == (False, [])
    page = answer("/clients", gone).text
    assert "The clients could not be listed." in page
    assert "No client is connected." not in page


def test_producers_are_hidden_from_one_who_may_see_some_topics():
    paid = user("paid", Grant(Role.VIEWER, ("*",), ("order-*",)))
    with testing.cluster() as running, running.producer(group="payers") as producer:
        producer.send(Message("salary", b"x"))

        async def run():
            context = cluster_at(running.name_server, "live")
            async with console_client(context, users=users(paid)) as client:
                await log_in(client, "paid")
                return await client.get("/api/clients"), await client.get("/clients")

        value, page = asyncio.run(run())
    assert (value.json()["clients"], value.json()["hidden"]) == ([], ["live"])
    assert "payers" not in value.text + page.text
    assert "its producers are hidden" in page.text

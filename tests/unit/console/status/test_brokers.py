"""Brokers and stores as they are: what fails is named, and what is of hidden topics is hidden."""

import asyncio

import pytest
from msgspec.structs import replace

from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.status.state import brokers_of
from rocketlens.errors import BadInput
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import TapGap, TapNote
from tests.support.console_client import answer, cluster_at, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store

COUNTS = (
    *("put_per_second", "get_per_second", "put_today", "get_today", "oldest_ms", "disk_ratio"),
    *("log_bytes", "min_offset", "end_offset", "behind_bytes", "dispatch_behind_bytes"),
    *("index_behind_bytes", "index_builder"),
)


class Listed(ConsoleSource):
    """A source with the brokers that it is given."""

    name = "s"
    kind = "cluster"

    def __init__(self, brokers):
        self._brokers = brokers

    async def status(self):
        searched = Coverage("a", SourceKind.BROKER, SourceState.SEARCHED)
        return BrokersAnswer(tuple(self._brokers), (searched,))


def look_up(*brokers, names=()):
    return asyncio.run(brokers_of(Sources([Listed(brokers)]), names))


@pytest.fixture(scope="module")
def cluster():
    with testing.cluster() as running:
        with running.producer() as producer:
            for _ in range(3):
                producer.send(Message("order-paid", b"x"))
        yield running


def test_a_broker_says_what_it_stored_today_and_how_far_it_is_behind(cluster):
    value = answer("/api/brokers", cluster_at(cluster.name_server, "live")).json()
    (broker,) = value["brokers"]
    assert value["complete"] is True
    assert (broker["source"], broker["name"], broker["role"]) == ("live", "broker-a", "master")
    assert (broker["address"], broker["version"]) == (cluster.broker, "V5_5_0")
    assert (broker["put_today"], broker["get_today"]) == (3, 0)
    assert broker["dispatch_behind_bytes"] == 0
    assert broker["behind_bytes"] == broker["index_behind_bytes"] <= broker["log_bytes"]
    assert 0 < broker["disk_ratio"] < 1
    assert broker["oldest_ms"] >= broker["started_ms"]
    assert (broker["error"], broker["is_hidden"]) == (None, False)
    assert value["stores"] == value["hidden"] == []


def test_a_store_says_how_it_was_closed_and_what_its_index_lacks(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k")] * 3)
    value = answer("/api/brokers", store_at(made.path, "s")).json()
    (store,) = value["stores"]
    assert value["complete"] is True
    assert (store["source"], store["path"]) == ("s", str(made.path))
    assert (store["closing"], store["messages"], store["topics"]) == ("clean", 3, 1)
    assert 0 < store["index_uncovered_bytes"] < store["end_offset"] - store["min_offset"]
    assert store["builder"] is None
    assert value["brokers"] == []


def test_a_copy_says_of_which_broker_how_far_it_is_and_what_it_lacks(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k")] * 3)
    layout = StoreLayout(made.path)
    layout.own.mkdir(exist_ok=True)
    note = TapNote("broker-x", "10.0.0.1:10911", 0, 100, 5_000_100, 2_000, 9_000)
    note = replace(note, gaps=(TapGap(7, 9, 1),), replaced=("old<b>",), problem="it is <down>")
    layout.tap.write_bytes(note.encode())
    (store,) = answer("/api/brokers", store_at(made.path, "s")).json()["stores"]
    tap = store["tap"]
    assert (tap["broker_name"], tap["behind_bytes"], tap["behind_ms"]) == (
        "broker-x",
        5_000_000,
        7_000,
    )
    assert (tap["gaps"], tap["replaced"]) == ([[7, 9]], ["old<b>"])
    page = answer("/brokers", store_at(made.path, "s")).text
    assert "4.8 MiB and 7 s behind" in page
    assert "missing: physical offsets 7 to 9, which the broker deleted before" in page
    assert "old&lt;b&gt;" in page
    assert "it is &lt;down&gt;" in page


def test_a_cluster_that_does_not_answer_is_named_and_not_an_empty_list():
    value = answer("/api/brokers", cluster_at("127.0.0.1:1", "gone")).json()
    assert (value["complete"], value["brokers"]) == (False, [])
    assert [each["source"][:6] for each in value["coverage"] if each["is_failure"]] == ["gone: "]


def test_one_source_is_asked_alone_and_an_unknown_one_is_an_error(tmp_path, cluster):
    made = make_store(tmp_path / "store", [Sent()])
    contexts = store_at(made.path, "s"), cluster_at(cluster.name_server, "live")
    found = answer("/api/brokers?source=live", *contexts).json()
    assert (len(found["brokers"]), found["stores"]) == (1, [])
    assert answer("/api/brokers?source=other", *contexts).status_code == 400
    with pytest.raises(BadInput, match="no source"):
        look_up(names=["other"])


def test_brokers_beyond_what_a_page_lists_are_counted(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.state.MAX_CONSOLE_BROKERS", 2)
    value = look_up(*(BrokerStatus("c", f"b{n}", 0, "h:1") for n in range(5)))
    assert ([each.name for each in value.brokers], value.left_out) == (["b0", "b1"], 3)


def test_a_slave_is_one_and_a_broker_that_failed_has_its_reason():
    value = look_up(BrokerStatus("c", "b", 1, "h:1", error="refused"))
    (broker,) = value.brokers
    assert (broker.role, broker.broker_id, broker.error) == ("slave", 1, "refused")


def test_one_who_may_see_some_topics_learns_which_brokers_there_are_and_no_counts(
    tmp_path, cluster
):
    made = make_store(tmp_path / "store", [Sent(topic="salary", keys="k")])
    contexts = store_at(made.path, "s"), cluster_at(cluster.name_server, "live")
    paid = user("paid", Grant(Role.VIEWER, ("*",), ("order-*",)))
    none = user("none", Grant(Role.VIEWER, ("other",), ("*",)))

    async def run():
        async with console_client(*contexts, users=users(paid, none)) as client:
            found = []
            for name in ("paid", "none"):
                await log_in(client, name)
                found.append(await client.get("/api/brokers"))
            return found

    seen, nothing = asyncio.run(run())
    value = seen.json()
    (broker,) = value["brokers"]
    assert (broker["name"], broker["is_hidden"]) == ("broker-a", True)
    assert {broker[each] for each in COUNTS} == {None}
    assert (value["stores"], value["hidden"]) == ([], ["s", "live"])
    assert str(made.path) not in seen.text
    assert nothing.json()["brokers"] == nothing.json()["hidden"] == []

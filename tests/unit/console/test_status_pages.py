"""The pages of brokers: whole without a script, and what failed is named on them."""

import asyncio

import pytest

from rocketlens import testing
from rocketlens.console.sources import ClusterOfConsole
from rocketlens.console.status_pages import by_cluster
from rocketlens.console.viewer import Grant, Role
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from tests.support.console_client import answer, cluster_at, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store

GONE = cluster_at("127.0.0.1:1", "live")
MASTER = BrokerStatus(
    *("C1", "broker-a", 0, "10.0.0.1:10911"),
    version="V5_5_0",
    put_per_second=12.34,
    get_per_second=0.0,
    disk_ratio=0.91,
    min_offset=0,
    end_offset=2048,
    put_total=70,
    put_today=1234567,
    get_today=5,
    dispatch_behind_bytes=0,
    index_behind_bytes=1536,
    index_builder="spark, running",
)
SLAVE = BrokerStatus("C1", "broker-a", 1, "10.0.0.2:10911", error="connection refused")
OTHER = BrokerStatus("C2", "broker-b", 0, "10.0.0.3:10911", version="V4_9_7")
SEARCHED = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
FAILED = Coverage("broker-a", SourceKind.BROKER, SourceState.FAILED, None, "connection refused")


@pytest.fixture
def brokers(monkeypatch):
    """Have every cluster answer with the same brokers."""

    async def status(_):
        return BrokersAnswer((MASTER, SLAVE, OTHER), (SEARCHED, FAILED))

    monkeypatch.setattr(ClusterOfConsole, "status", status)


@pytest.mark.usefixtures("brokers")
def test_brokers_are_listed_by_cluster_with_rates_today_disk_and_lag():
    text = answer("/brokers", GONE).text
    for shown in ("C1", "C2", "12.3", "1,234,567", "91%", "2.0 KiB", "1.5 KiB behind", "5.5.0"):
        assert shown in text
    assert "index builder: spark, running" in text
    assert "slave 1" in text
    assert text.count("<tbody>") == 2


@pytest.mark.usefixtures("brokers")
def test_a_broker_that_does_not_answer_is_named_with_the_reason():
    text = answer("/brokers", GONE).text
    assert "does not answer: connection refused" in text
    assert "Incomplete" in text


@pytest.mark.usefixtures("brokers")
def test_what_a_broker_does_not_tell_is_a_question_mark_and_never_a_zero():
    row = answer("/brokers", GONE).text.rpartition("broker-b</a>")[2].partition("</tr>")[0]
    assert row.count(">?<") == 5
    assert "how far behind is not known" in row
    assert ">0<" not in row


def test_a_cluster_without_an_answer_is_not_shown_as_one_without_brokers():
    text = answer("/brokers", GONE).text
    assert "What brokers there are could not be learnt." in text
    assert "There are no brokers." not in text


def test_a_store_is_shown_with_how_it_was_closed(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    text = answer("/brokers", store_at(made.path, "s")).text
    assert "cleanly" in text
    assert "of log without index entries" in text


def test_one_who_may_see_some_topics_reads_that_counts_are_hidden():
    paid = user("paid", Grant(Role.VIEWER, ("*",), ("order-*",)))
    with testing.cluster() as running:

        async def run():
            context = cluster_at(running.name_server, "live")
            async with console_client(context, users=users(paid)) as client:
                await log_in(client, "paid")
                return (await client.get("/brokers")).text

        text = asyncio.run(run())
    assert "broker-a" in text
    assert "hidden from you" in text
    assert "index builder" not in text


@pytest.mark.usefixtures("brokers")
def test_the_page_is_there_in_chinese():
    text = answer("/brokers", GONE, cookies={"rl_language": "zh"}).text
    assert "没有应答" in text
    assert "does not answer" not in text


def test_brokers_of_one_name_in_two_sources_stay_apart():
    class One:
        source, cluster = "a", "c"

    class Two:
        source, cluster = "b", "c"

    assert [name for name, _ in by_cluster([One, One, Two])] == [("a", "c"), ("b", "c")]

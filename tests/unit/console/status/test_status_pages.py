"""The pages of brokers: whole without a script, and what failed is named on them."""

import asyncio
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from rocketlens import testing
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.console.status.pipeline import MAX_PIPELINE_PLOTS, MAX_PIPELINE_SAMPLES
from rocketlens.console.status.state import by_cluster
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import (
    FoundGroup,
    GroupClient,
    GroupsAnswer,
    ProducerGroup,
    ProducersAnswer,
)
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from tests.support.console_client import answer, cluster_at, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store
from tests.support.xss_payloads import PAYLOADS

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
SHOWN = ("/brokers", "/pipeline", "/clients", "/overview")
FAILED = Coverage("broker-a", SourceKind.BROKER, SourceState.FAILED, None, "connection refused")


@pytest.fixture
def brokers(monkeypatch):
    """Have every cluster answer with the same brokers."""

    async def status(_, on_answer=None):
        for each in (MASTER, SLAVE, OTHER) if on_answer else ():
            on_answer(each)
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
    assert "lag unknown" in row
    assert ">0<" not in row


def test_a_cluster_without_an_answer_is_not_shown_as_one_without_brokers():
    text = answer("/brokers", GONE).text
    assert "The brokers could not be listed." in text
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
    assert "counts of all topics are hidden" in text
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


def sampled(path, *contexts, rounds=1, **options):
    """Give the answer of a console to a path, after some samples."""

    async def run():
        async with console_client(*contexts, **options) as client:
            samples = client.console.samples
            for number in range(rounds):
                samples.clock = lambda second=1000 + 10 * number: second
                samples.now_ms = lambda second=1000 + 10 * number: second * 1000
                await samples.sample()
            return await client.get(path)

    return asyncio.run(run())


@pytest.mark.usefixtures("brokers")
def test_lag_and_rates_are_plotted_for_each_broker_and_said_in_words():
    text = sampled("/pipeline", GONE, rounds=3).text
    # Of master and slave and the other broker: lag, messages, bytes.
    assert text.count('<figure class="plot card">') == 9
    # The slave tells nothing, and the others neither count messages nor tell their lag.
    assert text.count('role="img"') == text.count("<desc ") == 3
    assert "Behind the log: broker-a" in text
    assert "index: now 1.5 KiB, at most 1.5 KiB." in text
    assert 'class="line index" d="M' in text
    assert "connection refused" in text


@pytest.mark.usefixtures("brokers")
def test_the_page_of_one_broker_has_all_values_as_a_table():
    text = sampled("/pipeline?broker=broker-b", GONE, rounds=4).text
    assert "Values of all 4 samples" in text
    assert text.count('<th scope="row">1970') == 4
    assert "broker-a" not in text


@pytest.mark.usefixtures("brokers")
def test_samples_are_in_the_api_and_one_broker_can_be_asked_for():
    value = sampled("/api/pipeline?broker=broker-a", GONE, rounds=2).json()
    master, slave = value["brokers"]
    assert value["complete"] is False
    assert value["every_s"] == 10
    assert (master["role"], len(master["points"])) == ("master", 2)
    assert master["newest"]["index_behind_bytes"] == 1536
    assert master["newest"] == master["points"][-1]
    assert slave["newest"]["error"] == "connection refused"


def test_before_the_first_sample_the_page_says_so():
    assert "There are no samples yet" in answer("/pipeline", GONE).text
    assert answer("/api/pipeline", GONE).json()["complete"] is False


def test_a_cluster_that_cannot_be_asked_is_named_and_not_shown_as_empty():
    text = sampled("/pipeline", GONE).text
    assert "could not be searched" in text
    assert "127.0.0.1:1" in text
    assert "Incomplete" in text


def test_a_broker_that_is_not_there_is_said_to_be_none():
    with testing.cluster() as running:
        text = sampled("/pipeline?broker=nope", cluster_at(running.name_server, "live")).text
    assert "There is no such broker." in text


def test_without_a_cluster_there_is_nothing_to_sample(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    text = answer("/pipeline", store_at(made.path, "s")).text
    assert "No source is a cluster" in text
    assert 'href="/brokers?source=s"' in text


@pytest.mark.usefixtures("brokers")
def test_the_part_that_is_fetched_again_says_where_and_how_often():
    text = sampled("/pipeline?broker=broker-b", GONE).text
    assert 'data-refresh="/pipeline?broker=broker-b" data-every="10000"' in text


@pytest.mark.usefixtures("brokers")
def test_the_plots_are_there_in_chinese_with_the_same_elements():
    english = sampled("/pipeline", GONE, rounds=2).text
    chinese = sampled("/pipeline", GONE, rounds=2, cookies={"rl_language": "zh"}).text
    assert "落后日志" in chinese
    assert "Behind" not in chinese
    assert english.count("<path") == chinese.count("<path")


@pytest.mark.usefixtures("brokers")
def test_plots_have_no_style_of_their_own_which_the_policy_refuses():
    text = sampled("/pipeline", GONE, rounds=2).text
    assert "style=" not in text
    assert "<style" not in text


def test_the_samples_of_an_hour_fit_a_page_of_300_kb(monkeypatch):
    grown = iter(range(10_000, 10**9, 54_321))

    async def status(_, on_answer=None):
        end = next(grown)
        for number in range(MAX_PIPELINE_PLOTS):
            counts = {"put_total": end // 100, "index_behind_bytes": end % 9_999}
            on_answer(replace(MASTER, name=f"broker-{number}", end_offset=end, **counts))

    monkeypatch.setattr(ClusterOfConsole, "status", status)
    for path in ("/pipeline", "/pipeline?broker=broker-3"):
        page = sampled(path, GONE, rounds=MAX_PIPELINE_SAMPLES)
        assert page.text.count("<path") > 10
        assert len(page.content) < 300_000


class Elements(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, tuple(sorted(name for name, _ in attributes))))


def test_hostile_names_add_no_element_or_attribute(monkeypatch):
    names = iter(["harmless", *PAYLOADS[::20]])

    async def status(source, on_answer=None):
        hostile = {"name": source.hostile, "cluster_name": source.hostile, "address": "h:1"}
        brokers = [replace(MASTER, **hostile), replace(SLAVE, **hostile, error=source.hostile)]
        for each in brokers if on_answer else ():
            on_answer(each)
        return BrokersAnswer(tuple(brokers), (SEARCHED,))

    async def producers(source):
        client = GroupClient(source.hostile, source.hostile, source.hostile, 477)
        return ProducersAnswer((ProducerGroup(source.hostile, (client,)),), (SEARCHED,))

    async def groups(source, _=None):
        client = GroupClient(source.hostile, source.hostile, None, 477)
        return GroupsAnswer((FoundGroup(source.hostile, (client,), None, {}, (), 0),), (SEARCHED,))

    for name, function in (("status", status), ("producers", producers), ("groups", groups)):
        monkeypatch.setattr(ClusterOfConsole, name, function)
    usual = None
    for hostile in names:
        monkeypatch.setattr(ClusterOfConsole, "hostile", hostile, raising=False)
        pages = [sampled(path, GONE, rounds=2) for path in SHOWN]
        assert {each.status_code for each in pages} == {200}, hostile
        found = [Elements(each.text).found for each in pages]
        usual = usual or found
        assert found == usual, hostile

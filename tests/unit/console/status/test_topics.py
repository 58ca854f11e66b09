"""The page of one topic: what its source knows, and no more than its viewer may see."""

import asyncio
import json
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from rocketlens import SyncPushConsumer, testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.masks import MaskRule, Masks
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupQueue, GroupsAnswer
from rocketlens.model.topic import FoundTopic, TopicQueue, TopicsAnswer, TopicSettings
from rocketlens.query.filters.pattern import TextPattern
from tests.support.console_client import (
    answer,
    answers,
    cluster_at,
    console_client,
    log_in,
    store_at,
)
from tests.support.console_users import user, users
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.xss_payloads import PAYLOADS

SEARCHED = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
GROUP = "billing"


@pytest.fixture(scope="module")
def running():
    """Give a cluster with a topic, of whose six messages a group consumed two."""
    with testing.cluster() as cluster, cluster.producer() as producer, cluster.admin() as admin:
        admin.create_topic("Orders", 2, order=True)
        admin.create_topic("Locked", 1, perm=2)
        for number in range(6):
            producer.send(Message("Orders", f"body-{number}", tags="A", keys=[f"K-{number}"]))
        producer.send(Message(f"%DLQ%{GROUP}", b"dead"))
        consumer = SyncPushConsumer(cluster.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders", "A || B")
        with consumer:
            for _, message in zip(range(2), consumer, strict=False):
                consumer.ack(message)
            consumer.commit()
            yield cluster


@pytest.fixture
def store(tmp_path):
    made = make_store(
        tmp_path / "store",
        [
            Sent(keys=f"ORDER-{n}", body=b'{"n":%d}' % n, store_timestamp_ms=NOW_MS + n)
            for n in range(20)
        ],
    )
    entry = {"perm": 4, "readQueueNums": 3, "writeQueueNums": 1, "attributes": {"a.b": "c"}}
    config = made.path / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"Orders": entry}}))
    offsets = {"offsetTable": {f"Orders@{GROUP}": {"0": 5}}}
    (config / "consumerOffset.json").write_text(json.dumps(offsets))
    return made


def live(running):
    return cluster_at(running.name_server, "live")


def test_the_page_of_a_topic_of_a_cluster_has_queues_groups_settings_messages_and_rate(running):
    page, api = answers(["/topics/Orders", "/api/topics/Orders"], live(running))
    assert page.status_code == 200, page.text
    for shown in ("body-5", "A || B", "In the last minute", "read, write", "Configuration"):
        assert shown in page.text
    (found,) = api.json()["sources"]
    assert (found["complete"], found["last_minute"]) == (True, 6)
    assert found["topic"]["messages"] == 6
    assert len(found["topic"]["queues"]) == 2
    (group,) = found["groups"]
    assert (group["name"], group["lag"], group["members"]) == (GROUP, 4, 1)
    assert group["expression"] == "A || B"
    (settings,) = found["settings"]
    assert settings["permissions"] == ["read", "write"]
    assert (settings["read_queues"], settings["is_ordered"]) == (2, True)


def test_the_page_of_a_topic_of_a_store_has_what_its_files_say(store):
    context = store_at(store.path, "s")
    page, api = answers(["/topics/Orders", "/api/topics/Orders"], context)
    for shown in ("ORDER-19", "a.b=c", GROUP):
        assert shown in page.text
    assert "In the last minute" not in page.text
    # The ten newest, and no more.
    assert "ORDER-9<" not in page.text
    (found,) = api.json()["sources"]
    assert found["settings"][0]["permissions"] == ["read"]
    assert (found["settings"][0]["broker"], found["last_minute"]) == (None, None)
    (group,) = found["groups"]
    assert (group["lag"], group["members"]) == (15, None)


def test_a_topic_that_cannot_be_read_says_so_by_its_permission(running):
    text = answer("/topics/Locked", live(running)).text
    assert '<td class="warn" data-label="Permissions">write</td>' in text


def test_the_page_of_dead_letters_names_their_group_and_sends_them_again(running):
    text = answer(f"/topics/{quote(f'%DLQ%{GROUP}')}", live(running)).text
    assert f'href="/groups?group={GROUP}"' in text
    assert f'href="/redrive?group={GROUP}&amp;source=live"' in text


def test_the_list_of_topics_leads_to_the_page_of_each(running):
    text = answer("/topics", live(running)).text
    assert 'href="/topics/Orders?source=live"' in text
    assert 'href="/search?topic=Orders&amp;source=live"' in text


def test_a_link_that_names_a_topic_leads_to_its_page(store):
    context = store_at(store.path, "s")
    one, other, several, none = answers(
        [f"/topics?topic={each}" for each in ("Orders", "%25DLQ%25g&source=s", "Ord*", "nope*")],
        context,
    )
    assert (one.status_code, one.headers["location"]) == (303, "/topics/Orders")
    assert other.headers["location"] == "/topics/%25DLQ%25g?source=s"
    assert "/topics/Orders?source=s" in several.text
    assert "/topics/Orders" not in none.text


def test_a_topic_of_two_sources_is_shown_for_each_of_them(running, store):
    sources = [live(running), store_at(store.path, "s")]
    text = answer("/topics/Orders", *sources).text
    assert "<h2>live</h2>" in text
    assert "<h2>s</h2>" in text
    one = answer("/topics/Orders?source=s", *sources).text
    assert "<h2>live</h2>" not in one


def test_lists_and_the_page_of_a_topic_count_the_messages_that_wait_for_it(tmp_path):
    named = {topic: (("REAL_TOPIC", topic), ("DELAY", "18")) for topic in ("Orders", "Paid")}
    made = make_store(
        tmp_path / "store",
        [
            Sent(),
            Sent("Paid"),
            *(Sent("SCHEDULE_TOPIC_XXXX", queue_id=17, named=named["Orders"]) for _ in range(3)),
            Sent("SCHEDULE_TOPIC_XXXX", queue_id=17, named=named["Paid"]),
        ],
    )
    context = store_at(made.path, "s")
    table, page, listed, sorted_ = answers(
        ["/topics", "/topics/Orders", "/api/topics", "/topics?sort=-waiting"], context
    )
    assert '<td class="figure" data-label="Waiting">3</td>' in table.text
    assert "Waiting</dt><dd>3</dd>" in page.text
    waiting = {each["name"]: each["waiting"] for each in listed.json()["topics"]}
    assert (waiting["Orders"], waiting["Paid"]) == (3, 1)
    assert sorted_.text.index(">Orders<") < sorted_.text.index(">Paid<")


def test_topics_that_a_broker_made_for_itself_are_marked(running):
    text = answer("/topics?all=true", live(running)).text
    assert text.count("of the broker</span>") >= 1
    own = text[: text.index("of the broker</span>")].rsplit("<tr", 1)[1]
    assert "DefaultCluster" in own or "broker" in own


@pytest.mark.parametrize("name", ["Ordrs", "Ord*", "Orders,Orders"])
def test_a_topic_that_is_not_there_is_said_to_be_none(store, name):
    page = answer(f"/topics/{name}", store_at(store.path, "s"))
    assert page.status_code == 404
    assert "There is no such topic" in page.text


def test_a_source_that_cannot_be_asked_is_named_and_never_looks_like_an_empty_topic(store):
    gone = cluster_at("127.0.0.1:1", "gone")
    page, api = answers(
        ["/topics/Orders", "/api/topics/Orders?source=gone"], gone, store_at(store.path, "s")
    )
    assert "127.0.0.1:1" in page.text
    assert "Incomplete" in page.text
    (found,) = api.json()["sources"]
    assert (found["complete"], found["topic"], found["groups"]) == (False, None, None)


def seen_by(viewer, contexts, path, masks=()):
    async def run():
        async with console_client(*contexts, users=users(viewer)) as client:
            await log_in(client, viewer.viewer.name)
            return await client.get(path)

    return asyncio.run(run())


def test_a_topic_that_may_not_be_seen_is_as_if_it_were_not_there(store):
    viewer = user("paid", Grant(Role.VIEWER, ("*",), ("order-*",)))
    contexts = [store_at(store.path, "s")]
    hidden, none = (seen_by(viewer, contexts, f"/topics/{name}") for name in ("Orders", "Nope"))
    assert hidden.status_code == none.status_code == 404
    assert hidden.text.replace("Orders", "Nope").count("Nope") == none.text.count("Nope")


def test_a_viewer_reads_and_an_operator_may_send(running):
    links = {}
    for role in (Role.VIEWER, Role.OPERATOR):
        viewer = user("li", Grant(role, ("*",), ("Orders",)))
        page = seen_by(viewer, [live(running)], "/topics/Orders")
        assert "body-5" in page.text
        links[role] = 'href="/send?topic=Orders&amp;cluster=live"' in page.text
    assert links == {Role.VIEWER: False, Role.OPERATOR: True}


def test_the_page_is_there_in_chinese_with_the_same_elements(running):
    english, chinese = (
        answer("/topics/Orders", live(running), cookies={"rl_language": each}).text
        for each in ("en", "zh")
    )
    assert "最近一分钟" in chinese
    assert "Configuration" not in chinese
    assert english.count("<td") == chinese.count("<td")


async def test_what_is_masked_is_masked_on_the_page_of_a_topic(running):
    rule = MaskRule(("*",), pattern=TextPattern("body-[0-9]+"))
    masked = LocalUsers([user("li", Grant(Role.VIEWER))], Masks([rule]))
    async with console_client(live(running), users=masked) as client:
        await log_in(client, "li")
        text = (await client.get("/topics/Orders")).text
    assert "body-5" not in text
    assert "***" in text


class Elements(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, tuple(sorted(name for name, _ in attributes))))


def test_hostile_names_and_attributes_add_no_element(monkeypatch):
    names = ["harmless", *PAYLOADS[::20]]
    found = []
    for hostile in names:

        async def topics(_, __=None, hostile=hostile):
            queue = TopicQueue(hostile, 0, 0, 9)
            return TopicsAnswer((FoundTopic("Orders", (queue,)),), (SEARCHED,))

        async def groups(_, __=None, hostile=hostile):
            queue = GroupQueue("Orders", hostile, 0, 9, 1, None)
            one = FoundGroup(hostile, (), None, {"Orders": hostile}, (queue,), 0)
            return GroupsAnswer((one,), (SEARCHED,))

        async def settings(_, __, hostile=hostile):
            return [TopicSettings(hostile, 6, 1, 1, attributes={hostile: hostile}, error=hostile)]

        async def lately(*_):
            return [3]

        for name, function in (
            ("topics", topics),
            ("groups", groups),
            ("topic_settings", settings),
            ("stored_since", lately),
        ):
            monkeypatch.setattr(ClusterOfConsole, name, function)
        page = answer("/topics/Orders", cluster_at("127.0.0.1:1", "live"))
        assert page.status_code == 200, hostile
        found.append(Elements(page.text).found)
    assert all(each == found[0] for each in found)

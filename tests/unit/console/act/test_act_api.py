"""The API acts on JSON alone, does a name once, and says what became of each message."""

import asyncio
import json

import pytest

from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.console.act.jobs import new_name
from rocketlens.terminal.contexts import Context
from rocketlens.testing import cluster
from tests.support.console_client import answer, cluster_at, console_client


@pytest.fixture(scope="module")
def rocketmq():
    """A broker."""
    with cluster() as running:
        yield running


@pytest.fixture
def message(rocketmq, request):
    """A message of a topic of the test's own, as the API names it."""
    topic = request.node.name.split("[")[0][:100]
    with rocketmq.producer() as producer:
        sent = producer.send(Message(topic, b"a body", keys="k"))
    queue = sent.message_queue.queue_id
    return {"source": "live", "topic": topic, "queue_id": queue, "queue_offset": sent.queue_offset}


def posted(rocketmq, *requests, read_only=False):
    async def ask():
        context = Context(namesrv=rocketmq.name_server, read_only=read_only)
        async with console_client(("live", context)) as client:
            return [await client.post(path, **options) for path, options in requests]

    return asyncio.run(ask())


def copies(rocketmq, topic):
    with rocketmq.admin() as admin:
        return [each for each in admin.find(None, topic) if MARKER in each.properties]


def test_a_plan_sends_nothing_and_its_name_sends_once(rocketmq, message):
    (planned,) = posted(rocketmq, ("/api/resend/plan", {"json": {"message": message}}))
    plan = planned.json()
    assert (plan["count"], plan["messages"][0]["target"]) == (1, message["topic"])
    assert plan["properties"]["KEYS"] == "k"
    assert copies(rocketmq, message["topic"]) == []
    asked = {"message": message, "name": plan["name"], "reason": "lost"}
    answers = posted(rocketmq, *[("/api/resend", {"json": asked})] * 2)
    assert [each.json()["state"] for each in answers] == ["done", "done"]
    (copy,) = copies(rocketmq, message["topic"])
    (row,) = answers[0].json()["messages"]
    assert row["new_offset_msg_id"] == copy.offset_msg_id
    listed = answer("/api/jobs", cluster_at(rocketmq.name_server)).json()["jobs"]
    assert [(each["name"], each["state"]) for each in listed] == [(plan["name"], "done")]
    job = answer(f"/api/jobs/{plan['name']}?state=failed", cluster_at(rocketmq.name_server)).json()
    assert (job["shown"], job["messages"]) == (0, [])


@pytest.mark.parametrize(
    ("changes", "headers", "status"),
    [
        ({"reason": " "}, {}, 400),
        ({"name": "../x"}, {}, 400),
        ({"unknown": 1}, {}, 400),
        ({}, {"origin": "http://evil.example"}, 403),
        ({}, {"sec-fetch-site": "cross-site"}, 403),
        ({}, {"content-type": "text/plain"}, 415),
        ({}, {"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_what_is_refused_does_nothing(rocketmq, message, changes, headers, status):
    asked = {"message": message, "name": new_name(), "reason": "x", **changes}
    (found,) = posted(rocketmq, ("/api/resend", {"json": asked, "headers": headers}))
    assert found.status_code == status
    assert found.json()["error"]["message"]
    assert copies(rocketmq, message["topic"]) == []


def test_a_read_only_cluster_is_not_acted_on(rocketmq, message):
    asked = {"message": message, "name": new_name(), "reason": "x"}
    (found,) = posted(rocketmq, ("/api/resend", {"json": asked}), read_only=True)
    assert (found.status_code, found.json()["error"]["code"]) == (403, "not_allowed")


def test_a_job_that_is_not_there_is_not_found(rocketmq):
    for path in (f"/api/jobs/{new_name()}", "/api/jobs/x"):
        assert answer(path, cluster_at(rocketmq.name_server)).status_code == 404


def test_a_new_message_is_sent_by_the_api(rocketmq, message):
    name = answer("/api/name", cluster_at(rocketmq.name_server)).json()["name"]
    asked = {"cluster": "live", "topic": message["topic"], "name": name, "reason": "a test"}
    requests = [{**asked, "body": "text"}, {**asked, "body": "again"}]
    requests += [{**asked, "name": new_name(), "body": "a", "body_base64": "YQ=="}]
    requests += [{**asked, "name": new_name(), "body": "\ud800"}]
    headers = {"content-type": "application/json"}
    bodies = [{"content": json.dumps(each), "headers": headers} for each in requests]
    found = posted(rocketmq, *[("/api/send", each) for each in bodies])
    assert [each.status_code for each in found] == [200, 200, 400, 400]
    assert found[0].json()["state"] == "done"
    assert found[0].json() == found[1].json()
    kept = answer(f"/api/acts/{name}", cluster_at(rocketmq.name_server))
    assert kept.json() == found[0].json()
    with rocketmq.admin() as admin:
        bodies = sorted(each.body for each in admin.find(None, message["topic"]))
    assert bodies == [b"a body", b"text"]


def test_a_client_that_is_not_there_consumes_nothing(rocketmq, message):
    asked = {"message": message, "group": "g", "client_id": "c", "name": new_name(), "reason": "x"}
    (found,) = posted(rocketmq, ("/api/consume", {"json": asked}))
    assert found.status_code == 200
    assert found.json()["state"] == "failed"
    assert found.json()["why"]

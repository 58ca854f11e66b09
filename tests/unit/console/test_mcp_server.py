"""``rocketlens mcp``: tools are routes of the API, with its masks, roles, coverage and bounds."""

import asyncio
import io
import json
import os
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from rocketlens.client.send.message import Message
from rocketlens.console import mcp_server
from rocketlens.console.app import Console
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import NOBODY, Grant, Role, seen_by
from rocketlens.console.mcp_server import server_of
from rocketlens.console.sources.masks import FieldPath, MaskRule, Masks
from rocketlens.decode.rules import BodyRules
from rocketlens.testing import cluster
from tests.support.console_client import cluster_at, console_client
from tests.support.console_users import PASSWORD, user

CARD = "4111999988887777"
READING = {"find", "message", "story", "topics", "groups", "status", "dlq_list"}
ACTING = {"resend_plan", "resend", "job"}
AT = {"source": "c", "topic": "order-1", "broker": "broker-a", "queue_id": 0, "queue_offset": 0}
PATH = "/".join(str(each) for each in AT.values())
RULES = [MaskRule(("order-*",), (), (FieldPath("$.card"),))]


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    """A cluster with a message, one that others may not see, and a dead letter."""
    with (
        pytest.MonkeyPatch.context() as patch,
        cluster(tmp_path_factory.mktemp("rocketmq")) as running,
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with running.admin() as admin:
            for name in ("order-1", "secret", "%DLQ%billing"):
                admin.create_topic(name, 1)
        with running.producer() as producer:
            body = json.dumps({"card": CARD}).encode()
            for topic in ("order-1", "secret", "%DLQ%billing"):
                producer.send(Message(topic, body, keys="K"))
        yield running


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@asynccontextmanager
async def mcp_client(rocketmq, *, may_act=False, users=None, name=None, audit=None):
    """Give the package's own client of the server over a cluster, and its console."""
    async with console_client(cluster_at(rocketmq.name_server, "c"), users=users) as rest:
        with seen_by(NOBODY):
            viewer = None if users is None else users.viewer_named(name)
            console = Console(
                rest.console.sources, rules=BodyRules(), users=users, viewer=viewer, audit=audit
            )
            async with Client(server_of(console, may_act=may_act)) as client:
                yield client, rest
        await console.close()


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return result.is_error, content.text


def without_times(text):
    """Return an answer without how long it took, and what brokers count meanwhile."""
    varying = {"elapsed_ms", "indexed_to_ms", "behind_ms", "behind_bytes", "last_seen_ms"}

    def clean(value):
        if isinstance(value, dict):
            return {name: clean(each) for name, each in value.items() if name not in varying}
        return [clean(each) for each in value] if isinstance(value, list) else value

    return clean(json.loads(text))


SAME = [
    ("find", {"q": "K"}, "/api/search?q=K&max=20"),
    ("find", {"topic": "order-*", "max": 1}, "/api/search?topic=order-*&max=1"),
    ("find", {"q": "K", "source": ["c"], "all": True}, "/api/search?q=K&source=c&all=true&max=20"),
    ("message", AT, f"/api/message/{PATH}"),
    ("story", {"q": "K", "topic": "order-1"}, "/api/story?q=K&topic=order-1&max=20"),
    ("topics", {}, "/api/topics"),
    ("topics", {"topic": "order-1"}, "/api/topics?topic=order-1"),
    ("groups", {}, "/api/groups"),
    ("status", {}, "/api/overview"),
    ("dlq_list", {"group": "billing"}, "/api/search?topic=%25DLQ%25billing&max=20"),
]


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.ADMIN])
def test_answers_are_those_of_the_api_for_the_same_user(rocketmq, role):
    users = None
    if role is not None:
        grant = Grant(role, topics=("order-*",))
        users = LocalUsers([user("li", grant)], masks=Masks(RULES))

    async def scenario():
        seen = []
        async with mcp_client(rocketmq, users=users, name="li") as (client, rest):
            rest.auth = None if users is None else httpx.BasicAuth("li", PASSWORD)
            for tool, arguments, path in SAME:
                is_error, text = await call(client, tool, **arguments)
                answer = await rest.get(path)
                if is_error:
                    assert text == answer.json()["error"]["message"]
                else:
                    assert without_times(text) == without_times(answer.text), tool
                seen.append(text)
        return seen

    seen = asyncio.run(scenario())
    assert any("secret" in each for each in seen) == (role is None)
    assert any(CARD in each for each in seen) == (role is not Role.VIEWER)
    assert '"complete":true' in seen[0]


def test_only_reading_tools_are_there_unless_acting_is_allowed(rocketmq):
    async def tools(*, may_act):
        async with mcp_client(rocketmq, may_act=may_act) as (client, _):
            listed = (await client.list_tools()).tools
            is_error, text = await call(client, "resend", message=AT, reason="r", name="n")
            return {each.name: each for each in listed}, is_error, text

    reading, is_error, text = asyncio.run(tools(may_act=False))
    assert reading.keys() == READING
    assert (is_error, text.startswith("unknown tool 'resend': expected find, ")) == (True, True)
    acting, _, _ = asyncio.run(tools(may_act=True))
    assert acting.keys() == READING | ACTING
    assert {name for name, each in acting.items() if not each.annotations.read_only_hint} == {
        "resend"
    }
    assert acting["find"].input_schema["properties"]["max"]["maximum"] == 500
    assert acting["resend"].input_schema["properties"]["message"]["type"] == "object"
    assert "$ref" not in json.dumps([each.input_schema for each in acting.values()])


def test_a_message_is_sent_again_with_a_reason_once_and_by_those_who_may(rocketmq):
    def users(role):
        return LocalUsers([user("li", Grant(role))])

    async def scenario(role, audit=None):
        async with mcp_client(
            rocketmq, may_act=True, users=users(role), name="li", audit=audit
        ) as (client, _):
            is_error, plan = await call(client, "resend_plan", message=AT)
            made = {"name": "20261128T134858-52bfd92f8ac7"} if is_error else json.loads(plan)
            order = {each: made[each] for each in ("name", "digest") if each in made}
            results = [
                await call(client, "resend", message=AT, reason=reason, **order)
                for reason in ("", "lost at noon", "lost at noon")
            ]
            return results, await call(client, "job", name=order["name"])

    log = io.StringIO()
    results, (_, told) = asyncio.run(scenario(Role.OPERATOR, AuditLog(log)))
    assert [is_error for is_error, _ in results] == [True, False, False]
    assert results[0][1] == "a reason is needed: it is kept with what was done"
    job = json.loads(told)
    assert (job["counts"]["sent"], job["reason"], job["user"]) == (1, "lost at noon", "li")
    assert "lost at noon" in log.getvalue()
    results, _ = asyncio.run(scenario(Role.VIEWER))
    assert all(is_error for is_error, _ in results)


REFUSED = [
    ("find", {"q": "K", "max": 501}, "max: at most 500 is expected"),
    ("find", {}, "nothing to find"),
    ("find", {"topc": "order-1"}, "find has no argument 'topc'; did you mean topic?"),
    ("find", {"q": "K", "source": "d"}, "there is no source 'd'; there are c"),
    ("find", {"topic": "ordr-1"}, "did you mean order-1?"),
    ("find", {"q": "K", "since": "soon"}, "is not a time"),
    ("message", {"topic": "order-1"}, "message needs source, broker, queue_id, queue_offset"),
    ("message", {**AT, "queue_id": -1}, "queue_id"),
    ("dlq_list", {}, "dlq_list needs group"),
    ("fnd", {}, "unknown tool 'fnd': expected find, message, "),
    ("topics", {}, "bytes, and at most 1000 are returned: name a topic"),
]


async def test_what_cannot_be_answered_is_refused_with_the_bound(rocketmq, monkeypatch):
    monkeypatch.setattr(mcp_server, "MAX_MCP_ANSWER_BYTES", 1_000)
    async with mcp_client(rocketmq) as (client, _):
        for tool, arguments, said in REFUSED:
            is_error, text = await call(client, tool, **arguments)
            assert is_error, (tool, arguments)
            assert said in text


def test_the_command_serves_on_its_standard_streams_until_they_end(rocketmq, tmp_path):
    log = tmp_path / "audit.log"
    words = ("mcp", "-n", rocketmq.name_server, "--audit-log", str(log))
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "rocketlens.main", *words], env={**os.environ}
    )

    async def scenario():
        async with Client(stdio_client(program)) as client:
            assert {each.name for each in (await client.list_tools()).tools} == READING
            return await call(client, "find", q="K", topic="order-1")

    is_error, text = asyncio.run(scenario())
    assert not is_error
    assert {each["keys"][0] for each in json.loads(text)["messages"]} == {"K"}
    assert '"search"' in log.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--user", "li"), "--users FILE and --user NAME go together: give both or none"),
        (("--store", "/nonexistent"), "/nonexistent"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, words, said):
    done = run("mcp", *words, *(() if "--store" in words else ("-n", "127.0.0.1:1")))
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_the_extra_is_named_if_the_package_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = run("mcp", "-n", "127.0.0.1:1")
    assert (done.code, done.out) == (2, "")
    assert "`rocketlens mcp` needs mcp: pip install " in done.err
    assert "[mcp]" in done.err


def test_a_user_that_the_file_does_not_have_is_refused():
    with pytest.raises(ValueError, match="the users file has no such user"):
        LocalUsers([user("li", Grant(Role.VIEWER))]).viewer_named("wu")

"""What is masked for a user is on no page and in no answer, whichever copy of a message it is of.

Every route of the table of `test_visible` is asked for messages of a namespace and for all copies
of them: retries, dead letters, delayed ones, timers, halves of transactions; from a live
cluster and from a store directory.
"""

import asyncio
import base64
import io
import json
from urllib.parse import quote, urlencode

import pytest

from rocketlens.client.send.message import Message
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.masks import FieldPath, MaskRule, Masks
from rocketlens.terminal.contexts import Context
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.console_client import console_client, log_in
from tests.support.console_users import user
from tests.support.effort import sized
from tests.support.made_stores import Sent, make_store
from tests.unit.console.sources import test_visible as routes

CARD, PHONE = "4111999988887777", "+86-139-0000"
BODY = json.dumps({"card": CARD, "shown": 1}).encode()
DELAY_LEVEL = 18
"""Of two hours: it waits until the test has ended."""
ORDER = "shop%order-1"
COPIES = [
    ("%RETRY%shop%g", (("RETRY_TOPIC", ORDER),)),
    ("%DLQ%shop%g", (("RETRY_TOPIC", ORDER), ("DLQ_ORIGIN_TOPIC", ORDER))),
    ("SCHEDULE_TOPIC_XXXX", (("REAL_TOPIC", ORDER), ("REAL_QID", "0"), ("DELAY", "3"))),
    ("rmq_sys_wheel_timer", (("REAL_TOPIC", ORDER), ("TIMER_OUT_MS", "1795509906000"))),
    ("RMQ_SYS_TRANS_HALF_TOPIC", (("REAL_TOPIC", ORDER), ("REAL_QID", "0"))),
]
RULES = [MaskRule(("order-*",), ("PHONE",), (FieldPath("$.card"),))]
OF_ALL = "all=true&exhaustive=true&columns=topic,body,prop.PHONE,body.$.card"
SEARCHES = (f"q=k&{OF_ALL}", f"topic=*&{OF_ALL}", "topic=order-1", "topic=shop%25order-1")


def forms_of(text):
    """Give the ways in which a value can stand in an answer."""
    content = text.encode()
    whole = [base64.b64encode(b"x" * each + content).decode()[4:-4] for each in range(3)]
    return text, content.hex(), content.hex(" "), *whole


SECRETS = [each for text in (CARD, PHONE) for each in forms_of(text)]


def leaks(found):
    text = found.text.replace("&#34;", '"').replace("\n", "")
    return any(each in text for each in SECRETS)


@pytest.fixture(scope="module")
def live():
    """Give a cluster that has a message of a namespace and copies of it, as a broker keeps them."""
    with cluster() as running:
        with running.admin() as admin:
            for name in ("shop%order-1", "shop%other", "%RETRY%shop%g", "%DLQ%shop%g"):
                admin.create_topic(name, 1)
        with running.producer() as producer:

            def send(topic, *named, **more):
                message = Message(topic, BODY, keys="k", **more)
                for name, value in (("PHONE", PHONE), *named):
                    message.put(name, value)
                producer.send(message)

            send(ORDER)
            for topic, named in COPIES[:2]:
                send(topic, *named)
            send(ORDER, delay_level=DELAY_LEVEL)
            producer.send(Message("shop%other", b"plain", keys="k"))
        yield Context(namesrv=running.name_server, namespace="shop")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    named = ("PHONE", PHONE)
    sent = [Sent(topic=ORDER, keys="k", body=BODY, named=(named,))]
    sent += [Sent(topic=t, keys="k", body=BODY, named=(named, *more)) for t, more in COPIES]
    sent.append(Sent(topic="other", keys="k", body=b"plain"))
    return make_store(tmp_path_factory.mktemp("masked") / "store", sent).path


@pytest.fixture(scope="module")
def lake(stored, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lake") / "lake"
    archive_store(directory, stored)
    return directory


def turn(several, number):
    """Return all for the first of many, and one by turns for each of the others."""
    return sized([several[number % len(several)]] if number else several, several)


def paths_of(source):
    """Give every route of the table, and the paths that it is asked by."""
    topics = ("order-1", ORDER, *(topic for topic, _ in COPIES))
    queues = {"SCHEDULE_TOPIC_XXXX": DELAY_LEVEL - 1} if source == "live" else {}
    messages = [f"{source}/{quote(each, safe='')}/-/{queues.get(each, 0)}/0" for each in topics]
    forms = [f"?form={each}" for each in ("decoded", "text", "json", "hex", "base64")]
    of_messages = {"/api/message": forms, "/api/story": ["", "?group=g"]}
    of_messages["/m"] = [*forms, *(f"?tab={each}" for each in ("body", "properties", "ids"))]
    for number, route in enumerate(routes.ASKED):
        searches = SEARCHES if route in routes.SEARCHING else turn(SEARCHES, number + 1)
        asked = [*searches, f"source={source}", f"group=g&source={source}&cluster=live"]
        asked += [f"{each}&as=csv" for each in SEARCHES] if "export" in route else []
        yield from ((route, f"{route}?{each}") for each in asked)
    for prefix, several in of_messages.items():
        yield from (
            (f"{prefix}{routes.A_MESSAGE}", f"{prefix}/{at}{each}")
            for number, at in enumerate(messages)
            for each in turn(several, number)
        )
    for prefix in routes.BODIES:
        yield from ((f"{prefix}{routes.A_MESSAGE}/body", f"{prefix}/{at}/body") for at in messages)
    for act in routes.ACTS_ON_A_MESSAGE:
        options = ("", "?cluster=live", "?group=g&cluster=live")
        yield from (
            (f"/m{routes.A_MESSAGE}/{act}", f"/m/{at}/{act}{each}")
            for number, at in enumerate(messages)
            for each in turn(options, number)
        )
    yield from ((each, each.replace("{name}", routes.JOB)) for each in routes.OF_A_JOB)
    for route in routes.OF_A_TOPIC:
        yield from ((route, route.replace("{name}", quote(each, safe=""))) for each in topics)


@pytest.mark.parametrize(
    ("source", "role"),
    [
        *(("live", role) for role in (Role.VIEWER, Role.OPERATOR)),
        *(("s", Role.VIEWER), ("lake", Role.OPERATOR)),
    ],
)
def test_a_masked_value_is_in_no_answer_of_any_route(live, stored, lake, source, role):
    contexts = [
        ("live", live),
        ("s", Context(store=str(stored), namespace="shop")),
        ("lake", Context(archive=str(lake))),
    ]
    known = LocalUsers([user("li", Grant(role))], Masks(RULES))
    several = list(paths_of(source))
    assert {route for route, _ in several} == {route for route, _ in routes.paths()}

    async def run():
        async with console_client(*contexts, users=known) as client:
            await log_in(client, "li")
            return [await client.get(path) for _, path in several]

    answered = asyncio.run(run())
    assert [path for (_, path), each in zip(several, answered, strict=True) if leaks(each)] == []
    masked = {
        route for (route, _), each in zip(several, answered, strict=True) if "***" in each.text
    }
    shown = {"/search", "/search/rows", "/search/more", "/api/search", "/api/search/stream"}
    shown |= {
        "/api/export",
        f"/m{routes.A_MESSAGE}",
        f"/api/message{routes.A_MESSAGE}",
        "/topics/{name}",
    }
    shown |= {f"{each}{routes.A_MESSAGE}/body" for each in routes.BODIES}
    if role is Role.OPERATOR and source == "live":
        shown.add(f"/m{routes.A_MESSAGE}/resend")
    assert shown <= masked


async def test_one_who_may_see_it_finds_it_by_the_same_routes(live, stored):
    contexts = [("live", live), ("s", Context(store=str(stored), namespace="shop"))]
    known = LocalUsers([user("root", Grant(Role.ADMIN))], Masks(RULES))
    async with console_client(*contexts, users=known) as client:
        await log_in(client, "root")
        found = {}
        for source in ("live", "s"):
            for route, path in paths_of(source):
                found[route] = found.get(route, False) or leaks(await client.get(path))
        shown = {route for route, is_shown in found.items() if is_shown}
    for each in ("", "/body"):
        assert {f"/m{routes.A_MESSAGE}{each}", f"/api/message{routes.A_MESSAGE}{each}"} <= shown
    assert {"/search", "/api/search", "/api/export", "/topics/{name}"} <= shown
    assert f"/m{routes.A_MESSAGE}/resend" in shown


ORIGIN = {"source": "origin", "queue_id": 0, "queue_offset": 0}
MIX = (Grant(Role.VIEWER, ("origin", "old")), Grant(Role.ADMIN, ("shop",)))


def plans_of(topic, source):
    """Give requests for plans that send a message to ``shop``: method, path, content."""
    named = {**ORIGIN, "source": source, "topic": topic, "broker": "-"}
    asked = {"group": "", "cluster": "shop"}
    query = urlencode({"topic": topic, "source": source, **asked})
    at = f"/m/{source}/{quote(topic, safe='')}/-/0/0"
    for group in ("", "g"):
        to_group = {"group": group, "cluster": "shop"}
        yield "POST", "/api/resend/plan", {"json": {"message": named, **to_group}}
        yield "POST", "/api/resend/chosen/plan", {"json": {"messages": [named], **to_group}}
        yield "POST", f"/api/resend/search/plan?{query}", {"json": to_group}
        yield "GET", f"{at}/resend?{urlencode(to_group)}", {}
        yield "GET", f"/resend?{query}&group={group}", {}
        yield "POST", "/resend/chosen", {"data": {"chosen": [at], **to_group}}
    yield "GET", f"{at}/edit?cluster=shop", {}


def redrives(source):
    yield "POST", "/api/redrive/plan", {"json": {"group": "g", "cluster": source}}
    for original in ("true", "false"):
        query = urlencode({"group": "g", "source": source, "original": original})
        yield "GET", f"/redrive?{query}", {}
        data = {"group": "g", "source": source, "chosen": ["0" * 32], "original": original}
        yield "POST", "/redrive/chosen", {"data": data}


@pytest.mark.parametrize("source", ["old", "origin"])
def test_no_plan_sends_what_is_masked_to_a_source_where_its_sender_may_see_it(live, stored, source):
    known = LocalUsers([user("mix", *MIX)], Masks(RULES))
    log = io.StringIO()

    async def run(shop):
        contexts = [("origin", live), ("old", Context(store=str(stored), namespace="shop")), shop]
        async with console_client(*contexts, users=known, audit=AuditLog(log)) as client:
            await log_in(client, "mix")

            async def answers(requests):
                return [
                    (path, await client.request(method, path, **content))
                    for method, path, content in requests
                ]

            topics = [("order-1" if source == "origin" else ORDER), *(t for t, _ in COPIES[:2])]
            masked = [each for topic in topics for each in await answers(plans_of(topic, source))]
            return masked, await answers(plans_of("other", source)), await answers(redrives(source))

    with cluster() as running:
        with running.producer() as producer:
            for name in ("order-1", "other", "%RETRY%g"):
                producer.send(Message(name, b"there"))
        shop = ("shop", Context(namesrv=running.name_server))
        masked, other, dead = asyncio.run(run(shop))
        with running.admin() as admin:
            assert all(CARD.encode() not in each.body for each in admin.find(None, "order-1"))
    for path, each in (*masked, *dead):
        assert not leaks(each), path
        assert each.status_code in {400, 403, 404}, (path, each.text)
        assert "digest" not in each.text, path
    # Messages of a cluster go nowhere else.
    why = "masked for you" if source == "old" else "to that cluster, not to another"
    refused = [path for path, each in masked if why in each.text]
    assert len(refused) > 2 / 3 * len(masked)
    assert not any("masked for you" in each.text for _, each in other)
    assert any("digest" in each.text for _, each in other) is (source == "old")

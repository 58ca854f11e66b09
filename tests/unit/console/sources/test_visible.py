"""What a viewer may not see is as if it were not there: every route answers alike without it.

Two stores are asked the same: behind what may be seen one has a hidden topic, copies of it and a
group. Every route of the application is in the table below, or a test fails.
"""

import asyncio
import itertools
import json
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens import limits, testing
from rocketlens.client.send.message import Message
from rocketlens.console.app import Console
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import narrowed_topics, without_names
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.terminal.contexts import Context
from tests.support import oidc_world
from tests.support.archives import archive_store
from tests.support.console_client import console_client, log_in
from tests.support.console_users import user, users
from tests.support.effort import sized
from tests.support.made_stores import NOW_MS, Sent, make_store

SECRET = "S3CRET"
SEEN = [
    Sent(topic="order-paid", keys=f"all both ORDER-{n}", unique_key=f"U-{n}", body=b'{"n":%d}' % n)
    for n in range(5)
]
HIDDEN = [
    Sent(
        topic="salary",
        keys=f"all both {SECRET}-KEY",
        unique_key="U-1",
        tags=SECRET,
        body=SECRET.encode(),
        store_timestamp_ms=NOW_MS + 1 + n,
    )
    for n in range(300)
]
COPIES = [
    Sent(
        topic="%RETRY%pay",
        keys=f"all {SECRET}-COPY",
        body=SECRET.encode(),
        store_timestamp_ms=NOW_MS + 1000,
        named=(("RETRY_TOPIC", "salary"),),
    )
]
PAY = user("pay", Grant(Role.VIEWER, ("s",), ("order-*",)))
RETRIES = user("retries", Grant(Role.VIEWER, ("s",), ("order-*", "%RETRY%*")))
SALARY = "s/salary/10.0.0.9%3A10911/0/0"
PAID = "s/order-paid/10.0.0.9%3A10911/0/1"
RETRY = "s/%25RETRY%25pay/10.0.0.9%3A10911/0/0"
SEARCHES = [
    "q=all",
    "q=all&max=2",
    f"q={SECRET}-KEY",
    "q=salry/0/0",
    "q=order-pad/0/0",
    f"q={SECRET}-COPY",
    "q=U-1",
    "q=U-1&kind=unique-key",
    "q=salary/0/0",
    "q=salary/0/0&kind=queue-offset",
    "q=nothere/0/0&kind=queue-offset",
    "q=order-paid/0/1",
    "topic=salary",
    "topic=sal*",
    "topic=salry",
    "topic=*",
    "topic=order-pald",
    "topic=order-paid,salary",
    "topic=%25RETRY%25pay",
    f"tag={SECRET}",
    f"since={NOW_MS + 1}",
    f"until={NOW_MS + 5000}",
    "until=2020-01-01&topic=salary",
    "q=NOPE&topic=salary",
    "q=all&source=other",
    "q=all&exhaustive=true",
    "q={hidden_id}",
    "q={hidden_id}&kind=offset-id",
    "q={copy_id}",
    f"where=body+%3D+'{SECRET}'",
    f"grep={SECRET}",
    "grep=no-body-has-this",
    "where=topic+%3D+'salary'",
    "where=queue_offset+%3E%3D+0+AND+body+IS+NOT+NULL",
    "where=body.%24.n+%3E+1",
    "topic=*&where=keys+CONTAINS+'all'",
    "q={hidden_id}&where=body.%24.n+%3E+1",
    "q={copy_id}&where=body.%24.n+%3E+1",
]
MESSAGES = [SALARY, PAID, RETRY, "s/nothere/-/0/0", "s/salary/-/0/999", "other/salary/-/0/0"]
LISTS = ["", "?source=s", "?source=other"]
SEARCHING = ("/search", "/api/search", "/api/export")
"""Routes that are asked all searches; the others, which share their code, every third one."""


def some_searches(number):
    """Return the searches that another route is asked."""
    return SEARCHES[number % sized(3, 1) :: sized(3, 1)]


ASKED = {
    "/api/search": [f"?{each}" for each in SEARCHES],
    "/api/search/stream": [f"?{each}" for each in some_searches(0)],
    "/api/export": [
        *(f"?{each}&as=csv" for each in SEARCHES),
        *(f"?{each}&as=jsonl" for each in some_searches(1)),
    ],
    "/search": [f"?{each}" for each in SEARCHES],
    "/search/rows": [f"?{each}" for each in some_searches(1)],
    "/search/more": [f"?{each}" for each in some_searches(2)],
    "/story": [f"?{each}&source=s" for each in some_searches(0)],
    "/compare": [
        *(f"?chosen=/m/{each}" for each in MESSAGES),
        *(f"?chosen=/m/{PAID}&chosen=/m/{each}" for each in MESSAGES),
        f"?chosen=/m/{PAID}&position=salary/0/0",
    ],
    "/api/story": [f"?{each}&source=s" for each in some_searches(1)],
    "/": [""],
    "/resend": [f"?{each}" for each in some_searches(2)],
    "/resend/chosen": [""],
    "/saved": ["", "?all=true", *(f"?{each}" for each in some_searches(0))],
    "/api/saved-searches": ["", "?all=true"],
    "/redrive": ["", "?group=pay", "?group=payroll", "?group=payroll&cluster=s"],
    "/redrive/chosen": [""],
    "/send": [""],
    "/jobs": [""],
    "/api/jobs": [""],
    "/api/topics": [*LISTS, "?topic=salary", "?topic=order-paid", "?topic=sal*", "?topic=*"],
    "/topics": [*LISTS, "?all=true", "?topic=salary", "?topic=sal*", "?topic=order-paid"],
    "/api/groups": [*LISTS, "?group=payroll", "?group=pay"],
    "/groups": [*LISTS, "?group=payroll", "?group=pay"],
    "/api/topic-names": LISTS,
    "/overview": [""],
    "/api/overview": [""],
    "/api/clients": LISTS,
    "/clients": LISTS,
    "/api/brokers": LISTS,
    "/brokers": LISTS,
    "/api/pipeline": [*LISTS, "?broker=broker-a"],
    "/pipeline": [*LISTS, "?broker=broker-a"],
    "/api/sources": [""],
    "/api/openapi.json": [""],
    "/login": [""],
    # Of who has not logged in: these show failures only.
    "/login/oidc": [""],
    "/login/oidc/callback": [""],
    "/livez": [""],
    "/readyz": [""],
    "/static": ["/console.css"],
}
A_MESSAGE = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
OF_A_MESSAGE = {
    "/api/message": ["", "?form=hex", "?form=base64", "?form=text"],
    "/api/story": ["", "?group=payroll"],
    "/m": ["", "?tab=body", "?tab=properties", "?tab=ids", "?form=hex"],
}
BODIES = ("/api/message", "/m")
TOPICS = ("order-paid", "salary", "nothere", "sal*", "%25RETRY%25pay")
OF_A_TOPIC = ("/topics/{name}", "/api/topics/{name}")
ACTS_ON_A_MESSAGE = ("resend", "consume", "edit")
JOB = "20261120T000000-000000000000"
OF_A_JOB = ("/jobs/{name}", "/api/jobs/{name}", "/api/acts/{name}")
ACTS = {
    # What these do is checked by permission: test_act_pages, test_actions.
    "/api/consume",
    # Of users who see all of a source: test_overview.
    "/brokers/forget",
    "/api/jobs/{name}/{verb}",
    "/api/redrive",
    "/api/redrive/plan",
    "/api/resend",
    "/api/resend/chosen",
    "/api/resend/chosen/plan",
    "/api/resend/plan",
    "/api/resend/search",
    "/api/resend/search/plan",
    "/api/send",
    "/jobs/{name}/{verb}",
    "/resend/chosen/start",
    "/redrive/chosen/start",
    # And these by their user: test_saved_searches.
    "/saved/{name}/delete",
    "/api/saved-searches/{name}",
}
SAYS_NO_MORE = {
    # A name by chance.
    "/api/name",
    # Values of the whole process, by routes and results; forms, which show nothing.
    "/metrics",
    "/preferences",
    "/logout",
}


def paths():
    """Yield every path that is asked, with its route."""
    for route, asked in ASKED.items():
        yield from ((route, route + each) for each in asked)
    for prefix, asked in OF_A_MESSAGE.items():
        for message in MESSAGES:
            yield from ((prefix + A_MESSAGE, f"{prefix}/{message}{each}") for each in asked)
    for prefix in BODIES:
        yield from ((f"{prefix}{A_MESSAGE}/body", f"{prefix}/{each}/body") for each in MESSAGES)
    for act in ACTS_ON_A_MESSAGE:
        yield from ((f"/m{A_MESSAGE}/{act}", f"/m/{each}/{act}") for each in MESSAGES)
    yield from ((each, each.replace("{name}", JOB)) for each in OF_A_JOB)
    for route in OF_A_TOPIC:
        for name in TOPICS:
            yield from ((route, route.replace("{name}", name) + each) for each in LISTS)


def routes_of(app):
    """Give the paths of all routes, those of included routers too."""
    found = set()
    waiting = list(app.api.routes)
    while waiting:
        route = waiting.pop()
        own = getattr(route, "path", None)
        inner = getattr(route, "original_router", None)
        waiting += inner.routes if inner is not None else []
        if inner is None and own is not None:
            found.add(own)
    return found


def test_every_route_is_asked_below(tmp_path):
    known = {route for route, _ in paths()} | ACTS | SAYS_NO_MORE
    oidc = oidc_world.settings("https://login.example.com", tmp_path)
    all_users = LocalUsers([PAY], None, oidc)
    assert routes_of(Console(Sources([]), rules=BodyRules(), users=all_users)) == known


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    both = []
    for name, sent in (("with", [*SEEN, *HIDDEN, *COPIES]), ("without", SEEN)):
        made = make_store(tmp_path_factory.mktemp(name) / "store", sent)
        offsets = {"offsetTable": {"order-paid@pay": {"0": 2}}}
        if name == "with":
            offsets["offsetTable"] |= {
                "salary@pay": {"0": 7},
                "salary@payroll": {"0": 9},
                "%RETRY%pay@pay": {"0": 1},
            }
        (made.path / "config").mkdir(exist_ok=True)
        (made.path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
        both.append(made)
    return both


class Archived(NamedTuple):
    """An archive of a made store, whose log is as that was."""

    path: Path
    records: list


@pytest.fixture(scope="module")
def archives(stores, tmp_path_factory):
    both = []
    for made in stores:
        lake = tmp_path_factory.mktemp("lake") / "lake"
        archive_store(lake, made.path)
        both.append(Archived(lake, made.records))
    return both


@pytest.fixture(params=["stores", "archives"])
def sources(request):
    """A source with what is hidden, and one without it."""
    return request.getfixturevalue(request.param)


def context_of(made, name):
    kind = "archive" if isinstance(made, Archived) else "store"
    return name, Context(**{kind: str(made.path)})


def ids_of(made):
    hidden, copy = (
        f"0A000009{10911:08X}{record.physical_offset:016X}"
        for record in (made.records[len(SEEN)], made.records[-1])
    )
    return {"hidden_id": hidden, "copy_id": copy}


def asked_by(viewer, made, known_ids, several):
    """Give the answers to paths, of a user who has logged in."""

    async def run():
        client_of = console_client(
            context_of(made, "s"), context_of(made, "other"), users=users(viewer)
        )
        async with client_of as client:
            await log_in(client, viewer.viewer.name)
            return [
                await client.get(re.sub(r"\{(\w+_id)\}", lambda m: known_ids[m[1]], path))
                for path in several
            ]

    return asyncio.run(run())


def plain(answer, made):
    """Give what an answer says, without what differs by chance."""
    text = answer.text.replace(str(made.path), "STORE")
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        # What comes before the last event depends on threads.
        text = text.strip().split("\n\n")[-1]
    for varying in (r'"(elapsed|behind)_ms": ?\d+', r"\b[\d,]+ ms\b", r"\b\d+ d( \d+ h)?\b"):
        text = re.sub(varying, "", text)
    return answer.status_code, kind, text


def test_every_route_answers_as_if_what_is_hidden_were_not_there(sources):
    several = [path for _, path in paths() if not path.startswith("/login")]
    made, without = sources
    known_ids = ids_of(made)
    found = asked_by(PAY, made, known_ids, several)
    expected = asked_by(PAY, without, known_ids, several)
    for path, one, other in zip(several, found, expected, strict=True):
        assert plain(one, made) == plain(other, without), path
        if SECRET not in path:
            assert SECRET not in one.text, path


def test_a_copy_of_what_is_hidden_is_hidden_in_a_topic_that_may_be_seen(sources):
    paths_of_copy = [
        f"/api/search?q={SECRET}-COPY",
        "/api/search?topic=%25RETRY%25pay",
        f"/api/message/{RETRY}",
        f"/api/message/{RETRY}/body",
        f"/m/{RETRY}",
        "/api/search?q={copy_id}",
    ]
    made = sources[0]
    found = asked_by(RETRIES, made, ids_of(made), paths_of_copy)
    assert [each.status_code for each in found] == [200, 200, 404, 404, 404, 200]
    for each in (found[0], found[1], found[5]):
        assert (each.json()["messages"], each.json()["complete"]) == ([], True)


def test_what_a_filter_cannot_decide_on_is_not_told_of_a_hidden_copy(tmp_path):
    hidden = [
        replace(COPIES[0], body=b"\x00\xff\x9f\x01"),
        replace(COPIES[0], named=(*COPIES[0].named, ("n", SECRET))),
    ]
    of_paid = ("RETRY_TOPIC", "order-paid")
    named = (("n", "text"), of_paid)
    seen = [Sent(topic="%RETRY%pay", body=b"\x00\xff\x9f\x01", named=named)]
    paths_of_copies = [
        f"/api/search?topic=%25RETRY%25pay&{each}"
        for each in ("grep=x", "where=body.%24.n+%3E+1", "where=n+%3E+1")
    ]
    for sent, count in (([*hidden], 0), ([*hidden, *seen], 1)):
        made = make_store(tmp_path / f"store-{count}", sent)
        for found in asked_by(RETRIES, made, {}, paths_of_copies):
            assert SECRET not in found.text
            filters = [c for c in found.json()["coverage"] if c["kind"] == "filter"]
            told = [each["error"] or each["note"] for each in filters]
            assert len(told) == count
            assert all(each.startswith("1 message, the first %RETRY%pay/0/2: ") for each in told)
            assert found.json()["messages"] == []


def test_what_may_be_seen_is_found_and_complete(stores):
    found, message, topics, groups = asked_by(
        PAY,
        stores[0],
        {},
        ["/api/search?q=all", f"/api/message/{PAID}", "/api/topics", "/api/groups"],
    )
    assert [each["topic"] for each in found.json()["messages"]] == ["order-paid"] * 5
    assert found.json()["complete"] is True
    assert message.json()["body"]["content"] == '{"n":1}'
    names = {each["name"] for each in topics.json()["topics"]}
    assert "order-paid" in names
    assert "salary" not in names
    (group,) = groups.json()["groups"]
    assert (group["name"], group["lag"], group["dead_letters"]) == ("pay", 3, None)
    assert {each["topic"] for each in group["queues"]} <= {"order-paid", "%RETRY%pay"}


def test_one_who_sees_all_sees_what_is_hidden_from_others(sources):
    all_seen = user("root", Grant(Role.ADMIN))
    found, message = asked_by(
        all_seen, sources[0], {}, [f"/api/search?q={SECRET}-KEY&max=1", f"/api/message/{SALARY}"]
    )
    assert [each["topic"] for each in found.json()["messages"]] == ["salary"]
    assert message.json()["body"]["content"] == SECRET


def test_a_damaged_store_is_incomplete_without_the_names_of_its_files(stores, tmp_path):
    made = stores[0]
    copy = tmp_path / "store"
    shutil.copytree(made.path, copy)
    (log,) = (copy / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    at = made.records[2].physical_offset
    content[at + 8 : at + 60] = b"\xff" * 52
    log.write_bytes(content)

    class Damaged:
        path = copy

    found, missing = asked_by(PAY, Damaged, {}, ["/api/search?q=ORDER-2", "/api/search?q=NOPE"])
    for each in (found, missing):
        assert each.json()["complete"] is False
        (failed,) = [c for c in each.json()["coverage"] if c["is_failure"]]
        assert failed["error"] == "the reason is shown to users who may see every topic"
        assert "commitlog" not in each.text


@pytest.mark.parametrize(
    "coverage",
    [
        (),
        (Coverage("a", SourceKind.BROKER, SourceState.SEARCHED),),
        (Coverage("a", SourceKind.BROKER, SourceState.FAILED, None, "salary"),),
        (Coverage("salary", SourceKind.INDEX_FILE, SourceState.SEARCHED),),
        (Coverage("salary", SourceKind.CONSUME_QUEUE, SourceState.FAILED, None, "salary"),),
        (Coverage("0", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 9, 9),),
        (Coverage("0", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 5, 9),),
        (
            Coverage("0", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 9, 9),
            Coverage("salary", SourceKind.CONSUME_QUEUE, SourceState.DAMAGED, None, "salary"),
        ),
        (
            Coverage("a", SourceKind.BROKER, SourceState.SEARCHED),
            Coverage("salary", SourceKind.TOPICS, SourceState.FAILED, None, "salary"),
        ),
        (
            Coverage("a", SourceKind.BROKER, SourceState.SEARCHED),
            Coverage("a", SourceKind.BROKER, SourceState.FAILED, None, "salary"),
        ),
    ],
)
def test_coverage_is_worth_the_same_without_its_words(coverage):
    assert Answer("", (), without_names(coverage)).complete is Answer("", (), coverage).complete
    assert "salary" not in repr(without_names(coverage))


@pytest.mark.parametrize("namespace", [None, "shop"])
def test_of_a_cluster_the_same_is_hidden(namespace):
    prefix = f"{namespace}%" if namespace else ""
    with testing.cluster() as running:
        with running.producer() as producer:
            producer.send(Message(f"{prefix}order-paid", b"shown", keys="all ORDER-1"))
            producer.send(Message(f"{prefix}salary", SECRET.encode(), keys=f"all {SECRET}-KEY"))
        context = ("s", Context(namesrv=running.name_server, namespace=namespace))

        async def run():
            async with console_client(context, users=users(PAY)) as client:
                await log_in(client, "pay")
                found = await client.get("/api/search?q=all")
                (row,) = found.json()["messages"]
                at = row["path"].removeprefix("/m")
                hidden = at.replace("order-paid", "salary")
                paths = [f"/api/message{at}", f"/api/story{at}", "/api/topics", "/api/groups"]
                shown = [found, *[await client.get(path) for path in paths]]
                gone = [
                    await client.get(path)
                    for path in (
                        f"/api/message{hidden}",
                        f"/api/message{hidden}/body",
                        f"/api/story{hidden}",
                        f"/m{hidden}",
                        "/api/search?topic=salary",
                    )
                ]
                return shown, gone, await client.get("/api/search?q=salary/0/0")

        shown, gone, position = asyncio.run(run())
    assert [each.status_code for each in shown] == [200] * 5
    assert "shown" in shown[1].text
    assert shown[0].json()["complete"] is True
    assert "order-paid" in shown[3].text
    assert [each.status_code for each in gone] == [404] * 5
    assert position.json()["messages"] == []
    for each in shown:
        assert "salary" not in each.text
    for each in (*shown, *gone, position):
        assert SECRET not in each.text


TOPIC_PATTERNS = st.text("ab*?", min_size=1, max_size=5)
NAMES = ["".join(each) for n in range(1, 6) for each in itertools.product("ab", repeat=n)]


@given(TOPIC_PATTERNS, st.lists(TOPIC_PATTERNS, min_size=1, max_size=3))
def test_what_is_left_matches_what_both_match(asked, seen):
    left = narrowed_topics([asked], seen)[asked]
    for name in NAMES:
        both = fnmatchcase(name, asked) and any(fnmatchcase(name, each) for each in seen)
        assert any(fnmatchcase(name, each) for each in left) is both, name


@pytest.mark.parametrize(
    ("asked", "seen", "left"),
    [
        ("order-paid", ["order-*"], ("order-paid",)),
        ("salary", ["order-*"], ()),
        ("*", ["order-*", "pay"], ("order-*", "pay")),
        ("*paid*", ["order-*"], ("order-*paid*",)),
        ("ab*", ["*bc"], ("ab*bc", "abc")),
        ("x*", ["y*"], ()),
        ("%RETRY%g", ["%RETRY%*"], ("%RETRY%g",)),
    ],
)
def test_examples(asked, seen, left):
    assert narrowed_topics([asked], seen) == {asked: left}


@pytest.mark.parametrize(
    "asked", ["order-[ab]", "*".join("abcdefgh"), "*" + "x" * limits.MAX_TOPIC_CHARACTERS]
)
def test_a_pattern_that_takes_much_work_is_refused(asked):
    with pytest.raises(BadInput):
        narrowed_topics([asked], ["*a*"])


def test_a_long_name_is_no_work():
    name = "x" * limits.MAX_CONSOLE_TEXT
    assert narrowed_topics([name], ["y*"]) == {name: ()}

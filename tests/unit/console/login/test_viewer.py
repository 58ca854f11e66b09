"""What a viewer may see and do, by source and topic pattern."""

import asyncio
from contextvars import Context

import pytest

from rocketlens.console.login.viewer import (
    LOCAL,
    NOBODY,
    Grant,
    Role,
    Viewer,
    check_keys,
    current_viewer,
    grant_of,
    patterns_in,
    seen_by,
)
from rocketlens.errors import BadInput

PAY = Viewer(
    "pay",
    (
        Grant(Role.VIEWER, ("prod*",), ("order-*", "%RETRY%*")),
        Grant(Role.OPERATOR, ("prod",), ("order-paid",)),
        Grant(Role.ADMIN, ("test",), ("*",)),
    ),
)


def test_a_grant_is_for_the_topics_of_its_sources_only():
    assert PAY.may_see("prod", "order-new")
    assert PAY.may_see("prod-2", "order-new")
    assert not PAY.may_see("prod", "orders")
    assert not PAY.may_see("backup", "order-new")
    assert not PAY.may_see("prod", "ORDER-new")


def test_acting_and_unmasking_need_their_roles_on_that_very_topic():
    assert PAY.may_act("prod", "order-paid")
    assert not PAY.may_act("prod", "order-new")
    assert not PAY.may_act("prod-2", "order-paid")
    assert not PAY.may_unmask("prod", "order-paid")
    assert PAY.may_act("test", "anything")
    assert PAY.may_unmask("test", "anything")


def test_where_anything_may_be_acted_on_is_known_without_a_topic():
    assert [PAY.may_act_in(each) for each in ("prod", "prod-2", "test")] == [True, False, True]
    assert (LOCAL.may_act_in("prod"), NOBODY.may_act_in("prod")) == (True, False)


def test_an_administrator_is_one_of_all_topics_of_some_source():
    some = Viewer("some", (Grant(Role.ADMIN, ("prod",), ("order-*",)),))
    assert [each.is_admin for each in (PAY, LOCAL, NOBODY, some)] == [True, True, False, False]


def test_a_copy_is_seen_only_by_those_who_see_the_original():
    retry = "%RETRY%group"
    assert PAY.may_see_message("prod", retry, ["order-paid"])
    assert not PAY.may_see_message("prod", retry, ["salary"])
    assert not PAY.may_see_message("prod", retry, ["salary"])
    assert not PAY.may_see_message("prod", "salary", ["order-paid"])


def test_the_patterns_of_a_source_are_those_of_all_grants_for_it():
    assert PAY.patterns("prod") == ("order-*", "%RETRY%*", "order-paid")
    assert PAY.patterns("elsewhere") == ()
    assert (PAY.sees_all("test"), PAY.sees_all("prod")) == (True, False)
    assert not PAY.may_see_source("elsewhere")


def test_without_a_grant_nothing_is_seen_and_locally_everything():
    assert not NOBODY.may_see("prod", "order-new")
    assert not NOBODY.may_see_source("prod")
    assert LOCAL.may_unmask("prod", "order-new")


def test_tasks_that_a_request_starts_have_its_viewer():
    async def name():
        return current_viewer().name

    async def request():
        with seen_by(PAY):
            started = asyncio.create_task(name())
        return await started

    assert asyncio.run(request()) == "pay"
    assert current_viewer() is LOCAL


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_a_copy_that_does_not_tell_its_topic_is_shown_to_those_who_may_see_all(topic):
    pay = Viewer("pay", (Grant(Role.ADMIN, topics=("order-*", "%RETRY%*", "%DLQ%*")),))
    assert pay.may_see_message("prod", topic, ["order-1"])
    assert not pay.may_see_message("prod", topic, ["salary"])
    assert not pay.may_see_message("prod", topic, [])
    assert Viewer("all", (Grant(Role.VIEWER),)).may_see_message("prod", topic, [])


def test_a_grant_is_for_everything_that_it_does_not_narrow():
    assert grant_of("f", {"role": "admin"}) == Grant(Role.ADMIN, ("*",), ("*",))
    narrowed = {"role": "viewer", "sources": ["prod*"], "topics": ["order-*", "%RETRY%*"]}
    assert grant_of("f", narrowed) == Grant(Role.VIEWER, ("prod*",), ("order-*", "%RETRY%*"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("geheim", "f must be a table"),
        ({}, "f: role must be one of viewer, operator, admin"),
        ({"role": "geheim"}, "f: role must be one of viewer, operator, admin"),
        ({"role": ["viewer"]}, "f: role must be one of"),
        ({"role": "viewer", "geheim": 1}, "f: 1 unknown keys: give role, sources, topics"),
        ({"role": "viewer", "topics": "geheim"}, "f: topics must be a list of patterns"),
        ({"role": "viewer", "sources": ["geheim[1]"]}, "f: sources must be a list of patterns"),
        ({"role": "viewer", "sources": []}, "f: sources must be a list of patterns"),
    ],
)
def test_a_mistake_of_a_grant_is_named_and_not_quoted(table, said):
    with pytest.raises(BadInput) as caught:
        grant_of("f", table)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_patterns_and_keys_are_checked_alike_elsewhere():
    assert patterns_in("f", "topics", ["a*", "b?"]) == ("a*", "b?")
    check_keys("f", {"a": 1}, {"a", "b"})
    with pytest.raises(BadInput, match="f: 2 unknown keys: give a, b"):
        check_keys("f", {"a": 1, "x": 1, "y": 1}, {"a", "b"})


def test_outside_of_requests_nobody_asks_and_nothing_is_seen():
    assert Context().run(current_viewer) is NOBODY

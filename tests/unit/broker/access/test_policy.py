"""Policies of RocketMQ 5: resources, and which entry decides."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.broker.access.policy import (
    Action,
    Decision,
    Kind,
    Need,
    Pattern,
    PolicyType,
    Resource,
    User,
    acl_of,
    named,
    subject_of,
)
from rocketlens.errors import BadInput
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

ADDRESS = ip_address("10.0.0.7")


def entry(resource, actions="Pub", decision="Allow", *sources):
    return PolicyEntryInfo(
        resource=resource,
        actions=tuple(actions.split(",")),
        source_ips=sources or None,
        decision=decision,
    )


def acl(*entries, default=()):
    policies = [PolicyInfo(policy_type="Custom", entries=entries)]
    if default:
        policies.append(PolicyInfo(policy_type="default", entries=tuple(default)))
    return acl_of(AclInfo(policies=tuple(policies)), "User:app")


def need(name="Orders", *actions):
    return Need(Resource(Kind.TOPIC, name), actions or (Action.PUB,))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("*", Resource(Kind.ANY, "", Pattern.ANY)),
        ("Topic:*", Resource(Kind.TOPIC, "", Pattern.ANY)),
        ("topic:Orders", Resource(Kind.TOPIC, "Orders")),
        ("GROUP:a*", Resource(Kind.GROUP, "a", Pattern.PREFIXED)),
        ("Cluster:c:d", Resource(Kind.CLUSTER, "c:d")),
        ("Topic:", Resource(Kind.TOPIC, "")),
        ("Queue:a", None),
        (" ", None),
        (None, None),
    ],
)
def test_a_resource_is_read_as_it_is_written(text, parsed):
    assert Resource.parse(text) == parsed
    if parsed is not None:
        assert Resource.parse(parsed.key) == parsed


@pytest.mark.parametrize(
    ("entries", "decision"),
    [
        ((entry("Topic:Orders"), entry("*", decision="Deny")), Decision.ALLOW),
        ((entry("Topic:Orders", decision="Deny"), entry("Topic:*")), Decision.DENY),
        ((entry("Topic:Or*", decision="Deny"), entry("Topic:O*")), Decision.DENY),
        ((entry("Topic:O*", decision="Deny"), entry("Topic:Or*")), Decision.ALLOW),
        ((entry("Topic:*"), entry("*", "All", "Deny")), Decision.ALLOW),
        ((entry("Topic:Orders", "Sub"),), None),
        ((entry("Group:Orders"), entry("Topic:Other")), None),
        ((entry("Topic:Orders", "All"),), Decision.ALLOW),
        ((entry("Topic:Orders", "Pub", "Allow", "10.0.0.0/8"),), Decision.ALLOW),
        ((entry("Topic:Orders", "Pub", "Allow", "11.0.0.0/8", "::1"),), None),
    ],
)
def test_the_entry_that_fits_best_decides(entries, decision):
    for ordered in (entries, entries[::-1]):
        assert acl(*ordered).decision(need(), ADDRESS) is decision


def test_the_default_policy_counts_where_no_other_entry_fits():
    both = acl(entry("Topic:Orders", decision="Deny"), default=[entry("Topic:*")])
    assert both.decision(need(), ADDRESS) is Decision.DENY
    assert both.decision(need("Other"), ADDRESS) is Decision.ALLOW
    assert both.decision(need("Other", Action.SUB), ADDRESS) is None


def test_an_entry_with_sources_does_not_fit_an_unknown_address():
    made = acl(entry("Topic:Orders", "Pub", "Allow", "0.0.0.0/0"))
    assert made.decision(need(), None) is None


def test_an_update_replaces_the_entries_of_the_same_resources():
    old = acl(entry("Topic:a"), entry("Topic:b*"))
    changed = old.updated(acl(entry("Topic:b*", "Sub", "Deny"), entry("Topic:c")))
    shown = [(e.resource, e.decision) for e in changed.info().policies[0].entries]
    assert shown == [("Topic:a", "Allow"), ("Topic:b*", "Deny"), ("Topic:c", "Allow")]
    rest = changed.without(PolicyType.CUSTOM, Resource.parse("Topic:b*"))
    assert [e.resource for e in rest.info().policies[0].entries] == ["Topic:a", "Topic:c"]
    only = acl(entry("Topic:a")).without(PolicyType.CUSTOM, Resource.parse("Topic:a"))
    assert not only.policies
    assert changed.info("b*").policies[0].entries[0].resource == "Topic:b*"
    assert changed.info("nothing").policies == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resource": "Queue:a"}, "The resource is null."),
        ({"actions": ("Wave",)}, "The actions is empty."),
        ({"actions": ("Pub", "Any")}, "The actions can not be Any."),
        ({"decision": "Maybe"}, "The decision is null or illegal."),
        ({"source_ips": ("10.0.0",)}, "The source ip is invalid."),
        ({"source_ips": (" ",)}, "The source ip is empty."),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_in_rocketmqs_words(changes, words):
    members = {"resource": "Topic:a", "actions": ("Pub",), "decision": "Allow", **changes}
    policy = PolicyInfo(policy_type="Custom", entries=(PolicyEntryInfo(**members),))
    with pytest.raises(BadInput, match=words):
        acl_of(AclInfo(policies=(policy,)), "User:app")
    with pytest.raises(BadInput, match="The policies is empty"):
        acl_of(AclInfo(), "User:app")


def test_a_subject_is_a_user():
    assert subject_of("user:a:b") == "User:a:b"
    assert subject_of("Role:a") is None
    assert subject_of(None) is None
    assert named(Action, "pUB") is Action.PUB
    assert named(Action, None) is None
    assert "s3cret" not in repr(User("a", "s3cret"))


resources = st.sampled_from(["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Topic:abc"])
entries = st.builds(
    entry, resources, st.sampled_from(["Pub", "Sub", "All"]), st.sampled_from(["Allow", "Deny"])
)


@given(st.lists(entries, min_size=1, max_size=6, unique_by=lambda each: each.resource), st.data())
def test_the_order_of_entries_decides_nothing(some, data):
    asked = need(data.draw(st.sampled_from(["a", "ab", "abc", "x"])))
    shuffled = data.draw(st.permutations(some))
    assert acl(*some).decision(asked, ADDRESS) is acl(*shuffled).decision(asked, ADDRESS)

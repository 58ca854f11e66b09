"""Accounts of RocketMQ 4: their files, who may do what, and from which addresses."""

import contextlib
import json
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.broker.access import plain_files
from rocketlens.broker.access.addresses import parse_address, parse_pattern, parse_source
from rocketlens.broker.access.plain_files import MAX_ACL_FILE_BYTES, PlainAcl, load_files
from rocketlens.broker.access.plain_rules import ADMIN_CODES, Permission, PlainRules, account_of
from rocketlens.errors import BadInput
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.bodies.auth import PlainAccessConfig
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from tests.unit.broker.access.address_vectors import ADDRESSES, PATTERNS, SOURCES, vectors

SECRET = "12345678"
HOST = "10.0.0.7"


def account(name="orders-app", **changes):
    return account_of(PlainAccessConfig(access_key=name, secret_key=SECRET, **changes))


APP = account(
    default_group_perm="DENY",
    topic_perms=("Orders=PUB", "Both=SUB|PUB", "Closed=DENY", "ReadOnly=SUB", "Typo=PUBSUB"),
    group_perms=("readers=SUB",),
)
RULES = PlainRules({"orders-app": APP, "admin-app": account("admin-app", admin=True)})


def refusal(code, fields, body=b"", *, user="orders-app", secret=SECRET, rules=RULES, host=HOST):
    signed = signed_fields(fields, body, user, secret)
    answer = rules.decide(RemotingCommand(int(code), ext_fields=signed, body=body), host)
    if answer is None:
        return None
    assert answer.code == 1
    return answer.remark.removeprefix("org.apache.rocketmq.acl.common.AclException: ")


@pytest.mark.parametrize(
    ("topic", "sends", "reads"),
    [
        ("Orders", True, False),
        ("Both", True, True),
        ("ReadOnly", False, True),
        ("Closed", False, False),
        ("Typo", False, False),
        ("Other", False, False),
    ],
)
def test_a_topic_is_sent_to_and_read_with_its_permission(topic, sends, reads):
    for code, name in (
        (RequestCode.SEND_MESSAGE, "topic"),
        (RequestCode.SEND_MESSAGE_V2, "b"),
        (RequestCode.SEND_BATCH_MESSAGE, "b"),
    ):
        assert (refusal(code, {name: topic}) is None) is sends
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        fields = {"topic": topic, "consumerGroup": "readers"}
        assert (refusal(code, fields) is None) is reads
        assert refusal(code, fields | {"consumerGroup": "others"}) is not None
    assert (refusal(RequestCode.QUERY_MESSAGE, {"topic": topic}) is None) is reads


def test_a_retry_topic_stands_for_its_group_whatever_the_producer_says():
    send = RequestCode.SEND_MESSAGE_V2
    assert refusal(send, {"b": "%RETRY%readers", "a": "readers"}) is None
    words = "No default permission for group:others"
    assert refusal(send, {"b": "%RETRY%others", "a": "readers"}) == words
    assert refusal(send, {"b": "%RETRY%others"}) == words
    assert refusal(RequestCode.SEND_MESSAGE, {"topic": "%RETRY%others"}) == words


def test_a_heartbeat_needs_every_group_and_topic_in_it():
    def beat(group, topic):
        consumer = {"groupName": group, "subscriptionDataSet": [{"topic": topic}]}
        body = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
        return refusal(RequestCode.HEART_BEAT, {}, body)

    assert beat("readers", "ReadOnly") is None
    assert beat("readers", "Orders") == "No default permission for topic:Orders"
    assert beat("others", "ReadOnly") == "No default permission for group:others"
    assert refusal(RequestCode.HEART_BEAT, {}, b"not JSON") is not None


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_an_administrators_request_needs_one(code):
    words = f"Need admin permission for request code={code}, but accessKey=orders-app is not"
    assert refusal(code, {}) == words
    assert refusal(code, {}, user="admin-app") is None


def test_an_administrator_without_permissions_may_do_everything_and_one_with_only_those():
    send = RequestCode.SEND_MESSAGE_V2
    assert refusal(send, {"b": "Other"}, user="admin-app") is None
    some = account("admin-app", admin=True, topic_perms=("Orders=PUB",))
    rules = PlainRules({"admin-app": some})
    assert refusal(send, {"b": "Orders"}, user="admin-app", rules=rules) is None
    assert refusal(send, {"b": "Other"}, user="admin-app", rules=rules) is not None


def test_a_request_without_an_account_or_with_a_wrong_signature_is_refused():
    command = RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert RULES.decide(command, HOST).remark.endswith("No accessKey is configured")
    assert refusal(28, {}, user="nobody") == "No acl config for nobody"
    words = "Check signature failed for accessKey=orders-app"
    assert refusal(28, {}, secret="87654321") == words
    unsigned = RemotingCommand(28, ext_fields={"AccessKey": "orders-app"})
    assert RULES.decide(unsigned, HOST).remark.endswith(words)


def test_every_account_may_trace_its_messages():
    assert refusal(RequestCode.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC"}) is None
    assert refusal(RequestCode.QUERY_MESSAGE, {"topic": "RMQ_SYS_TRACE_TOPIC"}) is not None


def test_a_white_address_needs_no_signature():
    everybody = PlainRules({}, (parse_pattern("10.0.*.*"),))
    command = RemotingCommand(int(RequestCode.UPDATE_BROKER_CONFIG))
    assert everybody.decide(command, HOST) is None
    assert everybody.decide(command, "11.0.0.7") is not None
    assert everybody.decide(command, "unknown") is not None
    own = PlainRules({"orders-app": account(white_remote_address=HOST)})
    assert refusal(25, {}, secret="wrong", rules=own) is None
    assert refusal(25, {}, secret="wrong", rules=own, host="10.0.0.8") is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"access_key": "short"}, "longer than 6"),
        ({"secret_key": "secret"}, "longer than 6"),
        ({"secret_key": None}, "longer than 6"),
        ({"topic_perms": ("Orders",)}, "failed for topic:Orders"),
        ({"group_perms": ("a=b=c",)}, "failed for group:a=b=c"),
        ({"white_remote_address": "10.0.0"}, "'10.0.0' is not an address"),
    ],
)
def test_an_account_that_cannot_be_read_is_bad_input_without_its_secret(changes, words):
    members = {"access_key": "orders-app", "secret_key": "s3cret-s3cret", **changes}
    with pytest.raises(BadInput, match=words) as caught:
        account_of(PlainAccessConfig(**members))
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(APP)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8)), st.binary(max_size=20))
def test_whatever_a_stranger_sends_is_refused(fields, body):
    for code in (*RequestCode, 99_999):
        command = RemotingCommand(int(code), ext_fields=fields, body=body)
        assert RULES.decide(command, HOST) is not None


@given(st.sampled_from([*RequestCode]), st.binary(max_size=30), st.text(max_size=6))
def test_whatever_an_account_sends_is_decided(code, body, text):
    names = ("topic", "b", "a", "group", "consumerGroup", "producerGroup")
    refusal(code, dict.fromkeys(names, text), body)


def test_deny_counts_more_than_any_other_permission():
    mixed = Permission.DENY | Permission.PUB
    denied = account()
    assert not denied.may("Orders", Permission.PUB)
    assert not type(APP)("a", "s", permissions={"T": mixed}).may("T", Permission.PUB)


ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: orders-app   # a comment
  secretKey: 12345678
  whiteRemoteAddress:
  admin: "false"
  topicPerms: [Orders=PUB]
- {accessKey: other-app, secretKey: 's3cret-s3cret'}
"""


def write(home, text, name="plain_acl.yml", mode=0o600):
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # As an editor does it: another file takes its place.
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(mode)
    beside.replace(path)
    return path


def opened(home):
    return PlainAcl(home)


def is_let_in(acl, user, secret):
    fields = signed_fields({}, b"", user, secret)
    return acl.loaded.rules.decide(RemotingCommand(28, ext_fields=fields), "10.0.0.1") is None


async def test_accounts_are_read_as_rocketmq_reads_them(tmp_path):
    write(tmp_path, ACCOUNTS)
    acl = opened(tmp_path)
    assert is_let_in(acl, "orders-app", "12345678")
    assert is_let_in(acl, "other-app", "s3cret-s3cret")
    assert not is_let_in(acl, "orders-app", "s3cret-s3cret")
    assert acl.table().global_white_addrs == ("10.10.103.*",)
    assert acl.table().plain_access_configs[0].topic_perms == ("Orders=PUB",)
    assert "12345678" not in repr(acl.loaded)


async def test_a_missing_file_lets_nobody_in_and_is_not_made(tmp_path):
    acl = opened(tmp_path / "new")
    assert not acl.default_file.exists()
    assert not is_let_in(acl, "orders-app", "12345678")


async def test_an_account_of_two_files_is_that_of_the_first(tmp_path, caplog):
    write(tmp_path, ACCOUNTS)
    write(tmp_path, "accounts: [{accessKey: orders-app, secretKey: another-one}]", "acl/a.yml")
    write(tmp_path, "accounts: [{accessKey: third-app, secretKey: 12345678}]", "acl/b/c.yaml")
    write(tmp_path, "accessKey: x", "acl/tools.yml")
    acl = opened(tmp_path)
    assert is_let_in(acl, "orders-app", "another-one")
    assert not is_let_in(acl, "orders-app", "12345678")
    assert is_let_in(acl, "third-app", "12345678")
    assert "orders-app is a duplicate" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [", "line 1 is not valid YAML"),
        ("a: b\n\tc: SECRET99", "line 2 is not valid YAML"),
        ("- a", "names and values"),
        ("accounts: 7", "accounts is not a list"),
        ("accounts: [7]", "account 1: expected names"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET}]", "longer than 6"),
        ("accounts: [{accessKey: orders-app, secretKey: 1.5e99}]", "longer than 6|quotes"),
        ("accounts: [{accessKey: orders-app, secretKey: 2001-01-01}]", "put it in quotes"),
        ("accounts: [{accessKey: orders-app, secretKey: [SECRET99]}]", "put it in quotes"),
        ("accounts: [{accessKey: a, secretKey: SECRET99}]", "longer than 6"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET99, admin: 7}]", "admin"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET99, topicPerms: a}]", "list"),
        ("globalWhiteRemoteAddresses: [10.0.0]", "'10.0.0' is not an address"),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("a: " + "[" * 5000, "is not valid YAML"),
        ("#" * (MAX_ACL_FILE_BYTES + 1), "bytes"),
    ],
)
async def test_a_file_that_cannot_be_understood_is_bad_input_without_its_secrets(
    tmp_path, text, words
):
    write(tmp_path, text)
    with pytest.raises(BadInput, match=words) as caught:
        opened(tmp_path)
    assert "SECRET99" not in str(caught.value)
    assert "plain_acl.yml" in str(caught.value)


async def test_a_file_that_anyone_may_write_is_refused(tmp_path, caplog):
    write(tmp_path, ACCOUNTS, mode=0o606)
    with pytest.raises(BadInput, match="chmod o-w"):
        opened(tmp_path)
    write(tmp_path, ACCOUNTS, mode=0o640)
    opened(tmp_path)
    assert "chmod 600" in caplog.text


async def test_a_damaged_file_keeps_the_last_good_rules_and_says_so(tmp_path, caplog):
    write(tmp_path, ACCOUNTS)

    async def again(acl):
        acl.watch()
        # A second look while the first one runs is no other one.
        acl.watch()
        await acl._reload

    acl = opened(tmp_path)
    await again(acl)
    assert not acl.problem
    write(tmp_path, ACCOUNTS.replace("12345678", "another-one"))
    await again(acl)
    assert is_let_in(acl, "orders-app", "another-one")
    write(tmp_path, "accounts: [")
    await again(acl)
    assert is_let_in(acl, "orders-app", "another-one")
    assert "older access rules are in force" in acl.problem
    assert acl.problem in caplog.text
    write(tmp_path, ACCOUNTS)
    await again(acl)
    assert not acl.problem
    assert is_let_in(acl, "orders-app", "12345678")
    # A file that comes, and one that goes.
    added = write(tmp_path, "accounts: [{accessKey: new-app, secretKey: 12345678}]", "acl/n.yml")
    await again(acl)
    assert is_let_in(acl, "new-app", "12345678")
    added.unlink()
    await again(acl)
    assert not is_let_in(acl, "new-app", "12345678")
    acl.close()


async def test_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_files, "FILES_READ", 2)
    for name in "abc":
        write(tmp_path, "", f"acl/{name}.yml")
    with pytest.raises(BadInput, match="over 2 files"):
        opened(tmp_path)


def test_accounts_are_loaded_for_others(tmp_path):
    write(tmp_path, ACCOUNTS)
    accounts = load_files(tmp_path / "conf").configs
    assert [each.access_key for each in accounts] == ["orders-app", "other-app"]
    assert [path.name for path in (tmp_path / "conf").iterdir()] == ["plain_acl.yml"]


# RocketMQ looks at the first range only, and not at what follows it.
NARROWER = {"192.168.1-5.7", "10.1-2.3-4.5-6", "192.168.100-200.10-20", "172.16.*.9"}
# RocketMQ cannot match anything with them, and here they mean what they say.
BROKEN_THERE = {"192.168.0-0.5", "1.2.3.0-0"}
# RocketMQ takes them, and here they are refused.
REFUSED = {"1:2:3:4:5:6:7:8:9-a", "::/64", "fe80::1%eth0", "2001:db8::1-20", "2001:db8::1-20:*"}


def verdict(pattern, address):
    """As in the vectors: true, false, or error for a pattern that is not taken."""
    try:
        matches = parse_pattern(pattern)
    except BadInput:
        return "error"
    parsed = parse_address(address)
    return "true" if matches is not None and parsed is not None and matches(parsed) else "false"


def test_a_pattern_matches_what_the_real_one_does_or_less():
    differs = set()
    for pattern, address, theirs in vectors("pattern"):
        ours = verdict(pattern, address)
        if ours != theirs:
            # Nothing is let through that RocketMQ would refuse, but by a pattern broken there.
            assert theirs == "error" if pattern in BROKEN_THERE else ours in {"error", "false"}
            differs.add(pattern)
    assert differs == BROKEN_THERE | NARROWER | REFUSED


def test_a_source_of_rocketmq_5_matches_what_the_real_one_does():
    for source, address, theirs in vectors("source"):
        try:
            matches = parse_source(source)
        except BadInput:
            # Java takes 10.0.0 for an address.
            assert theirs == "error" or source == "10.0.0/8", source
        else:
            ours = "true" if matches(parse_address(address)) else "false"
            # RocketMQ compares numbers: its 0.0.0.0/0 has ::1, and its ::/0 every address.
            is_other_kind = (":" in source) != (":" in address)
            assert ours == ("false" if is_other_kind else theirs), source


def test_the_vectors_are_of_every_pattern_and_address():
    asked = {(pattern, address) for pattern in PATTERNS for address in ADDRESSES}
    assert {words[:2] for words in vectors("pattern")} == asked
    asked = {(source, address) for source in SOURCES for address in ADDRESSES}
    assert {words[:2] for words in vectors("source")} == asked
    assert len({words[2] for words in vectors("pattern")}) == 3


def test_every_number_of_a_pattern_must_fit():
    assert verdict("192.168.1-5.7", "192.168.3.7") == "true"
    assert verdict("192.168.1-5.7", "192.168.3.99") == "false"
    assert verdict("2001:db8:1-20:*", "2001:db8:f::1") == "true"
    assert verdict("2001:db8:1-20:*", "2001:db8:21::1") == "false"


def test_a_blank_pattern_matches_nothing():
    assert parse_pattern(None) is None
    assert parse_pattern(" ") is None


@given(st.ip_addresses(v=4), st.integers(0, 255), st.integers(0, 255))
def test_a_range_matches_the_numbers_in_it(address, one, other):
    low, high = sorted((one, other))
    words = str(address).split(".")
    pattern = ".".join([*words[:3], f"{low}-{high}"])
    assert verdict(pattern, str(address)) == ("true" if low <= int(words[3]) <= high else "false")


@given(st.ip_addresses(), st.ip_addresses())
def test_an_address_matches_itself_in_any_form_and_no_other(address, other):
    for form in (str(address), address.exploded, str(address).upper()):
        assert verdict(form, str(address)) == "true"
        assert verdict(form, str(other)) == ("true" if address == other else "false")


@given(st.ip_addresses(), st.integers(0, 128), st.ip_addresses())
def test_a_network_matches_its_addresses(address, bits, other):
    bits = min(bits, address.max_prefixlen)
    matches = parse_source(f"{address}/{bits}")
    assert matches(address)
    assert matches(other) == (other in ip_network(f"{address}/{bits}", strict=False))


@given(st.text(max_size=30) | st.text("0123456789.:*-{}, ", max_size=30))
def test_whatever_the_text_it_is_a_pattern_or_bad_input(text):
    for address in ("10.0.0.1", "2001:db8::1"):
        assert verdict(text, address) in {"true", "false", "error"}
    with contextlib.suppress(BadInput):
        parse_source(text)(ip_address("10.0.0.1"))

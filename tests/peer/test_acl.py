"""Access control of our broker and of the real ones: the same requests, clients and tools.

`python -m tests.peer.test_acl` writes the vectors of addresses anew.
"""

import json
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketlens.broker.access.needs import BY_FIELDS, ON_THE_CLUSTER
from tests.peer.acl_requests import (
    AUTH_SETTINGS,
    PLAIN_ACL,
    SECRETS,
    STRICTER_4,
    STRICTER_5,
    answers,
    common_requests,
    create_acl,
    half_message,
    set_up_2_0,
    user_requests,
)
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import RocketMQPeer
from tests.unit.broker.access.address_vectors import ADDRESSES, PATTERNS, SOURCES, VECTORS, vectors
from tests.unit.broker.access.test_every_code import NOT_ANSWERED

JUDGE = Path(__file__).parent / "java" / "AccessJudge.java"
CLIENT = Path(__file__).parent / "java" / "AclClient.java"
# A switch decides for these, whatever the annotations say.
OWN_RULES = {10, 11, 12, 14, 15, 34, 35, 36, 37, 38, 41, 42, 105, 310, 320, 370}
# Those of name servers and controllers, and of a broker's group.
NOT_OF_A_BROKER = {
    *range(100, 107),
    205,
    216,
    217,
    219,
    322,
    327,
    *range(901, 905),
    *range(1001, 1005),
    *range(1011, 1014),
}

STRANGERS = [
    (),
    ("administrator",),
    ("orders-app",),
    ("denied-all",),
    ("orders-app", "wrong-secret"),
    ("nobody-here", "12345678"),
]
ONE_OF_SEVERAL = "No default permission for"
JAVA_WORDS = re.compile(r", org\.apache\.rocketmq\S+\(\S+\)$")


@contextmanager
def ours(directory, namesrv="", **settings):
    broker = OurBroker(directory, namesrv, **settings)
    try:
        yield broker
    finally:
        broker.stop()


def plain_home(directory):
    """A directory with accounts, for either broker."""
    conf = directory / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    (conf / "plain_acl.yml").chmod(0o600)
    return directory


def refusals(asked, answered, code):
    """Of each request whether access control refused it, and its words if so."""
    for (who, request), answer in zip(asked, answered, strict=True):
        remark = JAVA_WORDS.sub("", answer.remark or "")
        words = remark if answer.code == code and is_refusal(remark) else None
        yield who, str(request), words


def is_refusal(remark):
    return remark.startswith("org.apache.rocketmq.acl.common.AclException") or remark.endswith(
        (
            "no matched policies.",
            "the decision is deny.",
            "signature failed.",
            "cannot be null.",
            "is not found.",
        )
    )


def compare(theirs, mine, stricter):
    """Check that both refuse the same with the same words, but for what ours refuses, too."""
    seen = set()
    for expected, actual in zip(theirs, mine, strict=True):
        who, request, words = actual
        if request in stricter and expected[2] is None and words is not None:
            seen.add(request)
            assert who[0] in {"orders-app", "denied-all"}
        elif ONE_OF_SEVERAL in (words or "") and ONE_OF_SEVERAL in (expected[2] or ""):
            # Of several topics and groups Java's hash decides which one is named.
            assert actual[:2] == expected[:2]
        else:
            assert actual == expected
    assert seen == set(stricter)


def test_accounts_may_do_the_same_on_the_real_broker_and_on_ours(peer, tmp_path):
    plain_home(tmp_path / "theirs" / "home")
    home = plain_home(tmp_path / "ours" / "home")
    asked = [
        (who, request)
        for who in [*STRANGERS, ("white-listed", "wrong-secret")]
        for request in common_requests()
    ]
    before = [(("administrator",), half_message())]
    with peer.start("4.9.7", tmp_path / "theirs", aclEnable=True) as broker:
        assert all(answer.code == 0 for answer in answers(broker.broker_address, before))
        theirs = list(refusals(asked, answers(broker.broker_address, asked), 1))
    with ours(tmp_path / "ours", aclEnable=True, rocketmqHome=home) as broker:
        assert all(answer.code == 0 for answer in answers(broker.address, before))
        mine = list(refusals(asked, answers(broker.address, asked), 1))
    compare(theirs, mine, STRICTER_4)


def test_users_may_do_the_same_on_the_real_broker_and_on_ours(peer, tmp_path):
    before = [(("administrator",), request) for request in (*set_up_2_0(), half_message())]
    asked = [(who, request) for who in STRANGERS for request in common_requests()]
    with peer.start("5.5.0", tmp_path / "theirs", **AUTH_SETTINGS) as broker:
        assert all(answer.code == 0 for answer in answers(broker.broker_address, before))
        theirs = list(refusals(asked, answers(broker.broker_address, asked), 16))
        managed = list(managed_users(broker.broker_address))
    with ours(tmp_path / "ours", **AUTH_SETTINGS) as broker:
        assert all(answer.code == 0 for answer in answers(broker.address, before))
        mine = list(refusals(asked, answers(broker.address, asked), 16))
        mine_managed = list(managed_users(broker.address))
    compare(theirs, mine, STRICTER_5)
    for expected, actual in zip(managed, mine_managed, strict=True):
        assert actual == expected


def managed_users(address):
    for who in [("administrator",), ("orders-app",)]:
        asked = [(who, request) for request in user_requests()]
        for (_, request), answer in zip(asked, answers(address, asked), strict=True):
            remark = JAVA_WORDS.sub("", answer.remark or "")
            remark = remark.removeprefix(
                "org.apache.rocketmq.auth.authorization.exception.AuthorizationException: "
            )
            if answer.code == 0:
                # 5.5.0 forgets to say what went well.
                remark = ""
            body = json.loads(answer.body) if answer.body else None
            yield who, str(request), answer.code, remark, body


def judged(peer, version, questions):
    """What the real classes say to each question."""
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch, "questions.txt")
        asked.write_text("\n".join("\t".join(words) for words in questions), encoding="ascii")
        lines = peer.java(version, JUDGE, str(asked)).splitlines()
    said = [line[2:] for line in lines if line.startswith("> ")]
    assert len(said) == len(questions)
    return said


def address_questions():
    yield "4.9.7", [("pattern", pattern, each) for pattern in PATTERNS for each in ADDRESSES]
    yield "5.5.0", [("source", source, each) for source in SOURCES for each in ADDRESSES]


def test_the_vectors_of_addresses_are_what_the_real_classes_say(peer):
    for version, questions in address_questions():
        [kind] = {words[0] for words in questions}
        expected = [words[2] for words in vectors(kind)]
        assert judged(peer, version, questions) == expected


def write_address_vectors(peer):
    lines = ["# What RocketMQ 4.9.7 (pattern) and 5.5.0 (source) answered"]
    for version, questions in address_questions():
        said = judged(peer, version, questions)
        lines += [
            "\t".join((*words, answer)) for words, answer in zip(questions, said, strict=True)
        ]
    VECTORS.write_text("\n".join(lines) + "\n", encoding="ascii")


def test_requests_need_what_the_annotations_of_rocketmq_5_say(peer):
    [said] = judged(peer, "5.5.0", [("needs",)])
    compared = 0
    for row in filter(None, said.split(";")):
        code, kind, actions, *fields = row.split()
        named = {field.split("=")[0]: field.split("=")[1] for field in fields}
        code, actions = int(code), {each.capitalize() for each in actions.split(",")}
        if code in OWN_RULES or code in NOT_OF_A_BROKER | NOT_ANSWERED:
            continue
        if not (fields or kind == "CLUSTER"):
            continue
        compared += 1
        if fields:
            ours, kinds = BY_FIELDS[code]
            assert {name: each.value.upper() for name, each in kinds.items()} == named, code
        else:
            ours = ON_THE_CLUSTER[code]
        assert {each.value for each in ours} == actions, code
    assert compared > 30


@contextmanager
def our_cluster(directory, **settings):
    """Our name server and a broker with access control."""
    namesrv = OurNameServer()
    try:
        address = str(namesrv.address)
        with ours(directory, address, **settings) as broker:
            yield address, broker
    finally:
        namesrv.close()


@contextmanager
def as_administrator(peer, version, directory):
    """Return ``ask(*words)``, what the real tool prints with the administrator's keys."""
    conf = directory / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "tools.yml").write_text('accessKey: administrator\nsecretKey: "12345678"\n')
    tool = peer.tool(version, directory)
    try:
        # 5.5.0 prints an empty line about its logging first.
        yield lambda *words: "\n".join([*tool.run(words, 400), ""]).lstrip("\n")
    finally:
        tool.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_clients_do_what_their_account_may(peer, version, tmp_path):
    home = plain_home(tmp_path / "ours" / "home")
    text = PLAIN_ACL.replace("Orders=PUB", "Orders=PUB|SUB")
    (home / "conf" / "plain_acl.yml").write_text(text)
    with our_cluster(tmp_path / "ours", aclEnable=True, rocketmqHome=home) as (namesrv, _):
        said = java_clients(peer, version, namesrv)
    assert said == ["sent Orders", "refused Other 1", "consumed true"]


def test_java_clients_do_what_policies_allow(peer, tmp_path):
    with our_cluster(tmp_path / "ours", **AUTH_SETTINGS) as (namesrv, broker):
        allowed = create_acl("User:orders-app", ("Topic:Orders", "Sub,Pub", "Allow", {}))
        asked = [(("administrator",), request) for request in (*set_up_2_0(), allowed)]
        assert all(answer.code == 0 for answer in answers(broker.address, asked))
        said = java_clients(peer, "5.5.0", namesrv)
    assert said == ["sent Orders", "refused Other 16", "consumed true"]


def java_clients(peer, version, namesrv):
    words = (namesrv, "orders-app", SECRETS["orders-app"], "orders-group", "Orders", "Other")
    lines = peer.java(version, CLIENT, *words).splitlines()
    return [line[2:] for line in lines if line.startswith("> ")]


def test_the_real_tools_keep_users_and_accounts_of_our_broker(peer, tmp_path):
    with (
        our_cluster(tmp_path / "users", **AUTH_SETTINGS) as (namesrv, broker),
        as_administrator(peer, "5.5.0", tmp_path / "tools-5") as tool,
    ):

        def ask(name, *words):
            where = () if name.startswith("copy") else ("-b", broker.address)
            return tool(name, "-n", namesrv, *where, *words)

        done = f"{broker.address} success.\n"
        assert ask("createUser", "-u", "app", "-p", "s3cret") == f"create user to {done}"
        acl = ("-s", "User:app", "-r", "Topic:a*,Group:g", "-a", "Pub,Sub", "-d", "Allow")
        assert ask("createAcl", *acl) == f"create acl to {done}"
        users, acls = ask("listUser", "-f", "app"), ask("getAcl", "-s", "User:app")
        assert users == OUR_USERS
        assert acls == OUR_ACLS
    home = plain_home(tmp_path / "accounts" / "home")
    settings = {"aclEnable": True, "rocketmqHome": home}
    with (
        our_cluster(tmp_path / "accounts", **settings) as (namesrv, broker),
        as_administrator(peer, "4.9.7", tmp_path / "tools-4") as tool,
    ):
        where = ("-n", namesrv, "-b", broker.address)
        said = tool("getAclConfig", *where)
        assert "  accessKey         : orders-app\n" in said
        assert "  topicPerms        : [Orders=PUB, ReadOnly=SUB]\n" in said
        said = tool("clusterAclConfigVersion", *where)
        assert str(home / "conf" / "plain_acl.yml") in said


# What our own commands print, too: tests/unit/mqadmin/test_auth.py.
OUR_USERS = (
    f"{'#UserName':<16}  {'#Password':<22}  {'#UserType':<22}  {'#UserStatus':<22}\n"
    f"{'app':<16}  {'s3cret':<22}  {'Normal':<22}  {'enable':<22}\n"
)
OUR_ACLS = "".join(
    f"{subject:<16}  {policy:<10}  {resource:<22}  {actions:<20}  {sources:<24}  {decision:<10}\n"
    for subject, policy, resource, actions, sources, decision in (
        ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"),
        ("User:app", "Custom", "Topic:a*", "[Pub, Sub]", "null", "Allow"),
        ("User:app", "Custom", "Group:g", "[Pub, Sub]", "null", "Allow"),
    )
)


if __name__ == "__main__":
    write_address_vectors(RocketMQPeer())

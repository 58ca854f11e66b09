"""The file of users: what it can say, and that mistakes in it are named and not quoted.

Password hashes: right ones fit, wrong ones do not, and none takes more than its bounds.
What a viewer may see and do, by source and topic pattern.
"""

import asyncio
from contextvars import Context

import pytest

from rocketlens.console.login.users import (
    MAX_PASSWORD_CHARACTERS,
    MAX_PASSWORD_LANES,
    LocalUsers,
    PasswordHash,
    read_users,
)
from rocketlens.console.login.viewer import (
    LOCAL,
    NOBODY,
    Grant,
    Role,
    Viewer,
    checked_table,
    current_viewer,
    grant_of,
    patterns_in,
    seen_by,
)
from rocketlens.errors import BadInput
from tests.support.console_users import CHEAP, HASH, PASSWORD, user, users

GOOD = f"""
[users.li]
password = "{HASH}"
[[users.li.grants]]
role = "viewer"
sources = ["prod*"]
topics = ["order-*", "%RETRY%*"]
[[users.li.grants]]
role = "operator"
topics = ["order-test"]

[users.root]
password = "{HASH}"
grants = [{{ role = "admin" }}]
"""


@pytest.fixture
def file_of(tmp_path):
    def write(text):
        path = tmp_path / "users.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o600)
        return path

    return write


def viewer_of(found, name, password):
    return asyncio.run(found.viewer_of(name, password))


def test_users_have_the_grants_of_the_file(file_of):
    found = read_users(file_of(GOOD))
    assert viewer_of(found, "li", PASSWORD) == Viewer(
        "li",
        (
            Grant(Role.VIEWER, ("prod*",), ("order-*", "%RETRY%*")),
            Grant(Role.OPERATOR, ("*",), ("order-test",)),
        ),
    )
    assert viewer_of(found, "root", PASSWORD) == Viewer("root", (Grant(Role.ADMIN),))


def test_a_wrong_password_and_a_name_that_is_not_there_are_the_same(file_of):
    found = read_users(file_of(GOOD))
    assert viewer_of(found, "li", "wrong") is None
    assert viewer_of(found, "wu", PASSWORD) is None
    assert viewer_of(found, "", "") is None


def test_a_name_that_is_not_there_takes_one_hash_as_well(monkeypatch):
    hashed = []
    fits = PasswordHash.fits

    async def counted(self, password):
        hashed.append(self.costs)
        return await fits(self, password)

    monkeypatch.setattr(PasswordHash, "fits", counted)
    found = users(user("li"), user("wu"))
    for name in ("li", "nobody", "\ud800"):
        viewer_of(found, name, "wrong")
    assert hashed == [(16, 1, 1)] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no user"),
        ("[users]", "has no user"),
        ("users = 3", "must be tables"),
        ("[users]\nli = 3", "user number 1 must be a table"),
        ('[users.li]\ngrants = [{ role = "admin" }]', "password is missing"),
        ('[users.li]\npassword = "geheim"\ngrants = [{ role = "admin" }]', "not a password hash"),
        (f'[users.li]\npassword = "{HASH}"', "has no rights"),
        (GOOD.replace("viewer", "geheim"), "role must be one of viewer, operator, admin"),
        (GOOD.replace('["prod*"]', '"prod"'), "sources must be a list"),
        (GOOD.replace('["prod*"]', "[]"), "sources must be a list"),
        (GOOD.replace('["prod*"]', '["geheim[a]"]'), "sources must be a list"),
        (GOOD.replace('"order-*"', "3"), "topics must be a list"),
        (GOOD.replace("sources", "geheim"), "1 unknown keys"),
        (GOOD.replace("users.li", 'users."ge heim"'), "without spaces"),
        (GOOD.replace("users.li", 'users."geheim:"'), "without spaces and colons"),
        ("geheim = 1\n" + GOOD, "1 unknown keys"),
        ("geheim\n", "is not TOML (at line 1, column 7)"),
        (b"\xff", "is not UTF-8"),
        (b"#" * 10_000_000, "has over"),
    ],
)
def test_a_mistake_is_named_and_not_quoted(file_of, text, said):
    with pytest.raises(BadInput) as caught:
        read_users(file_of(text))
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_file_that_others_may_write_or_that_is_not_there_is_not_used(file_of, tmp_path):
    path = file_of(GOOD)
    path.chmod(0o602)
    with pytest.raises(BadInput, match="world-writable"):
        read_users(path)
    with pytest.raises(BadInput, match="No such file"):
        read_users(tmp_path / "missing.toml")


def test_there_are_no_users_without_one():
    with pytest.raises(BadInput):
        LocalUsers([])


MASKS = r"""
[[masks]]
topics = ["order-*"]
properties = ["PHONE"]
paths = ["$.card.number"]
pattern = '\d{16}'
"""


def test_masks_stand_in_the_same_file(file_of):
    found = read_users(file_of(GOOD + MASKS))
    assert found.masks.hide_from(Viewer("li", (Grant(Role.VIEWER),)), "s")
    assert not found.masks.hide_from(Viewer("root", (Grant(Role.ADMIN),)), "s")
    assert not read_users(file_of(GOOD)).masks.hide_from(Viewer("li"), "s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("masks = 3\n" + GOOD, "masks must be tables"),
        ("masks = [3]\n" + GOOD, "mask number 1 must be a table"),
        (GOOD + '[[masks]]\ntopics = ["a"]', "it masks nothing"),
        (GOOD + '[[masks]]\npaths = "$.a"', "paths must be a list"),
        (GOOD + '[[masks]]\npaths = ["geheim"]', "invalid path"),
        (GOOD + '[[masks]]\npattern = "("', "mask number 1"),
        (GOOD + "[[masks]]\npattern = 3", "mask number 1"),
        (GOOD + '[[masks]]\nproperties = ["KEYS"]', "cannot be masked"),
        (GOOD + "[[masks]]\nproperties = []", "properties must be a list"),
        (GOOD + "[[masks]]\ngeheim = 1", "1 unknown keys"),
    ],
)
def test_a_mistake_in_a_mask_is_named(file_of, text, said):
    with pytest.raises(BadInput) as caught:
        read_users(file_of(text))
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def fits(hashed, password):
    return asyncio.run(hashed.fits(password))


def test_the_right_password_fits_and_no_other():
    hashed = PasswordHash.parse(str(PasswordHash.of("correct horse", CHEAP)))
    assert fits(hashed, "correct horse")
    for wrong in ("", "correct hors", "correct horse ", "Correct horse", "-", "x" * 9999):
        assert not fits(hashed, wrong)


def test_a_password_is_the_same_however_its_characters_are_composed():
    assert fits(PasswordHash.of("caf\u00e9", CHEAP), "cafe\u0301")


def test_what_stands_in_for_a_password_that_is_none_is_no_password():
    hashed = PasswordHash.of("-", CHEAP)
    assert not fits(hashed, "")
    assert fits(hashed, "-")


def test_two_hashes_of_one_password_differ():
    assert str(PasswordHash.of("x", CHEAP)) != str(PasswordHash.of("x", CHEAP))


def test_a_new_hash_costs_what_is_recommended():
    assert PasswordHash.of("x").costs == (1 << 15, 8, 3)


def test_neither_salt_nor_hash_is_shown():
    hashed = PasswordHash.of("x", CHEAP)
    assert "salt" not in repr(hashed)
    assert "digest" not in repr(hashed)


GOOD_HASH = HASH.split("$")


def test_an_example_is_a_hash():
    assert PasswordHash.parse("$".join(GOOD_HASH)).costs == CHEAP


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (0, "bcrypt"),
        (1, "0"),
        (1, "1"),
        (1, "-16"),
        (1, "17"),
        (1, str(1 << 40)),
        (1, "x"),
        (2, "0"),
        (2, str(1 << 30)),
        (3, "0"),
        (3, "-1"),
        (3, str(MAX_PASSWORD_LANES + 1)),
        (4, "AA=="),
        (4, "*"),
        (5, "AAAA"),
        (5, ""),
    ],
)
def test_what_is_no_hash_or_takes_too_much_is_refused_and_not_quoted(number, part):
    text = "$".join([*GOOD_HASH[:number], part, *GOOD_HASH[number + 1 :]])
    with pytest.raises(BadInput) as caught:
        PasswordHash.parse(text)
    assert GOOD_HASH[5] not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    # Names of their own: a salt is another one in each process.
    [
        pytest.param("", id="empty"),
        pytest.param("secret", id="a password"),
        pytest.param("scrypt$", id="no parts"),
        pytest.param("scrypt$16$1$1$$", id="empty parts"),
        pytest.param("$".join([*GOOD_HASH, "x"]), id="one part more"),
    ],
)
def test_a_text_of_another_form_is_refused_and_not_quoted(text):
    with pytest.raises(BadInput, match="not a password hash") as caught:
        PasswordHash.parse(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["", "x" * (MAX_PASSWORD_CHARACTERS + 1)])
def test_a_password_that_cannot_be_is_refused(password):
    with pytest.raises(BadInput):
        PasswordHash.of(password, CHEAP)


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
    checked_table("f", {"a": 1}, "", {"a", "b"})
    with pytest.raises(BadInput, match="f: 2 unknown keys: give a, b"):
        checked_table("f", {"a": 1, "x": 1, "y": 1}, "", {"a", "b"})


def test_outside_of_requests_nobody_asks_and_nothing_is_seen():
    assert Context().run(current_viewer) is NOBODY

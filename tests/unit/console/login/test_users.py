"""The file of users: what it can say, and that mistakes in it are named and not quoted."""

import asyncio

import pytest

from rocketlens.console.login.users import LocalUsers, PasswordHash, read_users
from rocketlens.console.login.viewer import Grant, Role, Viewer
from rocketlens.errors import BadInput
from tests.support.console_users import HASH, PASSWORD, user, users

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
        ("", "has none"),
        ("[users]", "has none"),
        ("users = 3", "must be tables"),
        ("[users]\nli = 3", "user number 1 must be a table"),
        ('[users.li]\ngrants = [{ role = "admin" }]', "password is missing"),
        ('[users.li]\npassword = "geheim"\ngrants = [{ role = "admin" }]', "not a password hash"),
        (f'[users.li]\npassword = "{HASH}"', "may see nothing"),
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
        (GOOD + '[[masks]]\npaths = ["geheim"]', "a path is"),
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

"""Password hashes: right ones fit, wrong ones do not, and none takes more than its bounds."""

import asyncio

import pytest

from rocketlens.console.login.users import MAX_PASSWORD_CHARACTERS, MAX_PASSWORD_LANES, PasswordHash
from rocketlens.errors import BadInput
from tests.support.console_users import CHEAP, HASH


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


GOOD = HASH.split("$")


def test_an_example_is_a_hash():
    assert PasswordHash.parse("$".join(GOOD)).costs == CHEAP


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
    text = "$".join([*GOOD[:number], part, *GOOD[number + 1 :]])
    with pytest.raises(BadInput) as caught:
        PasswordHash.parse(text)
    assert GOOD[5] not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    # Names of their own: a salt is another one in each process.
    [
        pytest.param("", id="empty"),
        pytest.param("secret", id="a password"),
        pytest.param("scrypt$", id="no parts"),
        pytest.param("scrypt$16$1$1$$", id="empty parts"),
        pytest.param("$".join([*GOOD, "x"]), id="one part more"),
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

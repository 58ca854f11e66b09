import pytest

from rocketlens.wire import codes
from rocketlens.wire.codes import LanguageCode, RequestCode, ResponseCode
from tests.support.wire_samples import VERSIONS, vectors_of

# 4.9's access control; 5.x gave these numbers another meaning.
LEFT_OUT = {
    "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
    "DELETE_ACL_CONFIG_FAILED",
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ours", [RequestCode, ResponseCode])
def test_codes_are_those_of_rocketmq(version, ours):
    [words] = [words for words in vectors_of(version, "codes") if words[0] == ours.__name__]
    theirs = dict(word.split("=") for word in words[1:])
    assert theirs
    for name, number in theirs.items():
        if ours is RequestCode or name in ResponseCode.__members__:
            assert name in LEFT_OUT or ours[name] == int(number)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_has_the_number_that_rocketmq_gave_it(version):
    [names] = vectors_of(version, "versions")
    assert list(codes.VERSION_NAMES) == names
    for number, name in enumerate(names):
        assert codes.version_name(number) == name
        assert codes.version_number(name) == number


def test_releases_are_known_under_the_names_people_write():
    assert codes.version_number("4.9.7") == 407
    assert codes.version_number("5.5.0") == 513
    assert codes.version_number("5.5.1-SNAPSHOT") == 514
    with pytest.raises(KeyError):
        codes.version_number("6.0.0")


def test_from_4_0_0_on_the_number_follows_from_the_release():
    for major, minor, patch in ((4, 0, 0), (4, 9, 7), (5, 0, 0), (5, 5, 0), (5, 9, 9)):
        number = 213 + 2 * (major * 100 + minor * 10 + patch - 400)
        assert codes.version_number(f"{major}.{minor}.{patch}") == number


@pytest.mark.parametrize("number", [-1, -(2**31), 613, 2**31 - 1])
def test_a_number_nobody_knows_is_a_higher_version(number):
    assert codes.version_name(number) == "HIGHER_VERSION"


def test_languages_have_their_numbers_on_the_wire():
    assert [language.name for language in LanguageCode][:5] == [
        "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI",
    ]  # fmt: skip
    assert codes.LANGUAGE_OF_NUMBER[13] is LanguageCode.NODE_JS

"""The keys of access control."""

from pathlib import Path

import pytest

from rocketlens.broker.access_config import AuthConfig, codes_in
from rocketlens.errors import BadInput
from tests.support.broker_world import settings_of

PACKAGE = "org.apache.rocketmq.auth."
USER = '{"username":"admin","password":"s3cret-s3cret"}'


def read(**values):
    return AuthConfig.from_properties(values)[0]


def test_it_is_off_unless_it_is_switched_on():
    assert not read().is_on
    assert read(aclEnable="true").is_on
    assert read(authenticationEnabled="true").is_on


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"aclEnable": "true", "authenticationEnabled": "true"}, "two kinds"),
        ({"authorizationEnabled": "true"}, "set authenticationEnabled=true, too"),
        ({"migrateAuthFromV1Enabled": "true"}, "set authenticationEnabled=true, too"),
        ({"authenticationProvider": "com.example.Mine"}, "authenticationProvider"),
        ({"authorizationProvider": "com.example.Mine"}, "authorizationProvider"),
        ({"authenticationMetadataProvider": "com.example.Mine"}, "MetadataProvider"),
        ({"authorizationMetadataProvider": "com.example.Mine"}, "MetadataProvider"),
        ({"authenticationStrategy": "com.example.Mine"}, "authenticationStrategy"),
        ({"authorizationStrategy": "com.example.Mine"}, "authorizationStrategy"),
        ({"authenticationWhitelist": "10,send"}, "request codes"),
        ({"authorizationWhitelist": "10,-1"}, "request codes"),
        ({"aclEnable": "yes"}, "neither true nor false"),
    ],
)
def test_what_is_not_supported_is_refused(values, words):
    with pytest.raises(BadInput, match=words):
        read(**values)


@pytest.mark.parametrize(
    "text",
    ['{"username":"admin"}', "admin:s3cret", "{", "[1]", '{"username":1,"password":"s3cret"}'],
)
def test_a_first_user_that_cannot_be_read_is_refused_without_its_password(text):
    with pytest.raises(BadInput, match="initAuthenticationUser is not of the form") as caught:
        read(initAuthenticationUser=text)
    assert "s3cret" not in str(caught.value)


def test_no_secret_is_shown(tmp_path):
    inner = '{"accessKey":"proxy","secretKey":"s3cret-s3cret"}'
    values = {"initAuthenticationUser": USER, "innerClientAuthenticationCredentials": inner}
    config = read(authenticationEnabled="true", **values)
    assert config.first_users() == [("admin", "s3cret-s3cret"), ("proxy", "s3cret-s3cret")]
    assert "s3cret" not in f"{config!r} {config} {config.properties()}"
    settings = settings_of(tmp_path, authenticationEnabled=True, **values)
    assert "s3cret" not in str(settings.properties_in_effect(10911))
    assert "s3cret" not in repr(settings)


def test_rocketmqs_own_classes_are_accepted():
    read(
        authenticationEnabled="true",
        authenticationProvider=f"{PACKAGE}authentication.provider.DefaultAuthenticationProvider",
        authenticationStrategy=f"{PACKAGE}authentication.strategy.StatefulAuthenticationStrategy",
        authorizationStrategy=f"{PACKAGE}authorization.strategy.StatelessAuthorizationStrategy",
    )


def test_a_white_list_has_codes_and_names_of_the_proxy():
    config = read(authenticationWhitelist=" 105, 34,apache.rocketmq.v2.QueryRouteRequest")
    assert codes_in(config.authenticationWhitelist) == {105, 34}


def test_the_directory_of_accounts_is_a_key_or_the_environments(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(BadInput, match="set rocketmqHome"):
        _ = read(aclEnable="true").home
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    assert read(aclEnable="true").home == Path("/opt/rocketmq")
    assert read(aclEnable="true", rocketmqHome="/srv").home == Path("/srv")

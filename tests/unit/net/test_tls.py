"""TLS settings under RocketMQ's names."""

import ssl

import pytest

from rocketlens.errors import BadInput
from rocketlens.net.tls import ServerTls, TlsMode, TlsSettings, tls_of_properties


@pytest.fixture
def pair(certificate):
    """The keys of a server that has a certificate."""
    return {"tls.server.certPath": str(certificate[0]), "tls.server.keyPath": str(certificate[1])}


def taken(**values):
    settings, others = tls_of_properties({name.replace("__", "."): v for name, v in values.items()})
    assert others == {}
    return settings


def test_nothing_said_takes_plain_connections_and_other_keys_are_given_back():
    settings, others = tls_of_properties({"brokerName": "a", "tls.server.mood": "good"})
    assert settings == TlsSettings(ServerTls(TlsMode.PERMISSIVE), None)
    assert others == {"brokerName": "a", "tls.server.mood": "good"}


def test_a_certificate_is_enforced_unless_the_mode_says_otherwise(pair):
    settings, _ = tls_of_properties(pair)
    assert settings.server.mode is TlsMode.ENFORCING
    assert settings.server.context.verify_mode is ssl.CERT_NONE
    for text, mode in (("permissive", TlsMode.PERMISSIVE), (" ENFORCING ", TlsMode.ENFORCING)):
        settings, _ = tls_of_properties({**pair, "tls.server.mode": text})
        assert (settings.server.mode, settings.server.context is None) == (mode, False)
    settings, _ = tls_of_properties({**pair, "tls.server.mode": "disabled"})
    assert settings == TlsSettings(ServerTls(TlsMode.DISABLED), None)


@pytest.mark.parametrize(("wanted", "mode"), [("optional", "OPTIONAL"), ("REQUIRE", "REQUIRED")])
def test_clients_are_asked_for_certificates_that_are_checked(pair, wanted, mode):
    asked = {**pair, "tls.server.need.client.auth": wanted}
    with pytest.raises(BadInput, match=r"needs tls\.server\.authClient=true"):
        tls_of_properties(asked)
    trust = {
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": pair["tls.server.certPath"],
    }
    settings, _ = tls_of_properties({**asked, **trust})
    assert settings.server.context.verify_mode is ssl.VerifyMode[f"CERT_{mode}"]


def test_an_enforcing_server_calls_others_with_tls_too(pair):
    assert tls_of_properties(pair)[0].client.verify_mode is ssl.CERT_NONE
    checked = {**pair, "tls.client.authServer": "true"}
    assert tls_of_properties(checked)[0].client.verify_mode is ssl.CERT_REQUIRED
    assert tls_of_properties({**pair, "tls.server.mode": "permissive"})[0].client is None
    assert taken(tls__enable="true").client is not None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tls.server.mode": "strict"}, "disabled, permissive, enforcing"),
        ({"tls.server.mode": "enforcing"}, "there is no tls.server.certPath"),
        ({"tls.server.certPath": "/c"}, "belong together"),
        ({"tls.server.keyPath": "/c"}, "belong together"),
        ({"tls.server.certPath": "/none", "tls.server.keyPath": "/none"}, "certificate /none"),
        ({"tls.server.certPath": "/\0", "tls.server.keyPath": "/k"}, "zero character"),
        ({"tls.server.need.client.auth": "always"}, "none, optional or require"),
        ({"tls.test.mode.enable": "true"}, "no certificate is made up"),
        ({"tls.enable": "yes"}, "neither true nor false"),
        ({"tls.enable": "true", "tls.client.certPath": "/c"}, "belong together"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        tls_of_properties(values)


def test_a_password_is_never_shown(certificate):
    values = {
        "tls.server.certPath": str(certificate[0]),
        "tls.server.keyPath": "/no/key",
        "tls.server.keyPassword": "k7-secret",
    }
    with pytest.raises(BadInput) as caught:
        tls_of_properties(values)
    assert "k7-secret" not in f"{caught.value!r} {caught.value.__cause__!r}"

"""TLS settings under RocketMQ's names.

What every server's configuration is warned of, and refused for.

Files with a secret: read within bounds, and never shown.
"""

import logging
import os
import re
import ssl
from argparse import Namespace

import pytest

from rocketlens.broker.config import parse_settings
from rocketlens.cli.servers.servers import run_namesrv as namesrv_run
from rocketlens.errors import BadInput, ConnectFailed
from rocketlens.net.secret_file import MAX_SECRET_BYTES, open_regular, read_secret_file
from rocketlens.net.tls import (
    ServerTls,
    TlsMode,
    TlsSettings,
    client_context,
    server_context,
    tls_of_properties,
)
from rocketlens.testing import cluster
from tests.unit.net.loopback import ECHO, LOOPS, calling, run, serving


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
        ({"tls.server.mode": "strict"}, "disabled, permissive or enforcing"),
        ({"tls.server.mode": "enforcing"}, "there is no tls.server.certPath"),
        ({"tls.server.certPath": "/c"}, "belong together"),
        ({"tls.server.keyPath": "/c"}, "belong together"),
        ({"tls.server.certPath": "/none", "tls.server.keyPath": "/none"}, "certificate /none"),
        ({"tls.server.certPath": "/\0", "tls.server.keyPath": "/k"}, "zero character"),
        ({"tls.server.need.client.auth": "always"}, "none, optional or require"),
        ({"tls.test.mode.enable": "true"}, "certificates are not generated"),
        ({"tls.enable": "yes"}, "neither true nor false"),
        ({"tls.enable": "true", "tls.client.certPath": "/c"}, "belong together"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        tls_of_properties(values)


def test_names_of_hosts_are_checked_where_the_systems_authorities_are_trusted(certificate):
    authority = certificate[0]
    assert client_context().check_hostname
    assert not client_context(ca=authority).check_hostname
    assert client_context(ca=authority, check_hostname=True).check_hostname
    assert not client_context(check_hostname=False).check_hostname
    assert not client_context(verify=False).check_hostname
    with pytest.raises(BadInput, match="any certificate"):
        client_context(verify=False, check_hostname=True)


def test_a_file_that_is_not_there_is_named_in_words(tmp_path):
    missing = tmp_path / "ca.pem"
    with pytest.raises(BadInput, match=r"authority .*/ca\.pem: No such file or directory$"):
        client_context(ca=missing)


def test_a_server_that_calls_others_checks_their_names_likewise(certificate):
    trusting = {"tls__enable": "true", "tls__client__authServer": "true"}
    private = trusting | {"tls__client__trustCertPath": str(certificate[0])}
    assert taken(**trusting).client.check_hostname
    assert not taken(**private).client.check_hostname
    assert taken(**private, tls__client__checkHostname="true").client.check_hostname


@pytest.mark.parametrize("loop", LOOPS)
def test_a_certificate_for_another_host_is_refused_where_names_are_checked(loop, certificate):
    """The certificate is for 127.0.0.1."""

    async def main():
        tls = ServerTls(TlsMode.ENFORCING, server_context(*certificate))
        async with serving(tls=tls) as (server, address):
            other = str(server.listen("127.0.0.2", 0))
            async with calling(tls=client_context(ca=certificate[0])) as pool:
                assert (await pool.call(other, ECHO)).code == 0
            async with calling(tls=client_context(ca=certificate[0], check_hostname=True)) as pool:
                assert (await pool.call(address, ECHO)).code == 0
                with pytest.raises(ConnectFailed, match=r"127\.0\.0\.2:.*not trusted.*mismatch"):
                    await pool.call(other, ECHO)

    run(main, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_tls_to_a_server_without_it_says_what_may_be_wrong(loop):
    async def main():
        async with serving() as (_, address), calling(tls=client_context()) as pool:
            with pytest.raises(ConnectFailed, match=r"no TLS: .*does it accept TLS on this port"):
                await pool.call(address, ECHO)

    run(main, loop)


def test_a_password_is_never_shown(certificate):
    values = {
        "tls.server.certPath": str(certificate[0]),
        "tls.server.keyPath": "/no/key",
        "tls.server.keyPassword": "k7-secret",
    }
    with pytest.raises(BadInput) as caught:
        tls_of_properties(values)
    assert "k7-secret" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("text", "is_warned_of"),
    [
        ("", False),
        ("brokerIP1=10.0.0.5\nbindAddress=127.0.0.1", False),
        ("brokerIP1=::1", False),
        ("brokerIP1=10.0.0.5", True),
        ("bindAddress=0.0.0.0\nbrokerIP1=10.0.0.5", True),
        ("bindAddress=::\nbrokerIP1=10.0.0.5", True),
    ],
)
def test_a_broker_that_everybody_reaches_is_warned_of(certificate, caplog, text, is_warned_of):
    pair = f"\ntls.server.certPath={certificate[0]}\ntls.server.keyPath={certificate[1]}\n"
    with caplog.at_level(logging.WARNING, logger="rocketlens.broker"):
        parse_settings(text)
        assert ("without TLS" in caplog.text) is is_warned_of
        caplog.clear()
        parse_settings(text + pair)
        assert ("clients need no certificate" in caplog.text) is is_warned_of
        caplog.clear()
        parse_settings(
            f"{text}{pair}tls.server.need.client.auth=require\ntls.server.authClient=true\n"
            f"tls.server.trustCertPath={certificate[0]}\n"
        )
        assert caplog.text == ""
        parse_settings(f"{text}{pair}tls.server.mode=permissive\n")
        assert ("without TLS" in caplog.text) is is_warned_of


@pytest.mark.parametrize(
    "line",
    [
        "useTLS=true",
        "tls.ciphers=TLS_AES_256_GCM_SHA384",
        "tls.protocols=TLSv1.3",
        "tls.server.somethingNew=1",
    ],
)
def test_a_configuration_that_asks_for_security_that_is_not_here_is_refused(line, tmp_path):
    key = line.partition("=")[0].strip()
    with pytest.raises(BadInput, match=f"broker.conf: {key}"):
        parse_settings(f"brokerName=b\n{line}\n")
    with pytest.raises(BadInput, match=f"namesrv.conf, line 1: {key}"):
        namesrv_run(namesrv_arguments(tmp_path, line))
    with pytest.raises(BadInput, match=re.escape(f"cluster(): {key}")):
        cluster(**{key: line.partition("=")[2].strip()})


@pytest.mark.parametrize(
    "line",
    [
        "aclEnable=true",
        "authenticationEnabled=true",
        "authorizationEnabled = TRUE",
        "migrateAuthFromV1Enabled=true",
    ],
)
def test_a_name_server_refuses_access_control_which_only_brokers_have(line, tmp_path):
    with pytest.raises(BadInput, match=f"namesrv.conf, line 1: {line.partition('=')[0].strip()}"):
        namesrv_run(namesrv_arguments(tmp_path, line))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("autoCreateTopicEnabled", "autoCreateTopicEnable"),
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("brokername", "brokerName"),
        ("aclEnabled", "aclEnable"),
        ("namesrvAdress", "namesrvAddr"),
        ("bindAdress", "bindAddress"),
        ("tls.enabled", None),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(key, meant, tmp_path):
    words = "TLS" if meant is None else f"did you mean {meant}[?]"
    with pytest.raises(BadInput, match=words):
        parse_settings(f"{key}=1\n")
    with pytest.raises(BadInput, match=words):
        namesrv_run(namesrv_arguments(tmp_path, f"{key}=1"))
    with pytest.raises(BadInput, match=words):
        cluster(**{key: "1"})


def test_keys_of_rocketmq_without_a_meaning_here_are_warned_of_everywhere(caplog, tmp_path):
    lines = "sendMessageThreadPoolNums=4\nwarmMapedFileEnable=false\nstorePathIndex=/data/index\n"
    passed_over = ("sendMessageThreadPoolNums", "storePathIndex", "warmMapedFileEnable")
    assert parse_settings(lines).unknown == passed_over
    with pytest.raises(BadInput, match="cannot listen"):
        namesrv_run(namesrv_arguments(tmp_path, f"{lines}bindAddress=192.0.2.1"))
    for where in ("broker.conf", "namesrv.conf"):
        assert f"keys of {where} without a meaning here: {', '.join(passed_over)}" in caplog.text
    cluster(sendMessageThreadPoolNums=4, warmMapedFileEnable=False)
    words = "keys of cluster() without a meaning here: sendMessageThreadPoolNums, warm"
    assert words in caplog.text


def namesrv_arguments(directory, text):
    file = directory / "namesrv.conf"
    file.write_text(text)
    return Namespace(
        config=str(file),
        port=0,
        bind=None,
        print_config=False,
        metrics_port=None,
        log_level=None,
        log_format=None,
    )


def test_a_secret_is_read_without_the_ends_of_its_lines(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b" s3cret\r\n\n")
    seen = []
    secret = read_secret_file(path, "the file", on_opened=lambda *given: seen.append(given))
    assert secret == " s3cret"
    assert seen == [(path.stat().st_mode, path)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff hidden", "not UTF-8"),
        (b"hidden" * MAX_SECRET_BYTES, "over 4096 bytes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_secret_is_refused_without_its_content_or_path(tmp_path, content, said):
    path = tmp_path / "hidden"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=f"^the file .*{said}") as refused:
        read_secret_file(path, "the file")
    assert "hidden" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_only_a_regular_file_is_opened_and_none_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, f"{tmp_path}/a\0b"):
        with pytest.raises(BadInput, match=r"^it "):
            open_regular(type(tmp_path)(path), "it")
    with open_regular(type(tmp_path)(os.devnull), "it") as file:
        assert file.read() == b""

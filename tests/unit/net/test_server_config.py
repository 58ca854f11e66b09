"""What every server's configuration is warned of, and refused for."""

import logging
import re
from argparse import Namespace

import pytest

from rocketlens.broker.config import parse_settings
from rocketlens.cli.servers.namesrv import run as namesrv_run
from rocketlens.errors import BadInput
from rocketlens.testing import cluster


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
    with pytest.raises(BadInput, match=f"namesrv.conf: {key}"):
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
    with pytest.raises(BadInput, match=f"namesrv.conf: {line.partition('=')[0].strip()}"):
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

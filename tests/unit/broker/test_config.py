"""What a ``broker.conf`` says of TLS, what is warned of, and what is refused."""

import pytest

from rocketlens.broker.config import parse_settings
from rocketlens.errors import BadInput
from rocketlens.net.tls import TlsMode


def test_a_file_of_tls_settings_counts_more_than_the_configuration(certificate, tmp_path):
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.certPath={certificate[0]}\ntls.server.keyPath={certificate[1]}\n"
        "tls.server.mode=permissive\nbrokerName=no-business-here\n"
    )
    settings = parse_settings(f"tls.config.file={file}\ntls.server.mode=disabled\nbrokerName=b\n")
    assert (settings.broker.brokerName, settings.unknown) == ("b", ())
    assert settings.tls.server.mode is TlsMode.PERMISSIVE
    assert settings.tls.server.context is not None


def test_a_file_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        parse_settings("tls.config.file=/no/such/tls.properties")
    with pytest.raises(BadInput, match="zero character"):
        parse_settings("tls.config.file=\\u0000")


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog"])
def test_a_path_with_a_zero_character_is_refused(key):
    with pytest.raises(BadInput, match=f"{key} has a zero character"):
        parse_settings(f"{key}=/tmp/a\\u0000b\n")


def test_configuration_comes_from_a_broker_conf(caplog):
    settings = parse_settings(
        "brokerName = b\nlistenPort=20911\nflushDiskType=SYNC_FLUSH\ntraceOn=false\n"
        "storePathRootDir=/data\nstorePathCommitLog=/data/commitlog\nnoSuchKey=1\n"
    )
    assert (settings.broker.brokerName, settings.broker.listenPort) == ("b", 20911)
    assert not settings.broker.traceOn
    assert settings.store.is_sync_flush
    assert str(settings.store_path) == "/data"
    assert settings.unknown == ("noSuchKey",)
    assert "noSuchKey" in caplog.text
    assert settings.with_broker(listenPort=1000).broker.listenPort == 1000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listenPort=x", "listenPort 'x' is not a whole number"),
        ("listenPort=2", "listenPort 2: the port two below is needed"),
        ("listenPort=70000", "listenPort 70000: give 0 to 65535"),
        ("traceOn=yes", "traceOn 'yes' is neither true nor false"),
        ("brokerName=a/b", "brokerName 'a/b': give 1 to 255 letters, digits"),
        ("brokerIP1=localhost", "brokerIP1 'localhost': give an IPv4 or IPv6 address"),
        ("brokerId=1", "this broker cannot be a slave"),
        ("brokerRole=SLAVE", "this broker cannot be a slave"),
        ("storePathCommitLog=/a,/b", "storePathCommitLog /a,/b: give the whole path of one"),
        ("storePathCommitLog=log", "storePathCommitLog log: give the whole path of one"),
        ("flushDiskType=NEVER", "flushDiskType 'NEVER'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(line, words):
    with pytest.raises(BadInput, match=words):
        parse_settings(line)

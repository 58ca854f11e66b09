"""What a ``broker.conf`` says of TLS, and what is warned of."""

import logging

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


@pytest.mark.parametrize(
    ("text", "is_warned_of"),
    [
        ("", False),
        ("brokerIP1=10.0.0.5\nbindAddress=127.0.0.1", False),
        ("brokerIP1=::1", False),
        ("brokerIP1=10.0.0.5", True),
        ("bindAddress=0.0.0.0", True),
        ("bindAddress=::", True),
    ],
)
def test_a_broker_that_everybody_reaches_is_warned_of(certificate, caplog, text, is_warned_of):
    pair = f"\ntls.server.certPath={certificate[0]}\ntls.server.keyPath={certificate[1]}\n"
    with caplog.at_level(logging.WARNING, logger="rocketlens.broker"):
        parse_settings(text)
        assert ("without TLS" in caplog.text) is is_warned_of
        caplog.clear()
        parse_settings(text + pair)
        assert caplog.text == ""
        parse_settings(f"{text}{pair}tls.server.mode=permissive\n")
        assert ("without TLS" in caplog.text) is is_warned_of

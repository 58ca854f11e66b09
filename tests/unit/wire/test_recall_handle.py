"""Handles of messages with a delivery time, as a broker of RocketMQ 5.5.0 made them."""

import base64

import pytest

from rocketlens.errors import BadInput
from rocketlens.wire.recall_handle import RecallHandle


def test_a_handle_names_topic_broker_time_and_key_as_rocketmqs_does():
    properties = {"REAL_TOPIC": "Orders", "TIMER_OUT_MS": "1795357009000", "UNIQ_KEY": "AAAA0009"}
    handle = RecallHandle.of(properties, "broker-a")
    assert handle is not None
    text = "djEgT3JkZXJzIGJyb2tlci1hIDE3OTUzNTcwMDkwMDEgQUFBQTAwMDk="
    assert handle.encode() == text
    assert base64.urlsafe_b64decode(text) == b"v1 Orders broker-a 1795357009001 AAAA0009"
    # Java reads it without the padding, too.
    assert RecallHandle.decode(text) == RecallHandle.decode(text.rstrip("=")) == handle
    retry = properties | {"REAL_TOPIC": "%RETRY%g"}
    assert RecallHandle.of(retry, "broker-a") is None
    assert RecallHandle.of({"UNIQ_KEY": "k"}, "broker-a") is None


@pytest.mark.parametrize(
    "text", ["", "?", "é", "djEgT3JkZXJz", base64.urlsafe_b64encode(b"v2 T b 1 K").decode()]
)
def test_what_is_no_handle_is_refused_in_rocketmqs_words(text):
    with pytest.raises(BadInput, match=r"^recall handle is invalid$"):
        RecallHandle.decode(text)

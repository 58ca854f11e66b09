"""A name server's configuration, under RocketMQ's keys."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.namesrv.config import NameServerConfig


def test_rocketmqs_keys_are_taken_and_unknown_ones_given_back():
    config, left = NameServerConfig.from_properties(
        {
            "listenPort": "9877",
            "kvConfigPath": "/var/kv.json",
            "orderMessageEnable": "true",
            "clusterTest": "false",
        }
    )
    assert (config.listenPort, str(config.kv_config_path)) == (9877, "/var/kv.json")
    assert config.orderMessageEnable
    assert config.bindAddress == "127.0.0.1"
    assert left == {"clusterTest": "false"}
    for wrong in ({"listenPort": "65536"}, {"listenPort": "x"}, {"orderMessageEnable": "yes"}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            NameServerConfig.from_properties(wrong)

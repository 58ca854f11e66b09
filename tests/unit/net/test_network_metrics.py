"""The values of a server's connections."""

from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits
from rocketlens.net.network_metrics import network_metrics


def test_every_count_of_connections_is_a_value():
    group = ChannelGroup(ConnectionLimits(connections=70))
    group.refused, group.closed_idle, group.closed_large = 1, 2, 3
    group.buffered, group.in_flight = 4, 5
    metrics = network_metrics(group, ("node",), ("a",))
    values = {each.samples[0].name: each.samples[0].value for each in metrics}
    assert values == {
        "rocketlens_connections": 0,
        "rocketlens_connections_max": 70,
        "rocketlens_connections_buffered_bytes": 4,
        "rocketlens_requests_in_flight": 5,
        "rocketlens_connections_refused_total": 1,
        "rocketlens_connections_closed_idle_total": 2,
        "rocketlens_connections_closed_large_total": 3,
    }
    assert all(each.samples[0].labels == {"node": "a"} for each in metrics)

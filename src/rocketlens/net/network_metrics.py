"""The connections of a server as values for Prometheus."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlens.net.channel import Channel
from rocketlens.net.channel_group import ChannelGroup

if TYPE_CHECKING:
    from prometheus_client import Metric


def network_metrics(
    network: ChannelGroup[Channel], labels: Sequence[str], node: Sequence[str]
) -> "list[Metric]":
    """Return the values of a server's connections; ``node`` has its labels' values."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    metrics: list[Metric] = []
    for name, meaning, number in (
        ("rocketlens_connections", "Open connections.", len(network.channels)),
        ("rocketlens_connections_max", "Connections allowed.", network.bounds.connections),
        (
            "rocketlens_connections_buffered_bytes",
            "Bytes that wait on all connections.",
            network.buffered,
        ),
        ("rocketlens_requests_in_flight", "Requests not answered yet.", network.in_flight),
    ):
        gauge = GaugeMetricFamily(name, meaning, labels=labels)
        gauge.add_metric(node, float(number))
        metrics.append(gauge)
    for name, meaning, number in (
        ("rocketlens_connections_refused", "Connections refused.", network.refused),
        (
            "rocketlens_connections_closed_idle",
            "Idle connections closed to make room for others.",
            network.closed_idle,
        ),
        (
            "rocketlens_connections_closed_large",
            "Connections closed or dropped because too many bytes waited.",
            network.closed_large,
        ),
    ):
        counter = CounterMetricFamily(name, meaning, labels=labels)
        counter.add_metric(node, float(number))
        metrics.append(counter)
    return metrics

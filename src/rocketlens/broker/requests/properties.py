"""Properties of a message as a broker stores them.

A broker adds MSG_REGION, TRACE_ON, CLUSTER and, if it is missing, UNIQ_KEY to the producer's
properties, and writes all in the order of Java's ``HashMap``. Producers send the same names again
and again, so the order is cached by the names.
"""

from typing import Final

from rocketlens.model import properties as props

REDIRECTING_NAMES: Final = props.TIMER_NAMES | {props.DELAY, props.TRANSACTION_PREPARED}
"""A message with one of these may be stored in another topic."""

_CACHED_ORDERS: Final = 10_000


class PropertyWriter:
    """Parses the properties of producers and writes those that are stored."""

    def __init__(self, *, region: str, trace_on: bool, cluster: str) -> None:
        self._region: Final = region
        self._trace_on: Final = "true" if trace_on else "false"
        self._cluster: Final = cluster
        self._orders: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}

    def parse(self, text: str) -> dict[str, str]:
        """Parse the string form and add the broker's own properties, but no unique key."""
        properties = props.parse(text)
        properties[props.MSG_REGION] = self._region
        properties[props.TRACE_ON] = self._trace_on
        properties[props.CLUSTER] = self._cluster
        if props.POP_CHECKPOINT in properties:
            del properties[props.POP_CHECKPOINT]
        return properties

    def add_key(self, properties: dict[str, str], unique_key: str) -> None:
        """Add a unique key to properties without one."""
        # Before CLUSTER: the two share a bucket, and RocketMQ adds the unique key first.
        del properties[props.CLUSTER]
        properties[props.UNIQUE_KEY] = unique_key
        properties[props.CLUSTER] = self._cluster

    def write(self, properties: dict[str, str]) -> bytes:
        """Return the string form in Java's order, with the last separator. No value may be
        empty.
        """
        names = tuple(properties)
        order = self._orders.get(names)
        if order is None:
            order = tuple(props.java_order(properties))
            if len(self._orders) >= _CACHED_ORDERS:
                self._orders.clear()
            self._orders[names] = order
        return "".join([f"{name}\x01{properties[name]}\x02" for name in order]).encode()

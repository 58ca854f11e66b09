"""Properties of a message as a broker stores them.

A broker puts MSG_REGION, TRACE_ON, CLUSTER and, where there is none, UNIQ_KEY into what the
producer sent, and writes all in the order of Java's ``HashMap``. Producers send the same names
again and again, so the order is remembered by the names.
"""

from typing import Final

from rocketlens.model import properties as props

REDIRECTING_NAMES: Final = props.TIMER_NAMES | {props.DELAY, props.TRANSACTION_PREPARED}
"""With one of these a message may be stored elsewhere than it says."""

_ORDERS_KEPT: Final = 10_000


class PropertyWriter:
    """Reads what producers send and writes what is stored."""

    def __init__(self, *, region: str, trace_on: bool, cluster: str) -> None:
        self._region: Final = region
        self._trace_on: Final = "true" if trace_on else "false"
        self._cluster: Final = cluster
        self._orders: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}

    def parse(self, text: str) -> dict[str, str]:
        """Read the string form and add the broker's own, a unique key apart."""
        properties = props.parse(text)
        properties[props.MSG_REGION] = self._region
        properties[props.TRACE_ON] = self._trace_on
        properties[props.CLUSTER] = self._cluster
        if props.POP_CHECKPOINT in properties:
            del properties[props.POP_CHECKPOINT]
        return properties

    def add_key(self, properties: dict[str, str], unique_key: str) -> None:
        """Add a unique key, which there is not yet."""
        # Before the cluster: the two share a bucket, and RocketMQ adds it first.
        del properties[props.CLUSTER]
        properties[props.UNIQUE_KEY] = unique_key
        properties[props.CLUSTER] = self._cluster

    def write(self, properties: dict[str, str]) -> bytes:
        """Write the string form in Java's order, with the last separator; none may be empty."""
        names = tuple(properties)
        order = self._orders.get(names)
        if order is None:
            order = tuple(props.java_order(properties))
            if len(self._orders) >= _ORDERS_KEPT:
                self._orders.clear()
            self._orders[names] = order
        return "".join([f"{name}\x01{properties[name]}\x02" for name in order]).encode()

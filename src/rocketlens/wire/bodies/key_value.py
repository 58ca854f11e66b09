"""Tables of text: a broker's runtime information (28), a name server's values (219)."""

from collections.abc import Mapping

from rocketlens.wire.declare import TEXT, declare, map_of, member


@declare("KVTable")
class KvTable:
    """Names and values, in their order."""

    table: Mapping[str, str] = member("table", map_of(TEXT, TEXT), default_factory=dict)

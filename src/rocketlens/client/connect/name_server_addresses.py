"""The name servers of a client, asked one after another until one responds."""

import os
from collections.abc import Iterable
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import NAME_SERVER_VARIABLES
from rocketlens.net.pool import parse_address

SCHEME: Final = "http://"
"""A prefix of RocketMQ's clients without a meaning."""


def name_server_addresses(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Parse ``"a:9876;b:9876"``, or several addresses; None for those of the environment.

    :raises BadInput: if there is none, or one is not an address.
    """
    if given is None:
        given = next(filter(None, map(os.environ.get, NAME_SERVER_VARIABLES)), "")
    if not isinstance(given, str):
        given = ";".join(given)
    # Other clients separate addresses by commas, and an address has none.
    parts = [part.strip().removeprefix(SCHEME) for part in given.replace(",", ";").split(";")]
    addresses = tuple(dict.fromkeys(filter(None, parts)))
    if not addresses:
        raise BadInput(
            "no name server is given: name one, such as 127.0.0.1:9876 (several with semicolons "
            f"between), or set {NAME_SERVER_VARIABLES[0]}"
        )
    for address in addresses:
        parse_address(address)
    return addresses

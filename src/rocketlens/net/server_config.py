"""Checks of configuration that a broker and a name server share."""

import logging
import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from rocketlens.model.config_keys import Configuration, keys_of
from rocketlens.model.rocketmq_config_keys import check_unknown_keys
from rocketlens.net.tls import TlsConfig, TlsMode, TlsSettings

_log: Final = logging.getLogger("rocketlens.config")


def warn_of_unknown(
    unknown: Mapping[str, str], tables: Sequence[type[Configuration]], where: str
) -> tuple[str, ...]:
    """Warn of unknown keys, and return them; every server knows the keys of TLS.

    :raises BadInput: if one must not be ignored.
    """
    names = [row.name for table in (*tables, TlsConfig) for row in keys_of(table)]
    passed_over = check_unknown_keys(unknown, names, where)
    if passed_over:
        _log.warning("keys of %s without a meaning here: %s", where, ", ".join(passed_over))
    return passed_over


def warn_if_open(address: str, tls: TlsSettings) -> None:
    """Warn of a server that other machines can reach and that does not authenticate clients."""
    if ip_address(address).is_loopback:
        return
    server = tls.server
    if server.mode is not TlsMode.ENFORCING or server.context is None:
        _log.warning(
            "listening on %s without TLS: everyone who reaches it can read and write everything",
            address,
        )
    elif server.context.verify_mode is not ssl.CERT_REQUIRED:
        _log.warning(
            "listening on %s with TLS, and clients need no certificate "
            "(tls.server.need.client.auth): everyone who reaches it can read and write everything",
            address,
        )

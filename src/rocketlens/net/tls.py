"""TLS as RocketMQ does it: on the same port as plain connections, told apart by the first byte.

==========  ==================================================================================
mode        what a server takes
==========  ==================================================================================
disabled    plain connections only
permissive  both; without a certificate, plain ones only. RocketMQ's default
enforcing   TLS only
==========  ==================================================================================

RocketMQ's permissive servers make up a certificate when they have none, which its clients accept
in their likewise default "test mode"; here a certificate must be given. Source: ``TlsHelper``,
``TlsSystemConfig``, ``NettyRemotingServer.HandshakeHandler``.
"""

import ssl
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from rocketlens.errors import BadInput


class TlsMode(StrEnum):
    """What a server takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ServerTls(NamedTuple):
    """A server's TLS; ``context`` from :func:`server_context`."""

    mode: TlsMode = TlsMode.DISABLED
    context: ssl.SSLContext | None = None


def server_context(
    certificate: Path, key: Path, *, password: str | None = None, client_ca: Path | None = None
) -> ssl.SSLContext:
    """Make a server's context from PEM files; with ``client_ca`` clients must have certificates.

    :raises BadInput: when a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, certificate, key, password)
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Make a client's context. Without ``ca`` the system's authorities are trusted.

    Host names are not checked, for brokers are known by addresses. ``verify=False`` takes any
    certificate, as RocketMQ's test mode does: encrypted, but to whom nobody knows.

    :raises BadInput: when a file cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None:
        _trust(context, ca)
    if certificate is not None:
        _load(context, certificate, key, password)
    return context


def _load(
    context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None
) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"certificate {certificate} with key {key}: {error}") from None


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"certificate authority {authority}: {error}") from None

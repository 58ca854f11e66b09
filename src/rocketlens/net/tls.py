"""TLS as RocketMQ does it: on the same port as plain connections, told apart by the first byte.

``tls.server.mode`` says which a server takes; without it a server that has a certificate takes
nothing else:

==========  ==================================================================================
mode        what a server takes
==========  ==================================================================================
disabled    plain connections only
permissive  both; without a certificate, plain ones only. RocketMQ's default
enforcing   TLS only
==========  ==================================================================================

RocketMQ's permissive servers make up a certificate when they have none, which its clients accept
in their likewise default "test mode"; here a certificate must be given. What RocketMQ takes from
system properties and a file stands in a server's configuration, under the same names:

============================  ================================================================
key                           meaning
============================  ================================================================
tls.config.file               a properties file with more of these keys, which counts more
tls.server.mode               see above
tls.server.certPath           the server's certificate and those that signed it, PEM
tls.server.keyPath            its key, PEM
tls.server.keyPassword        the key's password
tls.server.need.client.auth   whether clients show certificates: none (default), optional, require
tls.server.authClient         must be true for that: certificates that nobody checks mean nothing
tls.server.trustCertPath      who signed the clients' certificates, PEM
tls.enable                    a server uses TLS where it is a client, for example of name servers;
                              enforcing servers do in any case
tls.client.certPath           its certificate then, with keyPath and keyPassword
tls.client.authServer         whether it checks certificates: false (default) or true
tls.client.trustCertPath      who signed them, PEM; the system's authorities where none is given
tls.client.checkHostname      whether they must be for the host that was dialled: true where the
                              system's authorities are trusted, else false. Not of RocketMQ
tls.test.mode.enable          true is refused: no certificate is made up here
============================  ================================================================

Source: ``TlsHelper``, ``TlsSystemConfig``, ``NettyRemotingServer.HandshakeHandler``.
"""

import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

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


class TlsSettings(NamedTuple):
    """All TLS of a server: of its ports, and of what it calls itself."""

    server: ServerTls = ServerTls()
    client: ssl.SSLContext | None = None
    """None: plain connections."""


CONFIG_FILE_KEY: Final = "tls.config.file"
CHECK_HOSTNAME_KEY: Final = "tls.client.checkHostname"
TLS_KEYS: Final = (
    CONFIG_FILE_KEY,
    "tls.server.mode",
    "tls.server.certPath",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.need.client.auth",
    "tls.server.authClient",
    "tls.server.trustCertPath",
    "tls.enable",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
    "tls.client.authServer",
    "tls.client.trustCertPath",
    CHECK_HOSTNAME_KEY,
    "tls.test.mode.enable",
)


def tls_of_properties(values: Mapping[str, str]) -> tuple[TlsSettings, dict[str, str]]:
    """Take the keys above; gives what they say and the other entries. The files are read.

    :raises BadInput: when a value cannot be, keys contradict each other, or a file cannot be used.
    """
    mine = {key: values[key].strip() for key in TLS_KEYS if values.get(key, "").strip()}
    others = {key: value for key, value in values.items() if key not in TLS_KEYS}
    if _flag(mine, "tls.test.mode.enable"):
        raise BadInput(
            "tls.test.mode.enable: no certificate is made up here; give tls.server.certPath and "
            "tls.server.keyPath"
        )
    server = _server(mine)
    if not (_flag(mine, "tls.enable") or server.mode is TlsMode.ENFORCING):
        return TlsSettings(server), others
    certificate, key = _paths(mine, "tls.client.certPath", "tls.client.keyPath")
    client = client_context(
        ca=_path(mine, "tls.client.trustCertPath"),
        certificate=certificate,
        key=key,
        password=mine.get("tls.client.keyPassword"),
        verify=_flag(mine, "tls.client.authServer"),
        check_hostname=_flag(mine, CHECK_HOSTNAME_KEY) if CHECK_HOSTNAME_KEY in mine else None,
    )
    return TlsSettings(server, client), others


def _server(mine: Mapping[str, str]) -> ServerTls:
    certificate, key = _paths(mine, "tls.server.certPath", "tls.server.keyPath")
    default = TlsMode.PERMISSIVE if certificate is None else TlsMode.ENFORCING
    text = mine.get("tls.server.mode", default)
    try:
        mode = TlsMode(text.lower())
    except ValueError:
        raise BadInput(f"tls.server.mode {text[:40]!r}: give {', '.join(TlsMode)}") from None
    wanted = mine.get("tls.server.need.client.auth", "none").lower()
    if wanted not in ("none", "optional", "require"):
        raise BadInput("tls.server.need.client.auth: give none, optional or require")
    if mode is TlsMode.DISABLED:
        return ServerTls(mode)
    if certificate is None or key is None:
        if mode is TlsMode.ENFORCING:
            raise BadInput("TLS is to be enforced, but there is no tls.server.certPath")
        return ServerTls(mode)
    authority = _path(mine, "tls.server.trustCertPath")
    if wanted != "none" and not (_flag(mine, "tls.server.authClient") and authority):
        raise BadInput(
            f"tls.server.need.client.auth={wanted} needs tls.server.authClient=true and "
            "tls.server.trustCertPath"
        )
    context = server_context(
        certificate,
        key,
        password=mine.get("tls.server.keyPassword"),
        client_ca=None if wanted == "none" else authority,
        is_client_known=wanted == "require",
    )
    return ServerTls(mode, context)


def _path(mine: Mapping[str, str], key: str) -> Path | None:
    text = mine.get(key)
    if text is not None and "\0" in text:
        raise BadInput(f"{key} has a zero character in it")
    return None if text is None else Path(text)


def _paths(mine: Mapping[str, str], first: str, second: str) -> tuple[Path | None, Path | None]:
    """Give a certificate and its key, or neither."""
    if (first in mine) != (second in mine):
        raise BadInput(f"{first} and {second} belong together: give both")
    return _path(mine, first), _path(mine, second)


def _flag(mine: Mapping[str, str], key: str) -> bool:
    text = mine.get(key, "false").lower()
    if text not in ("true", "false"):
        raise BadInput(f"{key} {text[:40]!r} is neither true nor false")
    return text == "true"


def server_context(
    certificate: Path,
    key: Path,
    *,
    password: str | None = None,
    client_ca: Path | None = None,
    is_client_known: bool = True,
) -> ssl.SSLContext:
    """Make a server's context from PEM files; with ``client_ca`` clients must have certificates.

    They may have none when ``is_client_known`` is False; one that they have is checked.

    :raises BadInput: when a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, certificate, key, password)
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if is_client_known else ssl.CERT_OPTIONAL
    return context


def client_context(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    verify: bool = True,
    check_hostname: bool | None = None,
) -> ssl.SSLContext:
    """Make a client's context. Without ``ca`` the system's authorities are trusted.

    Then a certificate must be for the host or address that was dialled: these authorities sign
    certificates for anybody. With ``ca`` it need not, unless ``check_hostname`` is True, for
    brokers are known by addresses, and whoever has a certificate of that authority is one of us.
    ``verify=False`` takes any certificate, as RocketMQ's test mode does: encrypted, but to whom
    nobody knows.

    :raises BadInput: when a file cannot be used, or names are to be checked and nothing else is.
    """
    if check_hostname and not verify:
        raise BadInput("names of hosts cannot be checked where any certificate is taken")
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verify and (ca is None if check_hostname is None else check_hostname)
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

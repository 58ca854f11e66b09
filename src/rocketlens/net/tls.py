"""TLS as in RocketMQ: on the same port as plain connections, distinguished by the first byte.

``tls.server.mode`` is the mode of a server; by default, a server with a certificate is enforcing:

==========  ==================================================================================
mode        accepted connections
==========  ==================================================================================
disabled    plain connections only
permissive  both; without a certificate, plain ones only. RocketMQ's default
enforcing   TLS only
==========  ==================================================================================

RocketMQ's permissive servers generate a certificate if they have none, which its clients accept in
their default "test mode"; here a certificate must be given. RocketMQ reads system properties and a
file; here a server's configuration has the same keys: :class:`TlsConfig`. Source: ``TlsHelper``,
``TlsSystemConfig``, ``NettyRemotingServer.HandshakeHandler``.

Configuration checks that brokers and name servers share are here, too.
"""

import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats import java_properties
from rocketlens.model.config_keys import OURS, Configuration, KeyForm, key, keys_of
from rocketlens.model.rocketmq_config_keys import check_unknown_keys

_log: Final = logging.getLogger("rocketlens.config")


class TlsMode(StrEnum):
    """The connections that a server accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ServerTls(NamedTuple):
    """TLS of a server; ``context`` comes from :func:`server_context`."""

    mode: TlsMode = TlsMode.DISABLED
    context: ssl.SSLContext | None = None

    def properties(self) -> dict[str, str]:
        return {"tls.server.mode": self.mode.value}


class TlsSettings(NamedTuple):
    """All TLS settings of a server: of its ports, and of its own client connections."""

    server: ServerTls = ServerTls()
    client: ssl.SSLContext | None = None
    """None: plain connections."""


CONFIG_FILE_KEY: Final = "tls.config.file"


def _words_in_any_case(*values: str) -> KeyForm:
    *others, last = values
    return KeyForm(f"{', '.join(others)} or {last}", lambda text: text.lower() in values)


@dataclass(frozen=True, slots=True)
class TlsConfig(Configuration):
    """The TLS configuration of a server, with RocketMQ's names."""

    config_file: str = key(
        "",
        "A properties file with more of these keys, which take precedence.",
        name=CONFIG_FILE_KEY,
    )
    server_mode: str = key(
        "",
        "Accepted connections: plain ones, both, or TLS only. By default enforcing with a "
        "certificate; permissive without one is disabled.",
        allowed=_words_in_any_case(*TlsMode),
        name="tls.server.mode",
    )
    server_certificate: str = key(
        "", "The server's certificate chain, PEM.", name="tls.server.certPath"
    )
    server_key: str = key("", "Its key, PEM.", name="tls.server.keyPath")
    server_password: str = key("", "The key's password.", name="tls.server.keyPassword")
    client_auth: str = key(
        "none",
        "Client certificates: not requested, optional, or required.",
        allowed=_words_in_any_case("none", "optional", "require"),
        name="tls.server.need.client.auth",
    )
    checks_clients: bool = key(
        False,
        "Must be true with client certificates: unchecked ones mean nothing.",
        name="tls.server.authClient",
    )
    server_authority: str = key(
        "", "The authority of the clients' certificates, PEM.", name="tls.server.trustCertPath"
    )
    calls_with_tls: bool = key(
        False,
        "Use TLS for the server's own connections, for example to name servers; enforcing "
        "servers always do.",
        name="tls.enable",
    )
    client_certificate: str = key(
        "", "The certificate for these connections, PEM.", name="tls.client.certPath"
    )
    client_key: str = key("", "Its key, PEM.", name="tls.client.keyPath")
    client_password: str = key("", "The key's password.", name="tls.client.keyPassword")
    checks_servers: bool = key(
        False, "Check the certificates of other servers.", name="tls.client.authServer"
    )
    client_authority: str = key(
        "",
        "Their authority, PEM; by default the system's authorities.",
        name="tls.client.trustCertPath",
    )
    check_hostname: str = key(
        "",
        "Check that they match the host: by default true with the system's authorities, else "
        "false.",
        allowed=_words_in_any_case("true", "false"),
        since=OURS,
        name="tls.client.checkHostname",
    )
    test_mode: bool = key(
        False,
        "Must not be true: certificates are never generated. RocketMQ: true.",
        name="tls.test.mode.enable",
    )

    def check_together(self) -> None:
        """Check that RocketMQ's test mode is off, and that each certificate has its key.

        :raises BadInput: if not; the message has the keys.
        """
        if self.test_mode:
            raise BadInput(
                "tls.test.mode.enable: certificates are not generated; give "
                "tls.server.certPath and tls.server.keyPath"
            )
        for side in ("server", "client"):
            pair = getattr(self, f"{side}_certificate"), getattr(self, f"{side}_key")
            if (pair[0] == "") != (pair[1] == ""):
                raise BadInput(
                    f"tls.{side}.certPath and tls.{side}.keyPath belong together: give both"
                )


def tls_of_properties(values: Mapping[str, str]) -> tuple[TlsSettings, dict[str, str]]:
    """Return the TLS settings, and the other entries. Reads the files that keys name.

    :raises BadInput: if a value is not allowed, keys contradict each other, or a file cannot be
        used.
    :raises OSError: if the file in ``tls.config.file`` cannot be read.
    """
    values = {**values, **_file_entries(values.get(CONFIG_FILE_KEY, "").strip())}
    names = {row.name for row in keys_of(TlsConfig)}
    # An empty value counts as unset.
    values = {name: text for name, text in values.items() if name not in names or text.strip()}
    config, others = TlsConfig.from_properties(values)
    server = _server(config)
    if not (config.calls_with_tls or server.mode is TlsMode.ENFORCING):
        return TlsSettings(server), others
    client = client_context(
        ca=_path(config.client_authority),
        certificate=_path(config.client_certificate),
        key=_path(config.client_key),
        password=config.client_password or None,
        verify=config.checks_servers,
        check_hostname=config.check_hostname.lower() == "true" if config.check_hostname else None,
    )
    return TlsSettings(server, client), others


def _file_entries(file: str) -> dict[str, str]:
    """Return the TLS keys in a file; empty without a file."""
    if not file:
        return {}
    if "\0" in file:
        raise BadInput(f"{CONFIG_FILE_KEY} has a zero character in it")
    with Path(file).open("rb") as opened:
        content = opened.read(limits.MAX_SERVER_CONFIG_BYTES)
    # Java reads such a file as Latin-1.
    entries = java_properties.loads(content.decode("latin-1"))
    return {name: text for name, text in entries.items() if name.startswith("tls.")}


def _server(config: TlsConfig) -> ServerTls:
    certificate, key_file = _path(config.server_certificate), _path(config.server_key)
    default = TlsMode.PERMISSIVE if certificate is None else TlsMode.ENFORCING
    mode = TlsMode(config.server_mode.lower() or default)
    if mode is TlsMode.DISABLED:
        return ServerTls(mode)
    if certificate is None or key_file is None:
        if mode is TlsMode.ENFORCING:
            raise BadInput("TLS is enforced, but there is no tls.server.certPath")
        return ServerTls(mode)
    client_auth, authority = config.client_auth.lower(), _path(config.server_authority)
    if client_auth != "none" and not (config.checks_clients and authority):
        raise BadInput(
            f"tls.server.need.client.auth={client_auth} needs tls.server.authClient=true and "
            "tls.server.trustCertPath"
        )
    context = server_context(
        certificate,
        key_file,
        password=config.server_password or None,
        client_ca=None if client_auth == "none" else authority,
        is_client_known=client_auth == "require",
    )
    return ServerTls(mode, context)


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def server_context(
    certificate: Path,
    key: Path,
    *,
    password: str | None = None,
    client_ca: Path | None = None,
    is_client_known: bool = True,
) -> ssl.SSLContext:
    """Return a server's context from PEM files; with ``client_ca`` clients must have certificates.

    If ``is_client_known`` is False, certificates are optional; a given one is checked.

    :raises BadInput: if a file cannot be used.
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
    """Return a client's context. Without ``ca`` the system's authorities are trusted.

    Then a certificate must match the host or address, because these authorities sign certificates
    for any owner. With ``ca`` it need not, unless ``check_hostname`` is True: brokers are known by
    addresses, and every certificate of that authority is trusted. ``verify=False`` accepts any
    certificate, as RocketMQ's test mode does: the connection is encrypted, but the server is not
    authenticated.

    :raises BadInput: if a file cannot be used, or ``check_hostname`` is True without ``verify``.
    """
    if check_hostname and not verify:
        raise BadInput("host names cannot be checked if any certificate is accepted")
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
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"certificate {certificate} with key {key}: {_reason(error)}") from None


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"certificate authority {authority}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    """Return why a file cannot be used, in the system's words if it has some."""
    reason = None if isinstance(error, ssl.SSLError) else error.strerror
    return reason or str(error)


def warn_of_unknown(
    unknown: Mapping[str, str], tables: Sequence[type[Configuration]], where: str
) -> tuple[str, ...]:
    """Warn of unknown keys, and return them; every server has the TLS keys.

    :raises BadInput: if a key must not be ignored.
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

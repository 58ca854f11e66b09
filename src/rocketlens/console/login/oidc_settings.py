"""The OpenID Connect provider of a console: the table ``[oidc]`` of its users file.

::

    [oidc]
    issuer = "https://login.example.com/realms/shop"
    client_id = "rocketlens"
    client_secret_file = "oidc.secret"       # or client_secret_env = "OIDC_SECRET", or neither
    public_url = "https://rocketlens.example.com"    # where browsers reach this console
    label = "Example"                        # on the button; without it: the issuer's host
    scopes = ["openid", "profile", "email"]  # the default
    name_claim = "email"                     # without it: preferred_username
    groups_claim = "realm_access.roles"      # without it: groups
    ca = "company-ca.pem"                    # without it: the system's authorities
    provider_logout = false                  # a logout keeps the provider's session

    [[oidc.rules]]                           # for members of any of these groups
    groups = ["rocketmq-*"]
    role = "operator"                        # as in a grant of a local user
    topics = ["order-*"]

    [[oidc.rules]]                           # for these users
    users = ["li@example.com"]
    role = "admin"

Paths are relative to the file's directory. A nested claim has dots in its name. A user without a
matching rule may not log in.
"""

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from rocketlens.console.login.viewer import (
    GRANT_KEYS,
    Grant,
    Viewer,
    checked_table,
    grant_of,
    is_texts,
)
from rocketlens.errors import BadInput
from rocketlens.net.tls import client_context
from rocketlens.terminal.contexts import read_secret

MAX_OIDC_NAME_CHARACTERS: Final = 255
"""Characters of a user name, and of a group in a rule. OpenID Connect allows 255 for a subject."""
OIDC_PATH: Final = "/login/oidc"
"""The path that starts a login."""
CALLBACK_PATH: Final = f"{OIDC_PATH}/callback"
"""The redirect URI, which has to be registered at the provider."""
OIDC_PREFIX: Final = "oidc:"
"""The prefix of the provider's users. Local names have no colon, so names are unique."""
_TEXTS: Final = (
    *("issuer", "client_id", "client_secret_file", "client_secret_env", "public_url", "label"),
    *("name_claim", "groups_claim", "ca"),
)
OIDC_KEYS: Final = frozenset({*_TEXTS, "scopes", "provider_logout", "rules"})
_SCOPES: Final = ("openid", "profile", "email")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, section 3.3."""


class OidcRule(Struct, frozen=True):
    """A grant for users in any of some groups, or with one of some names."""

    grant: Grant
    groups: re.Pattern[str] | None = None
    users: re.Pattern[str] | None = None

    def is_for(self, name: str, groups: Iterable[str]) -> bool:
        if self.users is not None and self.users.fullmatch(name):
            return True
        return self.groups is not None and any(map(self.groups.fullmatch, groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The ``[oidc]`` table: the provider, and the rights of its users."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    public_url: str | None = None
    """The console's address for browsers, without a slash at the end."""
    label: str
    scopes: tuple[str, ...] = _SCOPES
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    provider_logout: bool = True
    rules: tuple[OidcRule, ...] = ()
    tls: ssl.SSLContext = field(repr=False, compare=False)

    @property
    def public_host(self) -> str | None:
        return None if self.public_url is None else urlsplit(self.public_url).hostname

    @property
    def needed_claims(self) -> tuple[str, ...]:
        """The claims that decide about a user's rights."""
        has_groups = any(each.groups is not None for each in self.rules)
        return (self.name_claim, self.groups_claim) if has_groups else (self.name_claim,)

    def viewer(self, name: str, groups: Iterable[str]) -> Viewer:
        """Return a user of the provider; without grants if no rule matches."""
        group_names = frozenset(groups)
        grants = (each.grant for each in self.rules if each.is_for(name, group_names))
        return Viewer(f"{OIDC_PREFIX}{name}", tuple(grants))


def oidc_settings(where: str, value: Any, directory: Path) -> OidcSettings:
    """Return the settings of a table. Reads the files that it names.

    :param where: The name of the table in errors.
    :param directory: The directory of relative paths.
    :raises BadInput: if the table is not valid, or a file cannot be used.
    """
    table = checked_table(where, value, "[oidc]", OIDC_KEYS)
    texts = {key: _text(where, table, key) for key in _TEXTS if key in table}
    for key in ("issuer", "client_id"):
        if key not in texts:
            raise BadInput(f"{where}: {key} is missing")
    issuer = _url(f"{where}: issuer", texts["issuer"])
    if issuer.scheme != "https" and not is_loopback(issuer.hostname or ""):
        raise BadInput(f"{where}: issuer must be https, unless it is on the loopback interface")
    provider_logout = table.get("provider_logout", True)
    if not isinstance(provider_logout, bool):
        raise BadInput(f"{where}: provider_logout must be true or false")
    optional = {key: texts[key] for key in ("name_claim", "groups_claim") if key in texts}
    public_url = texts.get("public_url")
    if public_url and _url(f"{where}: public_url", public_url).path not in {"", "/"}:
        raise BadInput(f"{where}: public_url has a path, which is not supported")
    ca = texts.get("ca")
    return OidcSettings(
        issuer=texts["issuer"],
        client_id=texts["client_id"],
        client_secret=_secret(where, texts, directory),
        public_url=None if public_url is None else public_url.removesuffix("/"),
        label=texts.get("label") or issuer.hostname or "",
        scopes=_scopes(where, table.get("scopes", list(_SCOPES))),
        provider_logout=provider_logout,
        rules=_rules(where, table.get("rules")),
        tls=client_context(
            ca=None if ca is None else directory / Path(ca).expanduser(), check_hostname=True
        ),
        **optional,
    )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim, or a nested one by a name with dots; None if it is missing."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    text = table[key]
    if not isinstance(text, str) or not text or not text.isprintable():
        raise BadInput(f"{where}: {key} must be a text in quotes, and not empty")
    return text


def _url(where: str, text: str) -> SplitResult:
    """Parse an http or https URL without user, query and fragment."""
    is_plain = text.isascii() and not any(each in "@?#" or each.isspace() for each in text)
    try:
        parts = urlsplit(text)
        if is_plain and parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        # Invalid brackets or port.
        pass
    raise BadInput(f"{where} must be an address, as https://login.example.com/realms/shop")


def _secret(where: str, texts: Mapping[str, str], directory: Path) -> str | None:
    """Return the secret of this client; None if it has none."""
    file, variable = texts.get("client_secret_file"), texts.get("client_secret_env")
    if file is not None and variable is not None:
        raise BadInput(f"{where}: give client_secret_file or client_secret_env, not both")
    if file is not None:
        path = directory / Path(file).expanduser()
        return read_secret(path, "the client's secret (client_secret_file)")
    if variable is None:
        return None
    secret = os.environ.get(variable)
    if not secret:
        raise BadInput(f"{where}: client_secret_env names a variable that is not set")
    return secret


def _scopes(where: str, value: Any) -> tuple[str, ...]:
    if not is_texts(value) or "openid" not in value or not all(map(_SCOPE.fullmatch, value)):
        raise BadInput(f'{where}: scopes must be a list with "openid", as ["openid", "email"]')
    return tuple(value)


def _rules(where: str, tables: Any) -> tuple[OidcRule, ...]:
    if not isinstance(tables, list) or not tables:
        raise BadInput(f"{where}: its users have no rights: add [[oidc.rules]]")
    return tuple(
        _rule(f"{where}: rule number {number}", table) for number, table in enumerate(tables, 1)
    )


def _rule(where: str, value: Any) -> OidcRule:
    table = checked_table(where, value, "[[oidc.rules]]", GRANT_KEYS | {"groups", "users"})
    rest = {key: each for key, each in table.items() if key not in {"groups", "users"}}
    given = {key: _names(where, key, table[key]) for key in ("groups", "users") if key in table}
    if not given:
        raise BadInput(f'{where}: groups and users are missing: give one; ["*"] matches all')
    return OidcRule(grant_of(where, rest), given.get("groups"), given.get("users"))


def _names(where: str, key: str, value: Any) -> re.Pattern[str]:
    """Return a pattern that matches any of the names. Only ``*`` and ``?`` are special."""
    lengths = range(1, MAX_OIDC_NAME_CHARACTERS + 1)
    is_valid = is_texts(value) and all(len(e) in lengths and e.isprintable() for e in value)
    if not is_valid or not value:
        raise BadInput(f'{where}: {key} must be a list of names with * and ?, as ["shop-*"]')
    return re.compile("|".join(translate(each.replace("[", "[[]")) for each in value))

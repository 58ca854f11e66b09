"""The keys of ``broker.conf`` for access control, of RocketMQ 4 (``aclEnable``) and 5.

Source: ``BrokerConfig``, ``AuthConfig``.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketlens.errors import BadInput, CommandBodyError
from rocketlens.model.config_keys import SINCE_5, Configuration, KeyForm, key
from rocketlens.model.text.json_dialect import loads

HOME_VARIABLE: Final = "ROCKETMQ_HOME"
_SECRET_KEYS: Final = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
_PACKAGE: Final = "org.apache.rocketmq.auth."


def _provider(meaning: str, *names: str) -> Any:
    """Declare a key that accepts only RocketMQ's own classes: no other class can be loaded."""
    accepted = frozenset(_PACKAGE + name for name in names)
    form = KeyForm(" or ".join(sorted(accepted)), accepted.__contains__)
    return key("", meaning, allowed=form, since=SINCE_5)


_STRATEGIES: Final = "Either class checks every request."


@dataclass(frozen=True, slots=True, repr=False)
class AuthConfig(Configuration):
    """The settings of access control. It is off by default."""

    aclEnable: bool = key(
        False, "Accounts of conf/plain_acl.yml, as RocketMQ 4 has them. RocketMQ 5.5: no effect."
    )
    rocketmqHome: str = key(
        "", "The directory with conf/plain_acl.yml and conf/acl; $ROCKETMQ_HOME unless set."
    )
    authenticationEnabled: bool = key(False, "Requests must be signed by a user.", since=SINCE_5)
    authorizationEnabled: bool = key(
        False, "Users may do what policies allow; needs authenticationEnabled.", since=SINCE_5
    )
    initAuthenticationUser: str = key(
        "",
        'The first user, who may do everything: {"username":"...","password":"..."}. '
        "A user of that name stays as it is.",
        since=SINCE_5,
    )
    innerClientAuthenticationCredentials: str = key(
        "",
        'The same for brokers and proxies: {"accessKey":"...","secretKey":"..."}.',
        since=SINCE_5,
    )
    authenticationWhitelist: str = key(
        "", "Request codes that need no user, with commas between them.", since=SINCE_5
    )
    authorizationWhitelist: str = key(
        "", "Request codes that every user may send, with commas between them.", since=SINCE_5
    )
    migrateAuthFromV1Enabled: bool = key(
        False, "Create users from the accounts of plain_acl.yml at the start.", since=SINCE_5
    )
    authenticationProvider: str = _provider(
        "The class that checks signatures.", "authentication.provider.DefaultAuthenticationProvider"
    )
    authenticationMetadataProvider: str = _provider(
        "The class that keeps users; here they are in config/authUsers.json.",
        "authentication.provider.LocalAuthenticationMetadataProvider",
    )
    authenticationStrategy: str = _provider(
        _STRATEGIES,
        "authentication.strategy.StatelessAuthenticationStrategy",
        "authentication.strategy.StatefulAuthenticationStrategy",
    )
    authorizationProvider: str = _provider(
        "The class that checks policies.", "authorization.provider.DefaultAuthorizationProvider"
    )
    authorizationMetadataProvider: str = _provider(
        "The class that keeps policies; here they are in config/authAcls.json.",
        "authorization.provider.LocalAuthorizationMetadataProvider",
    )
    authorizationStrategy: str = _provider(
        _STRATEGIES,
        "authorization.strategy.StatelessAuthorizationStrategy",
        "authorization.strategy.StatefulAuthorizationStrategy",
    )

    def check_together(self) -> None:
        """:raises BadInput: if keys contradict each other. The message has no secret."""
        if self.aclEnable and self.authenticationEnabled:
            raise BadInput(
                "aclEnable and authenticationEnabled are two kinds of access control: set one; "
                "migrateAuthFromV1Enabled=true creates users from the accounts"
            )
        if self.authorizationEnabled and not self.authenticationEnabled:
            raise BadInput(
                "authorizationEnabled=true: set authenticationEnabled=true, too; "
                "without it, a client could claim to be any user"
            )
        if self.migrateAuthFromV1Enabled and not self.authenticationEnabled:
            raise BadInput("migrateAuthFromV1Enabled=true: set authenticationEnabled=true, too")
        for name in ("authenticationWhitelist", "authorizationWhitelist"):
            for word in getattr(self, name).split(","):
                _check_code(name, word.strip())
        self.first_users()

    @property
    def is_on(self) -> bool:
        return self.aclEnable or self.authenticationEnabled

    @property
    def home(self) -> Path:
        """The directory with ``conf/plain_acl.yml``.

        :raises BadInput: if neither ``rocketmqHome`` nor the environment sets it.
        """
        home = self.rocketmqHome or os.environ.get(HOME_VARIABLE, "")
        if not home:
            raise BadInput(
                "aclEnable=true: set rocketmqHome, or $ROCKETMQ_HOME, to the directory that has "
                "conf/plain_acl.yml"
            )
        return Path(home)

    def first_users(self) -> list[tuple[str, str]]:
        """Return name and password of each user that the configuration creates.

        :raises BadInput: if a value is invalid. The message has no part of it.
        """
        pairs = (
            ("initAuthenticationUser", "username", "password"),
            ("innerClientAuthenticationCredentials", "accessKey", "secretKey"),
        )
        users = []
        for name, user, password in pairs:
            text = getattr(self, name)
            if text.strip():
                users.append(_pair(name, text, user, password))
        return users

    def properties(self) -> dict[str, str]:
        """Return the keys without secrets, as a configuration file has them."""
        # Not super(): the decorator replaces a class with slots, and super() would miss it.
        shown = Configuration.properties(self)
        return {name: value for name, value in shown.items() if name not in _SECRET_KEYS}


def codes_in(whitelist: str) -> frozenset[int]:
    names = (each.strip() for each in whitelist.split(","))
    return frozenset(int(word) for word in names if word.isascii() and word.isdigit())


def _check_code(name: str, word: str) -> None:
    """Check a request code, or the name of a call of RocketMQ's proxy, which has no effect."""
    if word and not (word.isascii() and (word.isdigit() or "." in word) and len(word) < 200):
        raise BadInput(f"{name} {word[:40]!r}: give request codes with commas between them")


def _pair(name: str, text: str, user: str, password: str) -> tuple[str, str]:
    try:
        value: Any = loads(text.encode("utf-8", "replace"), CommandBodyError)
    except CommandBodyError:
        value = None
    pair = [value.get(user), value.get(password)] if isinstance(value, dict) else []
    texts = [each for each in pair if isinstance(each, str) and each.strip()]
    if len(texts) != 2:
        raise BadInput(f'{name} is not of the form {{"{user}":"...","{password}":"..."}}')
    return texts[0], texts[1]


NO_AUTH: Final = AuthConfig()

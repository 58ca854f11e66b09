"""The users file of a console: passwords, rights, and masks.

::

    [users.li]
    password = "scrypt$32768$8$3$..."     # rocketlens console --hash-password

    [[users.li.grants]]
    role = "viewer"                       # or operator, or admin
    sources = ["prod"]                    # source names, with * and ?; without it: all
    topics = ["order-*", "%DLQ%*"]        # without it: all

    [[users.li.grants]]
    role = "operator"
    topics = ["order-test"]

It also has masks (`rocketlens.console.sources.masks`) and an OpenID Connect provider
(`rocketlens.console.login.oidc_settings`), with or without local users. The console reads it once
at its start. Only its owner may write it. Errors quote neither hashes nor names: a name can be a
password in the wrong position.

Passwords are scrypt hashes with parameters and salt in base64::

    scrypt$32768$8$3$SALT$HASH          # N, r, p

A hash takes 128 * N * r bytes of memory and tenths of a second on purpose, so HASH_THREADS compute
two at a time.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from rocketlens import limits
from rocketlens.console.login.oidc_settings import OidcSettings, oidc_settings
from rocketlens.console.login.viewer import Viewer, checked_table, grant_of, is_texts, patterns_in
from rocketlens.console.sources.masks import SEARCHED, FieldPath, MaskRule, Masks
from rocketlens.errors import BadInput
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.net.secret_file import open_regular
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.terminal.contexts import check_owner, toml_of, warn_of_readers

MAX_PASSWORD_CHARACTERS: Final = 1024
"""Characters of a password."""
MAX_PASSWORD_BYTES: Final = 256 << 20
"""Memory of one hash, which makes guessing expensive."""
MAX_PASSWORD_LANES: Final = 16
"""scrypt's p."""
HASH_THREADS: Final = WorkThreads(2, "console-passwords")
_NAME: Final = "scrypt"
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_COSTS: Final = (1 << 15, 8, 3)
"""N, r and p from OWASP's password storage cheat sheet: 32 MiB."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The scrypt hash of a password."""

    costs: tuple[int, int, int]
    """N, r and p."""
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, costs: tuple[int, int, int] = _COSTS) -> Self:
        """Hash a password with a new salt.

        :raises BadInput: if the password is empty or too long.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(costs, salt, _digest(_normalize(password), salt, costs))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a hash. Errors do not quote it.

        :raises BadInput: if it is not a hash, or too expensive.
        """
        name, *parts = text.split("$")
        try:
            cost, block_size, parallel = map(int, parts[:3])
            salt, digest = (base64.b64decode(each, validate=True) for each in parts[3:])
        except (ValueError, binascii.Error):
            raise _not_a_hash("it is not of the form scrypt$N$r$p$SALT$HASH") from None
        if name != _NAME or len(salt) < _SALT_BYTES // 2 or len(digest) < _HASH_BYTES:
            raise _not_a_hash("it is no scrypt hash, or a short one")
        is_power = cost > 1 and cost & (cost - 1) == 0
        is_small = block_size > 0 and 0 < parallel <= MAX_PASSWORD_LANES
        if not is_power or not is_small or 128 * cost * block_size > MAX_PASSWORD_BYTES:
            raise _not_a_hash("its N, r or p cannot be, or takes too much memory")
        return cls((cost, block_size, parallel), salt, digest)

    def __str__(self) -> str:
        costs = "$".join(map(str, self.costs))
        salt, digest = (base64.b64encode(each).decode("ascii") for each in (self.salt, self.digest))
        return f"{_NAME}${costs}${salt}${digest}"

    async def fits(self, password: str) -> bool:
        """Return whether a password matches. Takes the same time if it does not."""
        is_possible = 0 < len(password) <= MAX_PASSWORD_CHARACTERS
        text = _normalize(password if is_possible else "-")
        size = len(self.digest)
        digest = await in_thread(lambda: _digest(text, self.salt, self.costs, size), HASH_THREADS)
        return hmac.compare_digest(digest, self.digest) and is_possible


def _normalize(password: str) -> str:
    if not password:
        raise BadInput("the password is empty")
    if len(password) > MAX_PASSWORD_CHARACTERS:
        raise BadInput(f"the password has over {MAX_PASSWORD_CHARACTERS} characters")
    # Keyboards can compose the same character in several ways.
    return unicodedata.normalize("NFKC", password)


def _digest(
    password: str, salt: bytes, costs: tuple[int, int, int], size: int = _HASH_BYTES
) -> bytes:
    cost, block_size, parallel = costs
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=cost,
        r=block_size,
        p=parallel,
        maxmem=2 * MAX_PASSWORD_BYTES,
        dklen=size,
    )


def _not_a_hash(why: str) -> BadInput:
    return BadInput(
        f"this is not a password hash: {why}; make one: rocketlens console --hash-password"
    )


_USER_NAME: Final = re.compile(r"[^\x00-\x20:\x7f]{1,64}")
"""No colon, which ends the name in HTTP Basic authentication."""


class LocalUser(Struct, frozen=True):
    """A user with a password."""

    password: PasswordHash
    viewer: Viewer


class LocalUsers:
    """The content of a users file."""

    def __init__(
        self,
        users: Iterable[LocalUser],
        masks: Masks | None = None,
        oidc: OidcSettings | None = None,
    ) -> None:
        """:raises BadInput: if there is neither a user nor a provider."""
        self._by_name: Final = {each.viewer.name: each for each in users}
        if not self._by_name and oidc is None:
            raise BadInput(
                "the users file has no user: add [users.NAME] with a password, or [oidc]"
            )
        self.masks: Final = masks or Masks()
        self.oidc: Final = oidc
        self._hashes: Final = [each.password for each in self._by_name.values()]

    def __len__(self) -> int:
        return len(self._by_name)

    def viewer_named(self, name: str) -> Viewer:
        """Return a user by name, for ``--user``.

        :raises BadInput: if there is no such user.
        """
        user = self._by_name.get(name)
        if user is None:
            raise BadInput(f"--user {name[:80]!r}: the users file has no such user")
        return user.viewer

    async def viewer_of(self, name: str, password: str) -> Viewer | None:
        """Return the user of a password; None if the name or the password is wrong.

        An unknown name takes as long as a wrong password.
        """
        user = self._by_name.get(name)
        if not self._by_name:
            return None
        if user is None:
            # Costs differ by hash: an unknown name always uses the same one.
            await self._hashes[sum(name.encode("utf-8", "replace")) % len(self)].fits(password)
            return None
        return user.viewer if await user.password.fits(password) else None


def read_users(path: Path) -> LocalUsers:
    """Read a users file.

    :raises BadInput: if it cannot be read or is not valid. The message names the table.
    """
    declared = checked_table(f"{path}", _load(path), "", {"users", "masks", "oidc"})
    tables = declared.get("users", {})
    if not isinstance(tables, dict):
        raise BadInput(f"{path}: users must be tables: [users.NAME]")
    masks = declared.get("masks", [])
    if not isinstance(masks, list):
        raise BadInput(f"{path}: masks must be tables: [[masks]]")
    return LocalUsers(
        [
            _user(f"{path}: user number {number}", name, table)
            for number, (name, table) in enumerate(tables.items(), 1)
        ],
        Masks(
            _mask(f"{path}: mask number {number}", table) for number, table in enumerate(masks, 1)
        ),
        oidc_settings(f"{path}: oidc", declared["oidc"], path.parent)
        if "oidc" in declared
        else None,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path, f"{path}") as file:
            check_owner(file, path)
            warn_of_readers(os.fstat(file.fileno()).st_mode, path)
            content = file.read(limits.MAX_CONTEXTS_BYTES + 1)
    except OSError as error:
        raise BadInput(f"cannot read the users file {path}: {error.strerror or error}") from error
    return toml_of(path, content)


def _user(where: str, name: str, value: Any) -> LocalUser:
    table = checked_table(where, value, "[users.NAME]", {"password", "grants"})
    if not _USER_NAME.fullmatch(name):
        raise BadInput(f"{where}: a name has 1 to 64 characters, without spaces and colons")
    text = table.get("password")
    if not isinstance(text, str):
        raise BadInput(f"{where}: password is missing: rocketlens console --hash-password makes it")
    try:
        password = PasswordHash.parse(text)
    except BadInput as error:
        raise BadInput(f"{where}: password: {error}") from None
    grants = table.get("grants", [])
    if not isinstance(grants, list) or not grants:
        raise BadInput(f"{where}: it has no rights: add [[users.NAME.grants]] with a role")
    return LocalUser(
        password, Viewer(name, tuple(grant_of(f"{where}, a grant", each) for each in grants))
    )


def _mask(where: str, value: Any) -> MaskRule:
    table = checked_table(where, value, "[[masks]]", {"topics", "properties", "paths", "pattern"})
    paths, pattern = table.get("paths", []), table.get("pattern")
    if not is_texts(paths):
        raise BadInput(f'{where}: paths must be a list, as ["$.card.number"]')
    given = table.get("properties")
    names = () if given is None else patterns_in(where, "properties", given)
    if SEARCHED & set(names):
        searched = ", ".join(sorted(SEARCHED))
        raise BadInput(f"{where}: {searched} can be searched for, and cannot be masked")
    if not (names or paths or pattern):
        raise BadInput(f"{where}: it masks nothing: give properties, paths or pattern")
    topics = patterns_in(where, "topics", table["topics"]) if "topics" in table else ("*",)
    try:
        made = None if pattern is None else TextPattern(pattern)
        rule = MaskRule(topics, names, tuple(map(FieldPath, paths)), made)
        # Fail now, not at the first message, if the package is missing.
        rule.without_pattern("")
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    return rule

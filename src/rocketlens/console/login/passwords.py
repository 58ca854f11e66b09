"""Passwords of local users, kept as scrypt hashes with their parameters and salt.

::

    scrypt$32768$8$3$SALT$HASH          # N, r, p; salt and hash in base64

A hash takes 128 * N * r bytes of memory and some tenths of a second on purpose, so few are computed
at once, in threads, and few more may wait.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Final, Self

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.net.pace import WorkThreads, in_thread

HASH_THREADS: Final = WorkThreads(2, "console-passwords")
_NAME: Final = "scrypt"
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_COSTS: Final = (1 << 15, 8, 3)
"""N, r and p as OWASP's cheat sheet for passwords has them: 32 MiB."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The scrypt hash of a password."""

    cost: int
    block_size: int
    parallel: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, costs: tuple[int, int, int] = _COSTS) -> Self:
        """Return the hash of a password with a new salt.

        :raises BadInput: if the password is empty or too long.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(*costs, salt, _digest(_checked(password), salt, costs))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the hash that a text is; the text is not quoted in an error.

        :raises BadInput: if it is not one, or one that takes too long.
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
        is_small = block_size > 0 and 0 < parallel <= limits.MAX_PASSWORD_LANES
        if not is_power or not is_small or 128 * cost * block_size > limits.MAX_PASSWORD_BYTES:
            raise _not_a_hash("its N, r or p cannot be, or takes too much memory")
        return cls(cost, block_size, parallel, salt, digest)

    def __str__(self) -> str:
        """Return it as it stands in a file of users."""
        costs = f"{self.cost}${self.block_size}${self.parallel}"
        salt, digest = (base64.b64encode(each).decode("ascii") for each in (self.salt, self.digest))
        return f"{_NAME}${costs}${salt}${digest}"

    @property
    def costs(self) -> tuple[int, int, int]:
        """N, r and p."""
        return self.cost, self.block_size, self.parallel

    async def fits(self, password: str) -> bool:
        """Return whether a password is that of the hash; takes as long if it is not."""
        is_possible = 0 < len(password) <= limits.MAX_PASSWORD_CHARACTERS
        text = _checked(password if is_possible else "-")
        size = len(self.digest)
        digest = await in_thread(lambda: _digest(text, self.salt, self.costs, size), HASH_THREADS)
        return hmac.compare_digest(digest, self.digest) and is_possible


def _checked(password: str) -> str:
    if not password:
        raise BadInput("the password is empty")
    if len(password) > limits.MAX_PASSWORD_CHARACTERS:
        raise BadInput(f"the password has over {limits.MAX_PASSWORD_CHARACTERS} characters")
    # The same characters, however a keyboard composes them.
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
        maxmem=2 * limits.MAX_PASSWORD_BYTES,
        dklen=size,
    )


def _not_a_hash(why: str) -> BadInput:
    return BadInput(
        f"this is not a password hash: {why}; make one: rocketlens console --hash-password"
    )

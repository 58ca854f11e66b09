"""Signed requests of RocketMQ's access control since 4.4 ("ACL 1.0").

A client adds ``AccessKey`` (and ``SecurityToken``, if it has one) to ``ext_fields``, and
``Signature``: Base64 of HMAC-SHA1, keyed with its secret, over the values of all other fields,
sorted by name and concatenated, followed by the body.

Drawbacks: names and lengths are not signed, so ``a=1, b=23`` and ``a=12, b=3`` have one signature;
the signature covers neither a time nor a unique value, so a request can be replayed; the answer is
not signed. Use TLS if that matters. Source: ``AclUtils``, ``AclSigner``, ``AclClientRPCHook``,
``PlainAccessValidator``.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE: Final = "Signature"

_KEPT_KEYS: Final = 256
_BLOCK_BYTES: Final = 64
"""The block size of SHA-1, to which HMAC pads keys."""

UNSIGNED_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""Some clients sign this field, others add it after signing, and RocketMQ leaves it out."""


def sign(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of a request that has its ``AccessKey``."""
    return _sign(ext_fields, body, secret_key, {SIGNATURE}).decode("ascii")


def signed_fields(
    ext_fields: Mapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    fields = {**ext_fields, ACCESS_KEY: access_key}
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = sign(fields, body, secret_key)
    return fields


def verify(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Check the signature of a request in constant time."""
    signature = ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    is_signed = hmac.compare_digest(signature, _sign(ext_fields, body, secret_key, _LEFT_OUT))
    if UNSIGNED_FLAG in ext_fields:
        with_flag = _sign(ext_fields, body, secret_key, _LEFT_OUT_LATER)
        is_signed |= hmac.compare_digest(signature, with_flag)
    return is_signed


_LEFT_OUT: Final = frozenset({SIGNATURE, UNSIGNED_FLAG})
_LEFT_OUT_LATER: Final = frozenset({SIGNATURE})
"""By clients from 4.9.4 on."""


def _sign(
    ext_fields: Mapping[str, str], body: bytes, secret_key: str, left_out: AbstractSet[str]
) -> bytes:
    names = ext_fields.keys() - left_out
    in_order = sorted(names)
    if not "".join(names).isascii():
        # Java sorts by UTF-16 code units.
        in_order.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    # Java encodes a lone surrogate as "?".
    signed = "".join([ext_fields[name] for name in in_order]).encode("utf-8", "replace")
    return _signature(signed + body, secret_key)


def is_signed(signed: bytes | memoryview, signature: bytes, secret_key: str) -> bool:
    """Check the signature of signed bytes in constant time."""
    return hmac.compare_digest(signature, _signature(signed, secret_key))


def signed_values(
    received: bytes | memoryview, slices: Sequence[int], order: Iterable[int]
) -> bytes:
    """Return the concatenated values of a request's fields, in ``order``.

    ``slices``: start and length of each field; a length below 1 means no value.
    """
    return b"".join(
        [
            received[slices[2 * field] : slices[2 * field] + slices[2 * field + 1]]
            for field in order
            if slices[2 * field + 1] > 0
        ]
    )


def value_at(received: bytes | memoryview, slices: Sequence[int], field: int) -> bytes | None:
    """Return the value of a field; None if its length in ``slices`` is negative."""
    start, length = slices[2 * field], slices[2 * field + 1]
    return bytes(received[start : start + length]) if length >= 0 else None


def signed_order(names: Sequence[str | None]) -> tuple[int, ...]:
    """Return the numbers of fields in the order in which values are signed; None is no field."""
    numbers = {name: number for number, name in enumerate(names) if name is not None}
    return tuple(numbers[name] for name in sorted(numbers.keys() - {SIGNATURE}))


def _signature(signed: bytes | memoryview, secret_key: str) -> bytes:
    inner, outer = _keyed(secret_key)
    digest, signature = inner.copy(), outer.copy()
    digest.update(signed)
    signature.update(digest.digest())
    return base64.b64encode(signature.digest())


@lru_cache(maxsize=_KEPT_KEYS)
def _keyed(secret_key: str) -> "tuple[hashlib._Hash, hashlib._Hash]":
    """Return the inner and outer hash of HMAC-SHA1 with only their keys hashed so far.

    Cached, because a broker needs them for each request: :func:`hmac.digest` costs three times as
    much.
    """
    key = secret_key.encode("utf-8", "replace")
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha1(key, usedforsecurity=False).digest()
    block = key.ljust(_BLOCK_BYTES, b"\0")
    inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in block), usedforsecurity=False)
    outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in block), usedforsecurity=False)
    return inner, outer

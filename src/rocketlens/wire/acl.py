"""Signed requests as RocketMQ's access control has had them since 4.4 ("ACL 1.0").

A client adds ``AccessKey`` (and ``SecurityToken``, if it has one) to ``ext_fields``, and
``Signature``: Base64 of HMAC-SHA1, keyed with its secret, over the values of all other fields,
sorted by name and joined with nothing between them, followed by the body.

Drawbacks to know: names and lengths are not signed, so ``a=1, b=23`` and ``a=12, b=3`` have one
signature; neither time nor anything unique is in it, so a request can be replayed; the answer is
not signed. Use TLS where that matters. Source: ``AclUtils``, ``AclSigner``, ``AclClientRPCHook``,
``PlainAccessValidator``.
"""

import base64
import hmac
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE: Final = "Signature"

UNSIGNED_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""Some clients sign this field, others add it after signing, and RocketMQ leaves it out."""


def sign(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of a request, whose ``AccessKey`` must be in already."""
    names = sorted(ext_fields.keys() - {SIGNATURE}, key=_java_order)
    signed = "".join([ext_fields[name] for name in names]).encode() + body
    digest = hmac.digest(secret_key.encode(), signed, "sha1")
    return base64.b64encode(digest).decode("ascii")


def signed_fields(
    ext_fields: Mapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    """Return ``ext_fields`` with the key and signature added."""
    fields = {**ext_fields, ACCESS_KEY: access_key}
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = sign(fields, body, secret_key)
    return fields


def verify(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Return whether a request is signed with this secret, in a time that tells nothing of it."""
    given = ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    with_flag = hmac.compare_digest(given, sign(ext_fields, body, secret_key).encode())
    if UNSIGNED_FLAG not in ext_fields:
        return with_flag
    rest = {name: value for name, value in ext_fields.items() if name != UNSIGNED_FLAG}
    return hmac.compare_digest(given, sign(rest, body, secret_key).encode()) or with_flag


def _java_order(name: str) -> bytes:
    """Sort as Java's String does: by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")

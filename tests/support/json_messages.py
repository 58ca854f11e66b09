"""Reads messages as the program prints them in JSON."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any


def body_of(fields: Mapping[str, Any]) -> bytes:
    """Return the body of a message in JSON, which is text or base64."""
    if fields["body_encoding"] == "base64":
        return b64decode(fields["body"], validate=True)
    assert fields["body_encoding"] == "text"
    return fields["body"].encode("utf-8")

"""A schema registry, asked over HTTP for the schemas that bodies name by number.

A body begins with a byte 0 and the schema's number in 4 bytes; the registry returns
``{"schema": "..."}`` at ``/schemas/ids/NUMBER``. A schema never changes, so it is asked for once.
A number that could not be had is asked for again after `_RETRY_S`. Source: Confluent's wire format,
which Apicurio and others serve, too. `rules` imports this only if its file names a registry: most
need no client of HTTP.
"""

import json
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rocketlens.errors import BadInput, BodyError

MAX_REGISTRY_SCHEMAS: Final = 1_000
"""Schemas of a registry that are kept; beyond, the first are asked for again."""
MAX_SCHEMA_BYTES: Final = 1 << 20
"""Largest schema of a registry, in bytes."""
_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 30.0
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaRegistry:
    """Texts of schemas by their numbers. May be used by several threads; blocks while it asks."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask the registry at ``url``, such as ``http://registry:8081``.

        :raises BadInput: when it is not an address of HTTP.
        """
        try:
            scheme = urlsplit(url).scheme
        except ValueError:
            scheme = ""
        if scheme not in ("http", "https"):
            raise BadInput(f"schema registry {url!r}: give an address such as http://registry:8081")
        self._url: Final = url.rstrip("/")
        self._clock: Final = clock
        self._texts: Final[dict[int, str]] = {}
        self._failed: Final[dict[int, tuple[float, str]]] = {}

    def schema(self, number: int) -> str:
        """Return the text of a schema.

        :raises BodyError: when the registry does not have it, or cannot be asked now.
        """
        if (text := self._texts.get(number)) is not None:
            return text
        until_s, why = self._failed.get(number, (0.0, ""))
        if self._clock() < until_s:
            raise BodyError(why)
        try:
            text = self._fetch(number)
        except BodyError as error:
            _evict_oldest(self._failed)
            self._failed[number] = (self._clock() + _RETRY_S, str(error))
            raise
        _evict_oldest(self._texts)
        self._texts[number] = text
        return text

    def _fetch(self, number: int) -> str:
        address = f"{self._url}/schemas/ids/{number}"
        request = Request(address, headers={"Accept": _ACCEPT})  # noqa: S310 - http, as checked
        try:
            with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
                data = answer.read(MAX_SCHEMA_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise BodyError(f"schema {number} cannot be fetched from {address}: {error}") from error
        if len(data) > MAX_SCHEMA_BYTES:
            raise BodyError(f"schema {number} at {address} has over {MAX_SCHEMA_BYTES} bytes")
        try:
            text = json.loads(data)["schema"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BodyError(f"{address} answered with no schema: {error!r:.100}") from error
        if not isinstance(text, str):
            raise BodyError(f"{address} answered with no schema: {text!r:.100}")
        return text


class _NoRedirect(HTTPRedirectHandler):
    """Only the address that was configured is asked."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _evict_oldest(kept: dict[int, Any]) -> None:
    while len(kept) >= MAX_REGISTRY_SCHEMAS:
        del kept[next(iter(kept))]

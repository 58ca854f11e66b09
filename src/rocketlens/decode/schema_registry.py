"""Reads bodies by their schemas in a schema registry, which is accessed over HTTP.

A body begins with a byte 0 and the schema's number in 4 bytes. The rest depends on the schema type:

========  ========================================================================================
AVRO      a record
PROTOBUF  a count and that many indexes, from the outermost message of the file inwards, as zigzag
          varints (a count of 0: the first message); the message
JSON      a JSON text
========  ========================================================================================

The registry returns a schema at ``/schemas/ids/NUMBER``, and the schemas that it refers to at
``/subjects/SUBJECT/versions/VERSION``; with ``?format=serialized`` a PROTOBUF schema is a
descriptor in base64. A schema never changes, so it is requested once. Source: Confluent's wire
format and API, which other registries serve, too. `rules` imports this module only if its file
names a registry, so that others need no HTTP client.
"""

import base64
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http.client import HTTPException
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from rocketlens.decode import avro
from rocketlens.decode.bodies import JSON, DecodedBody
from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.protobuf import Schema, read_protobuf
from rocketlens.decode.text_formats import read_json
from rocketlens.decode.tree import tree_of
from rocketlens.errors import BadInput, BodyError, PackageMissing
from rocketlens.net.secret_file import read_secret_file
from rocketlens.net.tls import client_context

MAX_REGISTRY_SCHEMAS: Final = 1_000
"""Schemas of a registry that are kept; then the oldest is requested again."""
MAX_SCHEMA_BYTES: Final = 1 << 20
"""The largest schema of a registry with all its references, in bytes."""
MAX_SCHEMA_REFERENCES: Final = 100
"""Schemas of a registry that one refers to, directly or not."""
KEYS: Final = ("registry", "registry_password_file", "registry_ca")
"""Keys of a registry in a file of rules."""
PASSWORD_VARIABLE: Final = "ROCKETLENS_REGISTRY_PASSWORD"  # noqa: S105 - its name
_STEP_S: Final = 5.0
_SCHEMA_S: Final = 10.0
"""Seconds for a schema with all its references, however slowly the registry answers."""
_RETRY_S: Final = 30.0
"""Seconds until a failed request is repeated."""
_HEADERS: Final = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}

_Reader = Callable[[bytes, DecodingWork], DecodedBody]


class _RegistryFailed(BodyError):
    """The registry does not answer any request now."""


class SchemaRegistry:
    """Reads bodies by their schemas. Thread-safe; blocks during requests."""

    def __init__(
        self, declared: Mapping[str, Any], path: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use the registry that a file of rules, at ``path``, names by `KEYS`.

        :raises BadInput: if the address or a file cannot be used. The message contains no value,
            since an address can have a password.
        """
        self._made_of: Final = {key: declared[key] for key in KEYS if key in declared}, path
        where = f"rules for bodies, {path}"
        url, *files = (str(declared.get(key, "")) for key in KEYS)
        try:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError  # noqa: TRY301 - as for what cannot be split
        except ValueError:
            what = "registry: give an address such as https://user@registry:8081"
            raise BadInput(f"{where}: {what}") from None
        password_file, ca = (path.parent / Path(name).expanduser() for name in files)
        self._url: Final = (
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        )
        self._headers: Final = dict(_HEADERS)
        if parts.username:
            password = unquote(parts.password or "") or os.environ.get(PASSWORD_VARIABLE, "")
            if files[0]:
                password = read_secret_file(password_file, f"{where}: registry_password_file")
            login = base64.b64encode(f"{unquote(parts.username)}:{password}".encode())
            self._headers["Authorization"] = f"Basic {login.decode()}"
        elif files[0]:
            raise BadInput(f"{where}: name the user of the password in registry: https://user@host")
        tls = client_context(ca=ca if files[1] else None, check_hostname=True)
        self._opener: Final = build_opener(_NoRedirect, HTTPSHandler(context=tls))
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._readers: Final[dict[int, _Reader]] = {}
        self._failed: Final[dict[int | None, tuple[float, str]]] = {}
        """By number, or None for all: until when no request is sent, and why."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for a copy in another process, which reads the files itself."""
        return SchemaRegistry, self._made_of

    def decode(self, body: bytes, work: DecodingWork | None = None) -> DecodedBody:
        """Decode a body that names its schema; a container file of Avro has its own.

        :raises BodyError: if it names none, the registry does not have it or does not answer, or
            the body does not fit the schema.
        """
        work = work or DecodingWork()
        if body.startswith(avro.CONTAINER):
            return DecodedBody(format="avro", value=tree_of(avro.read_container(body, work)))
        if len(body) < avro.REGISTERED_BYTES or body[0] != 0:
            raise BodyError("it names no schema: a byte 0 and its number in 4 bytes")
        number = int.from_bytes(body[1 : avro.REGISTERED_BYTES], "big")
        return self._reader(number)(body[avro.REGISTERED_BYTES :], work)

    def _reader(self, number: int) -> _Reader:
        # Without the lock, so that bodies of known schemas do not wait for a request.
        if (reader := self._readers.get(number)) is not None:
            return reader
        with self._lock:
            if (reader := self._readers.get(number)) is not None:
                return reader
            for key in (None, number):
                until_s, why = self._failed.get(key, (0.0, ""))
                if self._clock() < until_s:
                    raise BodyError(why)
            # In a thread: name resolution and single bytes of an answer can take any time.
            future: Future[_Reader] = Future()
            Thread(target=self._load, args=(number, future), daemon=True).start()
            try:
                reader = future.result(_SCHEMA_S)
            except (BodyError, TimeoutError) as error:
                why = f"the schema registry {self._url} takes over {_SCHEMA_S:g} s"
                why = " ".join(str(error).split()) or why
                key = number if type(error) is BodyError else None
                _evict_oldest(self._failed)
                self._failed[key] = self._clock() + _RETRY_S, why
                raise BodyError(why) from None
            _evict_oldest(self._readers)
            self._readers[number] = reader
            return reader

    def _load(self, number: int, future: "Future[_Reader]") -> None:
        texts: dict[str, str] = {}
        try:
            kind = self._add(f"/schemas/ids/{number}", "", texts)
            future.set_result(_READERS[kind](texts.pop(""), texts))
        except _RegistryFailed as error:
            future.set_exception(error)
        except (BodyError, PackageMissing) as error:
            future.set_exception(BodyError(f"schema {number} of {self._url}: {error}"))
        except Exception as error:  # noqa: BLE001 - of an answer that has another form
            what = f"{type(error).__name__} {error!s:.100}"
            future.set_exception(BodyError(f"{self._url} has no schema {number}: {what}"))

    def _add(self, path: str, name: str, texts: dict[str, str]) -> str:
        """Add a schema after its references, and return its type."""
        if len(texts) > MAX_SCHEMA_REFERENCES:
            raise BodyError(f"it refers to more than {MAX_SCHEMA_REFERENCES} others")
        answer = self._ask(path)
        kind: str = answer.get("schemaType", "AVRO")
        if kind not in _READERS:
            raise BodyError(f"its kind is {kind!r:.40}, and not AVRO, PROTOBUF or JSON")
        text = (self._ask(f"{path}?format=serialized") if kind == "PROTOBUF" else answer)["schema"]
        texts[name] = ""
        for each in answer.get("references") or ():
            if each["name"] not in texts:
                subject, version = quote(each["subject"], safe=""), int(each["version"])
                self._add(f"/subjects/{subject}/versions/{version}", each["name"], texts)
        del texts[name]
        texts[name] = text
        if sum(map(len, texts.values())) > MAX_SCHEMA_BYTES:
            raise BodyError(f"with all that it refers to, it has over {MAX_SCHEMA_BYTES} bytes")
        return kind

    def _ask(self, path: str) -> dict[str, Any]:
        request = Request(self._url + path, headers=self._headers)  # noqa: S310 - http, as checked
        try:
            with self._opener.open(request, timeout=_STEP_S) as answer:
                data = answer.read(MAX_SCHEMA_BYTES + 1)
        except HTTPError as error:
            error.close()
            remedy = ": name the user in registry, and check registry_password_file"
            is_login = error.code in (401, 403)
            what = f"it answers {path} with status {error.code}{remedy if is_login else ''}"
            raise BodyError(what) from None
        except (OSError, HTTPException) as error:
            why = f"{getattr(error, 'reason', error)!s:.200}" or type(error).__name__
            what = f"the schema registry {self._url} cannot be asked: {why}"
            raise _RegistryFailed(what) from None
        if len(data) > MAX_SCHEMA_BYTES:
            raise BodyError(f"the answer to {path} has over {MAX_SCHEMA_BYTES} bytes")
        found: dict[str, Any] = json.loads(data)
        return found


class _NoRedirect(HTTPRedirectHandler):
    """Sends requests to the configured address only."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _evict_oldest(kept: dict[Any, Any]) -> None:
    while len(kept) >= MAX_REGISTRY_SCHEMAS:
        del kept[next(iter(kept))]


def _avro_reader(text: str, references: Mapping[str, str]) -> _Reader:
    schema = avro.parse_schema(text, references.values())
    return lambda body, work: DecodedBody(
        format="avro", value=tree_of(avro.read_avro(body, schema, work))
    )


def _protobuf_reader(text: str, references: Mapping[str, str]) -> _Reader:
    from rocketlens.decode.descriptors import link, parse_message, schema_of

    files = {}
    for name, each in {**references, "": text}.items():
        try:
            files[name] = parse_message(
                "FileDescriptorProto", base64.b64decode(each, validate=True)
            )
        except ValueError:
            raise BodyError(
                "the registry returns the text of a .proto file, and not its descriptor "
                "(format=serialized): give a rule with descriptor_set"
            ) from None
    file, schemas = link(files).FindFileByName(""), dict[tuple[int, ...], Schema]()

    def read(body: bytes, work: DecodingWork) -> DecodedBody:
        reader = ByteReader(body, work)
        count = reader.zigzag()
        reader.count(count)
        path = tuple(reader.zigzag() for _ in range(count)) or (0,)
        if path not in schemas:
            message, nested = None, file.message_types_by_name.values()
            for index in path:
                # Map entries have no index.
                nested = [each for each in nested if not each.GetOptions().map_entry]
                if not 0 <= index < len(nested):
                    raise BodyError(f"its schema has no message {path}")
                message, nested = nested[index], nested[index].nested_types
            schemas[path] = schema_of(message)
        value = read_protobuf(body[reader.position :], work, schema=schemas[path])
        return DecodedBody(format="protobuf", value=tree_of(value))

    return read


def _json_reader(text: str, references: Mapping[str, str]) -> _Reader:
    from rocketlens.decode.json_schema import schema_check

    broken_rule = schema_check(text, references)

    def read(body: bytes, _: DecodingWork) -> DecodedBody:
        stored = body.decode()
        value = read_json(stored)
        error = broken_rule(value)
        return DecodedBody(format=JSON, value=value, text=stored, charset="utf-8", error=error)

    return read


_READERS: Final = {"AVRO": _avro_reader, "PROTOBUF": _protobuf_reader, "JSON": _json_reader}

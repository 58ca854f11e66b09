"""A schema registry is asked once for each schema, and never trusted with more than that."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rocketlens.decode.schema_registry import MAX_SCHEMA_BYTES, SchemaRegistry
from rocketlens.errors import BadInput, BodyError


class Registry:
    """Serves ``answers``, a status and bytes for each path; with no status just the bytes."""

    def __init__(self):
        self.answers, self.asked = {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                status, data = outer.answers.get(self.path, (404, b"{}"))
                if status is None:
                    self.wfile.write(data)
                    return
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def registry():
    served = Registry()
    yield served
    served.close()


def test_a_schema_is_asked_for_once(registry):
    registry.answers["/schemas/ids/7"] = (200, json.dumps({"schema": '"int"'}).encode())
    asked = SchemaRegistry(registry.url + "/")
    assert asked.schema(7) == asked.schema(7) == '"int"'
    assert registry.asked == ["/schemas/ids/7"]


def test_a_schema_that_is_not_there_is_asked_for_again_later(registry):
    now_s = [0.0]
    asked = SchemaRegistry(registry.url, clock=lambda: now_s[0])
    for _ in range(2):
        with pytest.raises(BodyError, match=r"schema 7 cannot be fetched from http.*404"):
            asked.schema(7)
    assert len(registry.asked) == 1
    registry.answers["/schemas/ids/7"] = (200, b'{"schema": "s"}')
    now_s[0] = 31.0
    assert asked.schema(7) == "s"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, b"no json"), "no schema"),
        ((200, b"[]"), "no schema"),
        ((200, b'{"schema": 7}'), "no schema"),
        ((200, b" " * (MAX_SCHEMA_BYTES + 1)), "has over"),
        ((302, b""), "cannot be fetched"),
        ((500, b""), "cannot be fetched"),
        ((None, b"no HTTP at all\r\n"), "cannot be fetched"),
        ((None, b""), "cannot be fetched"),
    ],
)
def test_other_answers_are_errors(registry, answer, says):
    registry.answers["/schemas/ids/1"] = answer
    registry.answers["/elsewhere"] = (200, b'{"schema": "s"}')
    with pytest.raises(BodyError, match=says):
        SchemaRegistry(registry.url).schema(1)
    assert "/elsewhere" not in registry.asked


def test_only_addresses_of_http_are_asked():
    for address in ("file:///etc/passwd", "registry:8081", "http://[", ""):
        with pytest.raises(BadInput, match="give an address"):
            SchemaRegistry(address)


def test_what_is_kept_is_bounded(registry, monkeypatch):
    monkeypatch.setattr("rocketlens.decode.schema_registry.MAX_REGISTRY_SCHEMAS", 2)
    asked = SchemaRegistry(registry.url)
    for number in (1, 2, 3, 1):
        registry.answers[f"/schemas/ids/{number}"] = (200, b'{"schema": "s"}')
        asked.schema(number)
    assert registry.asked.count("/schemas/ids/1") == 2

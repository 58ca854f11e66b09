"""A store that ignores conditional puts is found out before it loses a commit."""

import socket
import threading

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from rocketlens.archive.location import ArchiveLocation
from rocketlens.errors import ArchiveError
from tests.support.object_store import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    environment_of,
    object_store,
    serving,
)

ROOT = f"s3://{BUCKET}/a lake ü+~/x"


def located(monkeypatch, variables, **more):
    for name, value in {**variables, **more}.items():
        monkeypatch.setenv(name, value)
    return ArchiveLocation.of(ROOT)


def objects_in(location):
    store = S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=location.endpoint.removeprefix("http://"),
        scheme="http",
    )
    return store.get_file_info(FileSelector(BUCKET, recursive=True))


def test_a_store_that_refuses_a_second_put_is_fit_and_the_probe_is_gone(monkeypatch):
    with object_store() as variables:
        location = located(monkeypatch, variables, AWS_SESSION_TOKEN="token")
        assert location.check_conditional_put() is True
        assert objects_in(location) == []


def test_a_store_that_lets_the_second_put_overwrite_is_refused_with_what_to_do(monkeypatch):
    with object_store("overwrite") as variables:
        location = located(monkeypatch, variables)
        with pytest.raises(ArchiveError, match="ignores If-None-Match") as raised:
            location.check_conditional_put()
        assert objects_in(location) == []
    said = str(raised.value)
    assert said.startswith(f"{ROOT}: the object store {location.endpoint} ")
    assert "Use a store that refuses such puts" in said
    assert "\n" not in said


def test_a_store_that_refuses_each_request_is_a_line_without_secrets(monkeypatch):
    with serving("refuse") as port:
        location = located(monkeypatch, environment_of(port))
        with pytest.raises(ArchiveError, match=r"does not take a put .*AccessDenied") as raised:
            location.check_conditional_put()
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in str(raised.value)


def test_a_store_that_is_offline_is_a_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ArchiveError, match="onnection refused"):
        located(monkeypatch, environment_of(port)).check_conditional_put()


def test_what_does_not_speak_http_is_a_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        location = located(monkeypatch, environment_of(server.getsockname()[1]))

        def answer():
            for _ in range(2):
                connection, _ = server.accept()
                connection.sendall(b"* OK IMAP4rev1\r\n")
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ArchiveError, match=r"^s3://"):
            location.check_conditional_put()


def test_without_keys_in_the_environment_it_is_not_checked(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert located(monkeypatch, {"AWS_ENDPOINT_URL": "http://x"}).check_conditional_put() is False


def test_a_directory_and_amazons_own_store_are_not_asked(monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    assert ArchiveLocation.of(tmp_path).check_conditional_put() is True
    assert ArchiveLocation.of(ROOT).check_conditional_put() is True

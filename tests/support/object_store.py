"""An object store that speaks S3, in a process of its own, as an archive's environment names it.

Run as a program it serves until its input ends, and prints its port first. With ``refuse`` it is
one that refuses each request, and says all that it knows, secrets included. With ``overwrite`` it
ignores the condition of a put, as older stores do.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

BUCKET = "lake"
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"


def environment_of(port: int) -> dict[str, str]:
    """Return the variables that name an object store on this machine."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def object_store(*arguments: str) -> Iterator[dict[str, str]]:
    """Start an object store with one bucket; yield the variables that name it."""
    pytest.importorskip("moto", reason="an object store needs moto: make .venv")
    from pyarrow.fs import S3FileSystem

    with serving(*arguments) as port:
        S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        yield environment_of(port)


@contextmanager
def serving(*arguments: str) -> Iterator[int]:
    """Run this program; yield its port."""
    command = [sys.executable, "-m", "tests.support.object_store", *arguments]
    # In a thread it would wait for clients that hold the interpreter's lock while they wait for it.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{self.requestline} {self.headers} {ACCESS_KEY} {SECRET_KEY}"
        body = f"<Error><Code>AccessDenied</Code><Message>{text}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


for verb in ("PUT", "HEAD", "POST"):
    setattr(_Refusing, f"do_{verb}", _Refusing.do_GET)


def main() -> None:
    """Serve until the input ends."""
    if "refuse" in sys.argv:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
    else:
        from moto.moto_server import werkzeug_app
        from moto.server import ThreadedMotoServer

        if "overwrite" in sys.argv:
            answer = werkzeug_app.DomainDispatcherApplication.__call__

            def without_condition(app, environ, start_response):
                environ.pop("HTTP_IF_NONE_MATCH", None)
                return answer(app, environ, start_response)

            werkzeug_app.DomainDispatcherApplication.__call__ = without_condition
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        moto.start()
        _, port = moto.get_host_and_port()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

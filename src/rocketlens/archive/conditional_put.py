"""Checks that an object store refuses to overwrite an object where it is asked not to.

A commit of Delta is a put with ``If-None-Match: *``: of two archivers that commit one version at
once, the store has to refuse one. A store that ignores the header lets the second overwrite the
commit of the first, and both believe that theirs is there. So a probe is put twice before a job
begins.

No library at hand puts an object with that header, so the request is made here, and signed as
version 4 of Amazon's signatures is. Amazon's own stores are not asked: they know the header.
"""

import hashlib
import hmac
import uuid
from contextlib import closing, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import quote, urlsplit

from rocketlens.archive.location import CONNECT_S, ArchiveLocation
from rocketlens.errors import ArchiveError

_REFUSED: Final = frozenset({409, 412})
_OK: Final = 200
_MAX_ANSWER: Final = 64 << 10
_SCOPE: Final = "s3/aws4_request"


def check_conditional_put(location: ArchiveLocation) -> bool:
    """Check that the object store of an archive refuses a second put; return False if that cannot
    be checked, because the environment has no keys.

    A directory and Amazon S3 need no check.

    :raises ArchiveError: if the store does not refuse it, or the probe cannot be written.
    """
    if not location.is_remote or location.endpoint is None:
        return True
    if location.keys is None:
        return False
    probe = location.path(f"_probe-{uuid.uuid4()}")
    with location.explained():
        try:
            statuses = [_request(location, "PUT", probe) for _ in range(2)]
        finally:
            with suppress(OSError):
                _request(location, "DELETE", probe)
    for (status, answer), expected in zip(statuses, ({_OK}, _REFUSED), strict=True):
        if status in expected:
            continue
        if status == _OK:
            raise ArchiveError(
                f"{location.root}: the object store {location.endpoint} ignores If-None-Match: it "
                "let a second put overwrite the first, and so would let one archiver overwrite "
                "what another committed. Use a store that refuses such puts, as Amazon S3 and "
                "MinIO do, or a directory"
            )
        raise ArchiveError(
            f"{location.root}: the object store {location.endpoint} answers {status} to a put "
            f"with If-None-Match: {location.reason(OSError(answer)) if answer else 'no reason'}"
        )
    return True


def _request(location: ArchiveLocation, method: str, address: str) -> tuple[int, str]:
    """Send a request for an object, which is empty; return the status and the text of the answer.

    :raises OSError: if the store cannot be reached.
    """
    endpoint = urlsplit(location.endpoint or "")
    path = f"{endpoint.path.rstrip('/')}/{address.removeprefix('s3://')}"
    made = HTTPSConnection if endpoint.scheme == "https" else HTTPConnection
    with closing(made(endpoint.netloc, timeout=CONNECT_S)) as connection:
        quoted = quote(path, safe="/~")
        try:
            connection.request(method, quoted, b"", _headers(location, method, quoted))
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_ANSWER).decode("utf-8", "replace")
        except HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


def _headers(location: ArchiveLocation, method: str, path: str) -> dict[str, str]:
    """Return the headers of a request without a body, with its signature."""
    key, secret, token = location.keys or ("", "", None)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    no_body = hashlib.sha256(b"").hexdigest()
    headers = {
        "host": urlsplit(location.endpoint or "").netloc,
        "x-amz-content-sha256": no_body,
        "x-amz-date": now,
    }
    if method == "PUT":
        headers["if-none-match"] = "*"
    if token is not None:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{no_body}"
    scope = f"{now[:8]}/{location.region}/{_SCOPE}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signed = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, signed.encode(), "sha256").hex()
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    }

"""A provider of OpenID Connect in this process, which signs what it is told, also forgeries."""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import cache
from urllib.parse import parse_qsl, quote_plus, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from rocketlens.console.login.oidc_settings import oidc_settings

CLIENT_ID = "rocket lens"
"""With a space: it is encoded in a form, and once more in Basic authentication."""
SECRET = "s3cret/+&="
ISSUED = {"sub": "u-1", "preferred_username": "li", "groups": ["staff", "shop-ops"]}
ALL = [{"users": ["*"], "role": "admin"}]


@cache
def private_key(kind, number=0):
    """Give a key of a kind; always the same one, because making it takes time."""
    del number
    return {
        "RSA": lambda: rsa.generate_private_key(65537, 2048),
        "RSA-1024": lambda: rsa.generate_private_key(65537, 1024),
        "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EC-384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "OKP": ed25519.Ed25519PrivateKey.generate,
    }[kind]()


def jwk(key, **more):
    """Give the public half of a key as a JWK."""
    public = key.public_key()
    made = {
        rsa.RSAPublicKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePublicKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PublicKey: jwt.algorithms.OKPAlgorithm,
    }
    ((_, algorithm),) = [each for each in made.items() if isinstance(public, each[0])]
    return {**algorithm.to_jwk(public, as_dict=True), **more}


def public_pem(key):
    """Give the public half of a key as PEM, which HMAC must never take as its secret."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def hmac_token(claims, secret, **header):
    """Give a token signed by HMAC; libraries refuse to make one with a public key."""
    parts = [{"typ": "JWT", "alg": "HS256", **header}, claims]
    text = ".".join(encoded(json.dumps(each).encode()) for each in parts)
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"


def encoded(content):
    """Give base64 as tokens have it."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def settings(issuer, directory, rules=None, **more):
    """Give the settings of a file of users; None leaves a key out."""
    (directory / "oidc.secret").write_text(f"{SECRET}\n")
    (directory / "oidc.secret").chmod(0o600)
    table = {
        "issuer": issuer,
        "client_id": CLIENT_ID,
        "client_secret_file": "oidc.secret",
        "rules": ALL if rules is None else rules,
        **more,
    }
    return oidc_settings("oidc", {k: v for k, v in table.items() if v is not None}, directory)


class ProviderStub:
    """Answers as a provider does; what a test sets in ``replies`` counts more."""

    def __init__(self):
        self.issuer = ""
        self.keys = [("k1", "RS256", private_key("RSA"))]
        """Names, algorithms and private keys; it signs with the last one."""
        self.user = dict(ISSUED)
        self.user_info = None
        self.more_metadata = {}
        self.asked = Counter()
        self.requests = []
        self.replies = {}
        """By path: a status and a body, or a function of the request that returns them."""
        self.forge = None
        """Makes the id token of claims instead."""
        self.secret = SECRET
        self._codes = {}

    @property
    def metadata(self):
        """The discovery document."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=a",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            **({"userinfo_endpoint": f"{self.issuer}/userinfo"} if self.user_info else {}),
            **self.more_metadata,
        }

    def authorize(self, location, **changed):
        """Log a user in that a console has sent; give where it is sent back to, and with what."""
        given = dict(parse_qsl(urlsplit(location).query, strict_parsing=True))
        assert urlsplit(location).path == "/authorize"
        assert (given["response_type"], given["client_id"]) == ("code", CLIENT_ID)
        assert (given["code_challenge_method"], given["tenant"]) == ("S256", "a")
        values = {"code": self.issue(given), "state": given["state"], **changed}
        return given["redirect_uri"], {k: v for k, v in values.items() if v is not None}

    def issue(self, given):
        """Give a code for what a browser was sent with."""
        code = secrets.token_urlsafe(8)
        self._codes[code] = given
        return code

    def claims(self, nonce="n", **changed):
        """Give the claims of an id token; None leaves one out."""
        now = int(time.time())
        issued = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300}
        made = {**self.user, **issued, "nonce": nonce, **changed}
        return {name: value for name, value in made.items() if value is not None}

    def signed(self, claims, **header):
        """Give a token of the newest key."""
        key_id, algorithm, key = self.keys[-1]
        return jwt.encode(claims, key, algorithm, headers={"kid": key_id, **header})

    def answer(self, method, path, headers, body):
        """Give the status and the body of an answer."""
        self.asked[path] += 1
        self.requests.append((method, path, headers, body))
        if path in self.replies:
            reply = self.replies[path]
            return reply(headers, body) if callable(reply) else reply
        if path == "/.well-known/openid-configuration":
            return 200, self.metadata
        if path == "/keys":
            keys = [jwk(key, kid=name, use="sig") for name, _, key in self.keys]
            return 200, {"keys": keys}
        if path == "/userinfo":
            assert headers["authorization"] == "Bearer access"
            return 200, self.user_info
        if path == "/token":
            return self.token(headers, body)
        return 404, {}

    def token(self, headers, body):
        """Give the answer to a code."""
        form = dict(parse_qsl(body.decode(), strict_parsing=True))
        given = self._codes.pop(form["code"], None)
        if given is None or form["grant_type"] != "authorization_code":
            return 400, {"error": "invalid_grant", "error_description": "used or unknown"}
        challenge = encoded(hashlib.sha256(form["code_verifier"].encode()).digest())
        if challenge != given["code_challenge"] or form["redirect_uri"] != given["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "PKCE or redirect_uri"}
        if not self._is_client(headers, form):
            return 401, {"error": "invalid_client"}
        claims = self.claims(given["nonce"])
        token = self.forge(claims) if self.forge else self.signed(claims)
        return 200, {"token_type": "Bearer", "access_token": "access", "id_token": token}

    def _is_client(self, headers, form):
        if self.secret is None:
            return form.get("client_id") == CLIENT_ID and "authorization" not in headers
        methods = self.more_metadata.get("token_endpoint_auth_methods_supported")
        if methods == ["client_secret_post"]:
            return (form["client_id"], form["client_secret"]) == (CLIENT_ID, self.secret)
        names = f"{quote_plus(CLIENT_ID)}:{quote_plus(self.secret)}"
        return headers.get("authorization") == f"Basic {base64.b64encode(names.encode()).decode()}"


@asynccontextmanager
async def provider(tls=None):
    """Run a provider on the loopback interface, in the running event loop."""
    stub = ProviderStub()

    async def serve(reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = head[0].split(" ")
            lines = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            reply = stub.answer(method, urlsplit(target).path, headers, body)
            if asyncio.iscoroutine(reply):
                reply = await reply
            status, content, *more = reply
            if not isinstance(content, bytes):
                content = json.dumps(content).encode()
            added = "".join(f"{name}: {value}\r\n" for name, value in (more or [{}])[0].items())
            start = f"HTTP/1.1 {status} x\r\ncontent-length: {len(content)}\r\n{added}\r\n"
            writer.write(start.encode() + content)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        stub.issuer = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield stub

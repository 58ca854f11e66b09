"""A provider of OpenID Connect that others wrote, as a process of its own: mock-oauth2-server.

It signs with a key of its own, has a page for logins where any name and any claims can be given,
and checks PKCE and that a code is used once. Its jars come from Maven Central, as RocketMQ's do.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peer.rocketmq_peer import (
    Jdk,
    accepts_connections,
    explained,
    fetched_jars,
    free_ports,
    reap,
    wait_until,
)
from tests.support.patience import PATIENCE_S

VERSION = "6.0.2"
MAIN = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
CONFIG = {"interactiveLogin": True, "httpServer": "NettyWrapper"}


def provider_jars() -> Path:
    """Return the directory of its jars.

    :raises PeerUnavailable: when they cannot be had.
    """
    pom = Path(__file__).with_name("oidc_pom.xml")
    return fetched_jars(f"oidc-{VERSION}", pom, f"a provider {VERSION}", f"-Dprovider={VERSION}")


@contextmanager
def running_provider(jdk: Jdk, directory: Path) -> Iterator[str]:
    """Give the issuer of a provider that runs on the loopback interface.

    By its name: for browsers it is another site than 127.0.0.1, as a provider is.

    :raises PeerUnavailable: when its jars cannot be had.
    """
    port = free_ports()
    log = directory / "provider.log"
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    environment = {
        **os.environ,
        "SERVER_HOSTNAME": "127.0.0.1",
        "SERVER_PORT": str(port),
        "JSON_CONFIG": json.dumps(CONFIG),
    }
    with log.open("wb") as output, explained("the provider", log):
        process = subprocess.Popen(
            [str(jdk.java), *options, "-cp", f"{provider_jars()}/*", MAIN],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            wait_until(lambda: accepts_connections(port), process, PATIENCE_S)
            yield f"http://localhost:{port}/shop"
        finally:
            reap(process)

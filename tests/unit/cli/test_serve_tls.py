"""Servers that take TLS only, and the commands that reach them."""

import pytest

from tests.unit.cli.servers.test_serve import ANY_PORT, running


@pytest.fixture
def served(certificate, tmp_path):
    """Give name server and broker of ``rocketlens serve``; clients must show a certificate."""
    file, key = certificate
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"tls.server.certPath={file}\ntls.server.keyPath={key}\n"
        f"tls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={file}\n"
        f"tls.client.certPath={file}\ntls.client.keyPath={key}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={file}\n"
    )
    with running("serve", "--home", tmp_path / "home", *ANY_PORT, "-c", conf) as server:
        yield server
        code, _, err = server.end()
        assert (code, err) == (0, "")


def test_a_cluster_that_enforces_tls_takes_messages_and_gives_them_back(run, served, certificate):
    file, key = certificate
    there = ("--namesrv", served.ready["names"])
    known = ("--cert", file, "--cert-key", key)
    assert run("send", "T", "hello", "--keys", "k", *there, "--ca", file, *known).code == 0
    for trust in (("--ca", file), ("--insecure",)):
        done = run("find", "k", *there, *trust, *known)
        assert (done.code, "hello" in done.out) == (0, True), done.err
    for words in ((), ("--tls", *known), ("--ca", file)):
        done = run("find", "k", *there, *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    done = run(
        "mqadmin", "queryMsgByKey", "-n", there[1], "-t", "T", "-k", "k", "--ca", file, *known
    )
    assert (done.code, done.err) == (0, "")

"""The command: what it serves, where it listens, how it ends."""

import asyncio
import base64
import io
import os
import signal
import subprocess
import sys
import urllib.request
from argparse import Namespace
from urllib.error import HTTPError

import pytest

from rocketlens.console.login.users import PasswordHash
from rocketlens.console.run import named_contexts
from rocketlens.main import build_parser, main
from rocketlens.model.installation import install_command
from rocketlens.terminal.contexts import CONFIG_VARIABLE
from tests.support.console_users import HASH, PASSWORD
from tests.support.made_stores import Sent, make_store


def parsed(*words) -> Namespace:
    return build_parser(["console"]).parse_args(["console", *words])


def test_all_kinds_of_sources_can_be_given_together(tmp_path, monkeypatch):
    config = tmp_path / "config.toml"
    config.write_text('[contexts.a]\nnamesrv = "a:1"\n[contexts.b]\nstore = "/b"\n')
    config.chmod(0o600)
    monkeypatch.setenv(CONFIG_VARIABLE, str(config))
    words = ("--context", "a", "--context", "b", "--store", "/c", "--store", "/d", "-n", "e:1")
    contexts = named_contexts(parsed(*words))
    assert [(name, each.store or each.namesrv) for name, each in contexts] == [
        ("a", "a:1"),
        ("b", "/b"),
        (None, "/c"),
        (None, "/d"),
        (None, "e:1"),
    ]


def test_the_environment_names_the_source_where_no_option_does(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", "/x")
    ((_, context),) = named_contexts(parsed())
    assert context.store == "/x"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bind", "0.0.0.0:8088", "--store", "/x"), "loopback"),
        (("--bind", "[::]:8088", "--store", "/x"), "loopback"),
        (("--bind", "10.0.0.1:1", "--store", "/x"), "loopback"),
        (("--bind", "10.0.0.1:1", "--store", "/x"), "give --users FILE"),
        (("--users", "/nonexistent/users", "--store", "/x"), "users file"),
        (("--bind", "localhost:1"), "IP:PORT"),
        (("--bind", "127.0.0.1:65536"), "IP:PORT"),
        (("--bind", "127.0.0.1:x"), "IP:PORT"),
        (("--trusted-proxy", "proxy.example"), "not an address"),
        ((), "which store"),
        (("--store", "/nonexistent/store", "--bind", "0"), "no such file or directory"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(words, said, monkeypatch, capsys):
    for name in ("ROCKETLENS_STORE", "NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(CONFIG_VARIABLE, os.devnull)
    assert main(["console", *words]) != 0
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(tmp_path, capsys):
    import socket

    made = make_store(tmp_path / "store", [Sent()])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["console", "--store", str(made.path), "--bind", f"127.0.0.1:{port}"]) != 0
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_with_users_it_listens_elsewhere_and_asks_who_comes_until_it_is_told_to_stop(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="ORDER-1")])
    users, log = tmp_path / "users.toml", tmp_path / "audit.log"
    users.write_text(f'[users.li]\npassword = "{HASH}"\ngrants = [{{ role = "viewer" }}]\n')
    users.chmod(0o600)
    words = ["--store", str(made.path), "--users", str(users), "--audit-log", str(log)]
    with subprocess.Popen(
        [sys.executable, "-m", "rocketlens", "console", *words, "--bind", "0.0.0.0:0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            ready, address, *_ = process.stdout.readline().split()
            assert ready == "ready:"
            port = address.rstrip("/,").rpartition(":")[2]
            url = f"http://127.0.0.1:{port}/api/search?q=ORDER-1"
            with pytest.raises(HTTPError, match="401"):
                urllib.request.urlopen(url)
            token = base64.b64encode(f"li:{PASSWORD}".encode()).decode()
            asked = urllib.request.Request(url, headers={"authorization": f"Basic {token}"})
            with urllib.request.urlopen(asked) as answer:
                assert b"ORDER-1" in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert '"event":"login"' in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def oidc_file(directory, *lines):
    path = directory / "users.toml"
    head = ["[oidc]", 'issuer = "https://login.example.com"', 'client_id = "rocketlens"', *lines]
    rule = ["[[oidc.rules]]", 'users = ["*"]', 'role = "viewer"']
    path.write_text("\n".join([*head, *rule]))
    path.chmod(0o600)
    return str(path)


def test_with_a_provider_alone_it_listens_elsewhere_also_while_that_is_out_of_reach(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    users = oidc_file(tmp_path, 'public_url = "https://lens.example.com"')
    words = ["--store", str(made.path), "--users", users, "--bind", "0.0.0.0:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "rocketlens", "console", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            port = process.stdout.readline().split()[1].rstrip("/,").rpartition(":")[2]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/login") as page:
                assert b'href="https://lens.example.com/login/oidc' in page.read()
            with pytest.raises(HTTPError, match="401"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/topics")
        finally:
            process.terminate()


def test_off_the_loopback_interface_a_provider_needs_the_address_of_the_console(tmp_path, capsys):
    made = make_store(tmp_path / "store", [Sent()])
    words = ["--store", str(made.path), "--users", oidc_file(tmp_path), "--bind", "0.0.0.0:0"]
    assert main(["console", *words]) != 0
    assert "needs public_url" in capsys.readouterr().err


def test_a_package_that_a_provider_needs_is_named(tmp_path, capsys, monkeypatch):
    made = make_store(tmp_path / "store", [Sent()])
    monkeypatch.setitem(sys.modules, "jwt", None)
    words = ["--store", str(made.path), "--users", oidc_file(tmp_path), "--bind", "127.0.0.1:0"]
    assert main(["console", *words]) != 0
    assert f"OpenID Connect needs jwt: {install_command('console')}" in capsys.readouterr().err


def test_a_log_that_cannot_be_opened_is_named(tmp_path, capsys):
    made = make_store(tmp_path / "store", [Sent()])
    words = ["--store", str(made.path), "--bind", "0", "--audit-log", str(tmp_path / "no" / "log")]
    assert main(["console", *words]) != 0
    assert "the audit log" in capsys.readouterr().err


def test_a_password_is_hashed_from_stdin_and_from_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\nmore\n"))
    assert main(["console", "--hash-password"]) == 0
    hashed = capsys.readouterr().out.strip()
    assert asyncio.run(PasswordHash.parse(hashed).fits("correct horse"))
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("getpass.getpass", {"Password: ": "one", "Again: ": "other"}.__getitem__)
    assert main(["console", "--hash-password"]) != 0
    assert "the two passwords differ" in capsys.readouterr().err


def test_port_is_bind_without_an_address():
    for words in (("--port", "33080"), ("--bind", "33080")):
        arguments = build_parser(["console"]).parse_args(["console", *words])
        assert arguments.bind == ("127.0.0.1", 33080)

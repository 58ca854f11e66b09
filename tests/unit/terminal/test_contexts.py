"""Named contexts: what a file may say, and what it never gives away."""

import stat

import pytest

from rocketlens.terminal.cluster_access import cluster_access
from rocketlens.terminal.contexts import Context, default_context, named_context
from tests.unit.terminal.conftest import CONFIG, SECRET


def test_the_file_may_be_elsewhere(config, tmp_path, monkeypatch):
    elsewhere = tmp_path / "other.toml"
    elsewhere.write_text('[contexts.x]\nnamesrv = "h:1"')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(elsewhere))
    assert named_context("x").namesrv == "h:1"


def test_a_secret_is_never_shown(config, run, tmp_path):
    named = named_context("prod")
    assert SECRET not in repr(named) + str(named) + repr(cluster_access(named))
    for broken in (
        f'[contexts.prod]\nsecret_key = ["{SECRET}"]',
        f'[contexts.prod]\naccess_key = "a"\nsecret_key = "{SECRET}"\nsecret_key_env = "X"',
        f'[contexts.prod]\nsecret_key = "{SECRET}',
        f'[contexts.prod]\nnamesrv = "h:1"\nsecret_key = "{SECRET}"',
        f'[contexts.prod]\nnamesrv = "h:1"\nsecret_key_file = "/{SECRET}\\u0000"',
    ):
        config(broken)
        done = run("find", "k", "--context", "prod")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), broken
        assert SECRET not in done.err


def test_a_secret_that_others_can_read_is_warned_of(config, tmp_path, capsys):
    path = config(CONFIG)
    named_context("test")
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    named_context("test")
    assert "chmod 600" in capsys.readouterr().err
    file = path.with_name("reader.secret")
    file.write_text(SECRET)
    file.chmod(stat.S_IRUSR | stat.S_IRGRP)
    config(CONFIG.replace(f'secret_key = "{SECRET}"', ""))
    assert named_context("file").secret() == SECRET
    assert f"{file} holds a secret key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[contexts.prod\n", "at line 1"),
        ("\xff", "is not UTF-8"),
        (
            "[context.prod]\nnamesrv = 'h:1'",
            "unknown (did you mean contexts?); known keys: default",
        ),
        ("contexts = 3", "contexts must be a table"),
        ("contexts.prod = 3", "context number 1 must be a table: [contexts.NAME]"),
        ("default_context = 3\n[contexts.prod]", "default_context must be text"),
        (
            "[contexts.prod]\nnamsrv = 'h:1'",
            "unknown (did you mean namesrv?); known keys",
        ),
        ("[contexts.prod]\nnamesrv = 9876", "namesrv must be text in quotation marks"),
        ("[contexts.prod]\ntls = 'yes'", "tls must be true or false"),
        ("[contexts.prod]\nnamesrv = ''", "namesrv is empty"),
        ("[contexts.prod]\nstore = 's'\ntls = true", "store must stand alone"),
        ("[contexts.other]\nstore = 's'", "has 1 context, but not this one"),
        ("", "has 0 contexts, but not this one"),
        ("[contexts.prod]\ntls = true", "no name server: give --namesrv"),
        ("[contexts.prod]\nnamesrv = 'h:1'\naccess_key = 'a'", "the secret key is missing"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nsecret_key = 'a'", "the access key is missing"),
        (
            "[contexts.prod]\nnamesrv = 'h:1'\nsecret_key_env = 'NONE'",
            "variable that it names is",
        ),
        ("[contexts.prod]\nnamesrv = 'h:1'\nsecret_key_file = 'none'", "No such file"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nca = 'none.pem'", "none.pem: "),
        ("[contexts.prod]\nnamesrv = 'h:1'\ncert_key = 'k.pem'", "cert_key needs cert"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nca = 'c'\ninsecure = true", "give only one"),
        ("[contexts.prod]\nnamesrv = 'h:1'\nnamespace = 'a%b'", "letters, digits, _ and -"),
        ("[contexts.prod]\nnamesrv = 'no address'", "no address"),
    ],
)
def test_whatever_is_wrong_is_one_line_that_names_it(config, run, text, said):
    path = config("")
    path.write_bytes(text.encode("latin-1"))
    done = run("send", "T", "body", "--context", "prod")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert said in done.err


def test_no_file_is_needed_until_a_context_is(run, monkeypatch):
    assert default_context() == Context()
    done = run("find", "k", "--context", "prod")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "does not exist" in done.err
    monkeypatch.setenv("ROCKETLENS_CONFIG", "/no/such/file.toml")
    assert "the file /no/such/file.toml does not exist" in run("find", "k").err


def test_a_context_of_a_store_is_read(config, run, write_store, tmp_path):
    store = write_store({"properties": {"KEYS": "k"}})
    config(f'[contexts.mine]\nstore = "{store}"')
    assert run("find", "k", "--context", "mine").code == 0
    assert run("show", "T/0/0", "--context", "mine").code == 0

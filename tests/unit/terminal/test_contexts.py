"""Named contexts, and how options, environment and contexts are put together."""

import stat
from argparse import Namespace

import pytest

from rocketlens.client.cluster import Credentials
from rocketlens.terminal.cluster_access import chosen_context, cluster_access
from rocketlens.terminal.contexts import Context, default_context, named_context

SECRET = "k7-very-secret"
CONFIG = f"""
default_context = "test"

[contexts.prod]
namesrv = "10.0.0.1:9876;10.0.0.2:9876"
namespace = "shop"
access_key = "reader"
secret_key = "{SECRET}"

[contexts.test]
namesrv = "10.0.9.1:9876"

[contexts.backup]
store = "copies/store"

[contexts.file]
namesrv = "10.0.0.1:9876"
access_key = "reader"
secret_key_file = "reader.secret"

[contexts.variable]
namesrv = "10.0.0.1:9876"
access_key = "reader"
secret_key_env = "THE_SECRET"
"""
NOTHING = Namespace(
    store=None,
    namesrv=None,
    context=None,
    namespace=None,
    access_key=None,
    secret_key_file=None,
    tls=None,
    insecure=None,
    ca=None,
    cert=None,
    cert_key=None,
)


def given(**options):
    return Namespace(**{**vars(NOTHING), **options})


def chosen(**options):
    return chosen_context(given(**options), takes_store=True)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Give ``config(text) -> Path``, which writes the configuration file."""
    path = tmp_path / "config" / "rocketlens" / "config.toml"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text):
        path.write_text(text)
        path.chmod(0o600)
        return path

    write(CONFIG)
    return write


def test_a_context_says_where_to_look_and_as_whom(config):
    connection = cluster_access(chosen(context="prod"))
    assert connection.name_servers == "10.0.0.1:9876;10.0.0.2:9876"
    assert connection.namespace == "shop"
    assert connection.credentials == Credentials("reader", SECRET)
    assert connection.tls is None


def test_the_file_may_be_elsewhere(config, tmp_path, monkeypatch):
    elsewhere = tmp_path / "other.toml"
    elsewhere.write_text('[contexts.x]\nnamesrv = "h:1"')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(elsewhere))
    assert named_context("x").namesrv == "h:1"


def test_paths_count_from_the_file(config, tmp_path):
    directory = tmp_path / "config" / "rocketlens"
    assert chosen(context="backup").store == str(directory / "copies" / "store")
    (directory / "reader.secret").write_text(f"{SECRET}\n")
    (directory / "reader.secret").chmod(0o600)
    assert cluster_access(chosen(context="file")).credentials == Credentials("reader", SECRET)


def test_options_count_more_than_the_environment_and_that_more_than_a_default(config, monkeypatch):
    assert chosen().namesrv == "10.0.9.1:9876"
    monkeypatch.setenv("ROCKETLENS_CONTEXT", "prod")
    assert chosen().namesrv == "10.0.0.1:9876;10.0.0.2:9876"
    monkeypatch.setenv("NAMESRV_ADDR", "10.7.7.7:9876")
    assert chosen().namesrv == "10.7.7.7:9876"
    assert chosen(namesrv="10.8.8.8:9876").namesrv == "10.8.8.8:9876"
    assert chosen(namesrv="10.8.8.8:9876", context="prod").namesrv == "10.8.8.8:9876"


def test_a_context_asked_for_counts_more_than_the_environment(config, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.7.7.7:9876")
    monkeypatch.setenv("ROCKETLENS_STORE", "/store")
    monkeypatch.setenv("ROCKETLENS_ACCESS_KEY", "another")
    named = chosen(context="prod")
    assert (named.store, named.namesrv) == (None, "10.0.0.1:9876;10.0.0.2:9876")
    assert named.access_key == "reader"


def test_a_contexts_keys_are_not_shown_to_another_cluster(config, monkeypatch):
    monkeypatch.setenv("ROCKETLENS_CONTEXT", "prod")
    assert cluster_access(chosen(namesrv="10.8.8.8:9876")).credentials is None
    monkeypatch.setenv("NAMESRV_ADDR", "10.7.7.7:9876")
    assert cluster_access(chosen()).credentials is None


def test_keys_come_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_ACCESS_KEY", "reader")
    monkeypatch.setenv("ROCKETLENS_SECRET_KEY", SECRET)
    credentials = cluster_access(chosen(namesrv="h:1")).credentials
    assert credentials == Credentials("reader", SECRET)


def test_a_secret_of_an_option_replaces_every_other(config, tmp_path):
    file = tmp_path / "another.secret"
    file.write_text("of the file")
    file.chmod(0o600)
    named = chosen(context="prod", secret_key_file=str(file))
    assert cluster_access(named).credentials == Credentials("reader", "of the file")


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
        ("[contexts.other]\nstore = 's'", "has 1 contexts, but not this one"),
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


def test_contradictions_are_refused(config, run):
    for words in (("--namesrv", "h:1"), ("--context", "test")):
        done = run("find", "k", "--store", "/s", *words)
        assert (done.code, "give only one" in done.err) == (2, True)
    done = run("mqadmin", "topicList", "--context", "backup")
    assert (done.code, "the context names a store" in done.err) == (2, True)


def test_what_is_for_a_cluster_is_refused_for_a_store(config, run, monkeypatch):
    for words in (("--store", "/s"), ("--context", "backup")):
        done = run("find", "k", *words, "--tls")
        assert (done.code, "--tls is for a cluster" in done.err) == (2, True)
    monkeypatch.setenv("ROCKETLENS_STORE", "/s")
    assert "--cert-key is for a cluster" in run("show", "k", "--cert-key", "x").err


def test_a_context_of_a_store_is_read(config, run, write_store, tmp_path):
    store = write_store({"properties": {"KEYS": "k"}})
    config(f'[contexts.mine]\nstore = "{store}"')
    assert run("find", "k", "--context", "mine").code == 0
    assert run("show", "T/0/0", "--context", "mine").code == 0

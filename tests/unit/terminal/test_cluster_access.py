"""How options, environment and contexts are put together."""

from argparse import Namespace

from rocketlens.client.connect.cluster import Credentials
from rocketlens.terminal.cluster_access import choose_context, cluster_access
from tests.unit.terminal.conftest import SECRET

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
    return choose_context(given(**options), takes_store=True)


def test_a_context_says_where_to_look_and_as_whom(config):
    connection = cluster_access(chosen(context="prod"))
    assert connection.name_servers == "10.0.0.1:9876;10.0.0.2:9876"
    assert connection.namespace == "shop"
    assert connection.credentials == Credentials("reader", SECRET)
    assert connection.tls is None


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

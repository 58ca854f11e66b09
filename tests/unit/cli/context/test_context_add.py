"""``rocketlens context add``."""

import tomllib

import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The path of a file of contexts that is not there yet."""
    path = tmp_path / "state" / "config.toml"
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(path))
    return path


def test_a_cluster_gets_a_name_and_can_be_the_default(run, config):
    done = run(
        *("context", "add", "prod", "-n", "10.0.0.1:9876", "--namespace", "shop", "--use"),
        *("--access-key", "reader", "--secret-key-file", "key", "--tls", "--read-only"),
    )
    assert done.code == 0, done.err
    assert str(config) in done.err
    written = tomllib.loads(config.read_text())
    assert written["default_context"] == "prod"
    values = written["contexts"]["prod"]
    assert values.pop("secret_key_file").startswith("/")
    assert values == {
        "namesrv": "10.0.0.1:9876",
        "namespace": "shop",
        "access_key": "reader",
        "tls": True,
        "read_only": True,
    }
    listed = run("context", "list")
    assert listed.out.splitlines()[1].startswith("*\tprod\tcluster 10.0.0.1:9876")


def test_a_store_gets_a_name(run, config, write_store):
    path = write_store({"properties": {"KEYS": "k"}})
    assert run("context", "add", "old", "--store", path).code == 0
    assert config.stat().st_mode & 0o777 == 0o600
    assert run("find", "k", "--context", "old").code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--store DIR or --namesrv ADDR"),
        (("--store", "s", "-n", "a:1"), "--store DIR or --namesrv ADDR"),
        (("--store", "s", "--tls"), "stands alone"),
        (("--context", "x"), "already"),
    ],
)
def test_what_is_no_context_is_refused(run, config, options, said):
    done = run("context", "add", "x", *options)
    assert (done.code, config.exists()) == (2, False)
    assert said in done.err


def test_a_name_that_is_there_is_not_replaced(run, config):
    assert run("context", "add", "x", "-n", "a:1").code == 0
    before = config.read_text()
    done = run("context", "add", "x", "-n", "b:1")
    assert (done.code, config.read_text()) == (2, before)
    assert "already" in done.err

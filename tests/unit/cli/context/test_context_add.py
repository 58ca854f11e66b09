"""``rocketlens context add``."""

import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketlens.terminal.contexts import add_context, change_contexts
from tests.support.archives import archive_store


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


def test_an_archive_gets_a_name_and_is_searched_by_it(run, config, golden, tmp_path):
    store = golden("4.9.7")
    sent = next(each for each in store.sent if (each["keys"] or "").startswith("batch-"))
    archive_store(tmp_path / "lake", store.store)
    assert run("context", "add", "lake", "--archive", tmp_path / "lake", "--use").code == 0
    assert run("context", "list").out.splitlines()[1] == f"*\tlake\tarchive {tmp_path}/lake\t"
    for command in (("find",), ("story",), ("show",)):
        assert run(*command, sent["offset_msg_id"], "--context", "lake").code == 0
    assert sent["topic"] in run("topics").out
    assert run("find", "-t", sent["topic"], "--cursor", "begin", "--max", "1").code == 0
    assert run("export", tmp_path / "all.jsonl", "-t", sent["topic"]).code == 0
    query = run("sql", "select count(*) from messages", "--topic", sent["topic"])
    assert (query.code, query.out.split()[-1] > "0") == (0, True)


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (("status",), "a store or a cluster"),
        (("groups",), "a store or a cluster"),
        (("tail", "-t", "T"), "a store or a cluster"),
        (("send", "T", "x"), "a cluster"),
        (("index", "verify"), "a store"),
    ],
)
def test_commands_that_take_no_archive_refuse_a_context_that_names_one(run, config, command, needs):
    assert run("context", "add", "lake", "--archive", "s3://lake/rocketmq").code == 0
    done = run(*command, "--context", "lake")
    assert (done.code, done.out) == (2, "")
    assert f"this command needs {needs}, but the context names an archive" in done.err


def test_an_address_of_an_archive_stays_what_it_is_and_has_no_credentials(run, config):
    assert run("context", "add", "lake", "--archive", "s3://lake/rocketmq/").code == 0
    assert tomllib.loads(config.read_text())["contexts"]["lake"] == {
        "archive": "s3://lake/rocketmq"
    }
    done = run("context", "add", "other", "--archive", "s3://key:secret@lake/rocketmq")
    assert (done.code, "secret@" in done.err) == (2, False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "one of --store DIR, --archive DIR and --namesrv ADDR"),
        (("--store", "s", "-n", "a:1"), "one of --store DIR, --archive DIR and --namesrv ADDR"),
        (("--store", "s", "--archive", "a"), "one of --store DIR"),
        (("--store", "s", "--tls"), "stands alone"),
        (("--archive", "a", "--tls"), "stands alone"),
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


def test_contexts_that_are_added_at_once_are_all_there(config):
    names = [f"c{number}" for number in range(12)]

    def add(name):
        change_contexts(lambda document: add_context(document, name, {"namesrv": "h:1"}))

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(add, names))
    assert set(tomllib.loads(config.read_text())["contexts"]) == set(names)

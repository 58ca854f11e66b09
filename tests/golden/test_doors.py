"""Every door to a store of every layout, by its directory and by its broker.conf."""

import json
from urllib.parse import urlencode

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.main import main
from tests.conftest import fingerprint
from tests.support.console_client import answers, store_at
from tests.support.effort import sized
from tests.support.layouts import LAYOUTS, copied

BY = ("--store", "--broker-conf")

every_layout = pytest.mark.parametrize("name", LAYOUTS)


def named_by(short):
    """Name the store in one way in `make test`: what another kind of door does in the other."""
    return pytest.mark.parametrize("by", sized((short,), BY))


@pytest.fixture
def layout(layouts, name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return copied(layouts, name, tmp_path / "broker")


@pytest.fixture
def conf(layout, tmp_path):
    """Return the broker.conf where nothing but its own path leads to it."""
    (tmp_path / "etc").mkdir()
    return layout.conf.rename(tmp_path / "etc" / "any.conf")


@pytest.fixture
def named(layout, by, request):
    """Return what names the store: its directory, or its broker.conf."""
    return layout.store if by == "--store" else request.getfixturevalue("conf")


def commands_of(sent, output):
    """Return commands that read a store, and whether each shows the message."""
    return {
        ("find", sent.key): True,
        ("find", sent.position): True,
        ("find", sent.offset_msg_id): False,
        ("find", "-t", sent.topic, "-o", "jsonl"): True,
        ("find", "--where", f"body.$.n = {sent.n}", "-o", "jsonl"): True,
        ("show", sent.position): True,
        ("story", sent.key, "-t", sent.topic): True,
        ("tail", "-t", sent.topic, "--max", "200", "-o", "jsonl"): True,
        ("export", "-t", sent.topic, str(output), "--overwrite"): False,
        ("sql", f"select keys from messages where body_json.n = {sent.n}", "-o", "json"): False,
        ("status",): False,
        ("topics", "-o", "json"): False,
        ("groups",): False,
        ("dlq", "show", "layouts_cg"): False,
        ("doctor",): False,
    }


def assert_shown_by_commands(sent, output, by, named, capsys):
    """Run each command on a store; return what each printed."""
    printed = {}
    for command, shows_it in commands_of(sent, output).items():
        capsys.readouterr()
        code = main([*command, by, str(named)])
        out, err = capsys.readouterr()
        # What doctor and groups say of a machine and of groups is theirs.
        if command[0] not in ("doctor", "groups", "dlq"):
            assert code == 0, (command, out, err)
        assert "Traceback" not in err
        assert not shows_it or sent.key in out, command
        printed[command[0]] = out
    return printed


def assert_shown_by_the_console(sent, named):
    """Search a store by the API, and open the page of the message."""
    question = urlencode({"q": sent.key, "topic": sent.topic})
    paths = ["/", "/topics", "/groups", "/api/topics", "/api/groups", "/api/sources"]
    paths += [f"/search?{question}", f"/api/search?{question}", f"/api/export?{question}"]
    got = answers(paths, store_at(named, "s"))
    assert [each.status_code for each in got] == [200] * len(paths)
    (row,) = got[paths.index(f"/api/search?{question}")].json()["messages"]
    assert row["queue_offset"] == sent.queue_offset
    (shown,) = answers([row["path"]], store_at(named, "s"))
    assert sent.key in shown.text


@every_layout
@named_by("--store")
def test_every_command_reads_a_store_and_changes_nothing(layout, named, by, tmp_path, capsys):
    sent = layout.messages[-1]
    before = fingerprint(tmp_path)
    output = tmp_path.with_name(f"{tmp_path.name}.jsonl")
    printed = assert_shown_by_commands(sent, output, by, named, capsys)
    of_topic = sum(each.topic == sent.topic for each in layout.messages)
    counts = {each["name"]: each["messages"] for each in json.loads(printed["topics"])["topics"]}
    assert counts[sent.topic] == of_topic
    assert len(output.read_text(encoding="utf-8").splitlines()) == of_topic
    assert fingerprint(tmp_path) == before


@every_layout
def test_programs_read_a_store_and_change_nothing(layout, conf, tmp_path):
    sent = layout.messages[-1]
    before = fingerprint(tmp_path)
    for source in ((), ("damage",)):
        options = {"table": source[0]} if source else {}
        rows = sum(batch.num_rows for batch in read_batches(conf, **options))
        assert rows >= (0 if source else len(layout.sent))
    with rocketlens.open_store(broker_conf=conf) as store:
        assert store.view_message(sent.offset_msg_id)
        assert store.query_message(sent.topic, sent.key).messages
        assert store.find(sent.key, topic=sent.topic).messages
        assert store.scan(sent.topic).to_arrow().num_rows
        assert list(store.tail(sent.topic, 5))
        assert store.story(sent.key, sent.topic)
        assert store.topics().topics
        store.groups()
        assert store.status()
    assert fingerprint(tmp_path) == before


@every_layout
@named_by("--broker-conf")
def test_the_console_reads_a_store_and_changes_nothing(layout, named, tmp_path):
    before = fingerprint(tmp_path)
    assert_shown_by_the_console(layout.messages[-1], named)
    assert fingerprint(tmp_path) == before

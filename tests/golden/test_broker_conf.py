"""Stores that a broker.conf names: by every door, and what is wrong with such a file."""

import re
import shutil

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import BadInput, NotAStore, RocketLensError
from rocketlens.main import main
from tests.conftest import fingerprint
from tests.support.layouts import DLEDGER, ROCKSDB, copied, ids

READERS = (
    ("find", "k3"),
    ("find", "-t", "Orders"),
    ("show", "Orders/0/3"),
    ("story", "k3", "-t", "Orders"),
    ("tail", "-t", "Orders"),
    ("status",),
    ("topics",),
    ("groups",),
    ("dlq", "show", "layouts_cg"),
    ("sql", "select count(*) from messages"),
    ("index", "verify"),
    ("index", "build", "--dry-run"),
    ("console", "--bind", "0"),
)


@pytest.fixture
def layout(layouts, name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    layout = copied(layouts, name, tmp_path / "broker")
    # Nothing but its own path leads to it.
    (tmp_path / "etc").mkdir()
    layout.conf = layout.conf.rename(tmp_path / "etc" / "any.conf")
    return layout


def change(layout, *lines):
    """Add lines to the file; of a key that is there twice the last value counts."""
    text = layout.conf.read_text(encoding="utf-8")
    layout.conf.write_text("\n".join([text, *lines, ""]), encoding="utf-8")


def assert_refused(conf, said, capsys):
    """Check that each command says in one line what is wrong, and each function raises it."""
    for command in READERS:
        capsys.readouterr()
        code = main([*command, "--broker-conf", str(conf)])
        printed = capsys.readouterr()
        assert (code, printed.out) == (2, ""), (command, printed)
        assert printed.err.count("\n") == 1, (command, printed.err)
        assert re.search(said, printed.err), (command, printed.err)
    for door in (
        lambda: rocketlens.open_store(broker_conf=conf),
        lambda: rocketlens.open_store(conf),
        lambda: list(read_batches(conf)),
        lambda: list(read_batches(brokerConf=conf)),
    ):
        with pytest.raises(NotAStore, match=said):
            door()


@pytest.mark.parametrize("name", ["multi-5.5.0"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["storePathRootDir=DIR/none"], "storePathRootDir is .*none, which is not a directory"),
        (["storePathRootDir=store"], "relative to where the broker was started"),
        (["storePathCommitLog=DIR/disk1,DIR/disk3"], "disk3, which is not a directory"),
        (["storePathCommitLog=DIR/disk1,DIR/disk1/"], "twice as a directory of the log"),
        (["readOnlyCommitLogStorePaths=DIR/disk2"], "twice as a directory of the log"),
        (["readOnlyCommitLogStorePaths=DIR/disk9"], "disk9, which is not a directory"),
        (["enableDLegerCommitLog=true", "dLegerSelfId=n0"], "dledger-n0, which is not a directory"),
        (["storePathCommitLog=DIR/store"], "holds no commit log segment"),
    ],
)
def test_unknown_and_contradictory_paths_are_named_by_every_door(layout, lines, said, capsys):
    before = fingerprint(layout.path)
    change(layout, *(line.replace("DIR", str(layout.path)) for line in lines))
    assert_refused(layout.conf, said, capsys)
    assert fingerprint(layout.path) == before


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_two_directories_with_the_same_part_of_the_log_are_named_by_every_door(layout, capsys):
    first, second = layout.log_files()
    shutil.copy(first, second.with_name(first.name))
    before = fingerprint(layout.path)
    assert_refused(layout.conf, "are the same part of the log", capsys)
    assert fingerprint(layout.path) == before
    # In part, too.
    second.with_name(first.name).rename(second.with_name(f"{16384:020}"))
    with pytest.raises(NotAStore, match="are the same part of the log"):
        rocketlens.open_store(broker_conf=layout.conf)


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_a_broker_conf_that_is_not_there_or_no_file_is_named_by_every_door(layout, capsys):
    missing = layout.conf.with_name("none.conf")
    assert_refused(missing, r"none\.conf", capsys)


@pytest.mark.parametrize("name", ["multi-5.5.0"])
@pytest.mark.parametrize(
    ("new", "read_only"), [("disk2", "disk1"), ("disk1", "disk2"), ("disk3", "disk1, DIR/disk2")]
)
def test_read_only_directories_of_the_log_are_read(layout, new, read_only, tmp_path, capsys):
    (layout.path / "disk3").mkdir()
    for line in (f"storePathCommitLog=DIR/{new}", f"readOnlyCommitLogStorePaths=DIR/{read_only}"):
        change(layout, line.replace("DIR", str(layout.path)))
    before = fingerprint(tmp_path)
    expected = sorted(sent.offset_msg_id for sent in layout.messages)
    with rocketlens.open_store(broker_conf=layout.conf) as store:
        answer = store.find(topic=["Orders", "Payments"])
        assert answer.complete, answer.failures
        assert sorted(ids(answer)) == expected
        for sent in layout.messages[::7]:
            assert ids(store.find(sent.key)) == [sent.offset_msg_id]
            assert ids(store.find(sent.position)) == [sent.offset_msg_id]
            assert store.view_message(sent.offset_msg_id).unique_key == sent.unique_key
    rows = [row for batch in read_batches(layout.conf) for row in batch.to_pylist()]
    assert sorted(row["offset_msg_id"] for row in rows if row["topic"] != "SELF_TEST") == expected
    assert main(["find", "-t", "Orders", "--broker-conf", str(layout.conf)]) == 0
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("name", DLEDGER)
@pytest.mark.parametrize("keep", [1, 12, 47])
def test_a_replica_that_is_cut_in_the_header_of_an_entry_is_incomplete(layout, keep, capsys):
    *_, before_last, last = layout.messages
    path = layout.log_files()[-1]
    at = int(last.offset_msg_id[16:], 16) - int(path.name) - 48
    with path.open("r+b") as file:
        file.truncate(at + keep)
    before = fingerprint(layout.path)
    for command, shown in {
        ("find", before_last.key, "-t", before_last.topic): before_last.key,
        ("find", last.key, "-t", last.topic): "nothing found, INCOMPLETE",
        ("find", last.position): "nothing found, INCOMPLETE",
        ("find", "-t", last.topic): "INCOMPLETE",
        ("status",): "",
    }.items():
        assert main([*command, "--broker-conf", str(layout.conf)]) == 3, command
        printed = capsys.readouterr()
        assert shown in printed.out + printed.err, command
    with pytest.raises(RocketLensError, match="lost"):
        list(read_batches(layout.conf))
    assert fingerprint(layout.path) == before


@pytest.mark.parametrize("name", [ROCKSDB])
def test_a_database_that_is_being_written_gives_whole_answers_and_its_writer_goes_on(layout):
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    path = str(layout.store / "consumequeue")
    families = {each: rocksdict.Options(raw_mode=True) for each in rocksdict.Rdict.list_cf(path)}
    writer = rocksdict.Rdict(path, options, column_families=families)
    try:
        for number, sent in enumerate(layout.messages[::9]):
            for key in range(200):
                writer[b"key %d %d" % (number, key)] = b"x" * 100
            if number % 3 == 1:
                writer.flush()
            with rocketlens.open_store(broker_conf=layout.conf) as store:
                assert ids(store.find(sent.position)) == [sent.offset_msg_id]
                assert ids(store.find(sent.key)) == [sent.offset_msg_id]
                answer = store.find(topic=sent.topic)
                wanted = [each for each in layout.messages if each.topic == sent.topic]
                assert len(answer.messages) == len(wanted) or not answer.complete
        assert writer[b"key 0 0"] == b"x" * 100
    finally:
        writer.close()


@pytest.mark.parametrize("name", ["elsewhere-5.5.0"])
def test_each_store_of_a_broker_container_is_named_by_the_file_of_its_broker(
    layout, layouts, tmp_path, capsys
):
    second = copied(layouts, "multi-5.5.0", tmp_path / "second")
    container = tmp_path / "etc" / "container.conf"
    container.write_text(f"brokerConfigPaths={layout.conf}:{second.conf}\n", encoding="utf-8")
    before = fingerprint(tmp_path)
    assert_refused(container, f"broker container.*{layout.conf} or {second.conf}", capsys)
    for each in (layout, second):
        with rocketlens.open_store(broker_conf=each.conf) as store:
            for sent in each.messages[::9]:
                assert ids(store.find(sent.key)) == [sent.offset_msg_id]
            answer = store.find(topic=["Orders", "Payments"])
            assert answer.complete
            assert len(answer.messages) == len(each.messages)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_a_store_is_named_once(layout, capsys):
    for command in (*READERS[:3], ("index", "verify")):
        both = ["--store", str(layout.store), "--broker-conf", str(layout.conf)]
        assert main([*command, *both]) == 2
        assert "not allowed with argument --store" in capsys.readouterr().err
    with pytest.raises(BadInput, match="give only one"):
        read_batches(layout.store, brokerConf=layout.conf)
    with pytest.raises(BadInput, match="which store"):
        rocketlens.open_store(layout.store, broker_conf=layout.conf)
    with pytest.raises(BadInput, match="option store is missing"):
        read_batches()

"""Files of a store have RocketMQ's names and places; what stands where a log is missed is named.

The paths that a broker.conf of RocketMQ names.
"""

import json
from pathlib import Path

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import NotAStore
from rocketlens.store.layout import StoreLayout, paths_of
from rocketlens.store.layout import index_file_name as file_name
from rocketlens.store.missing_log import missing_log
from tests.unit.store.read.log.test_commitlog import make_replica

ROCKETMQS = {
    *("commit_log", "consume_queue", "index", "config", "checkpoint", "abort"),
    *("batch_queues", "compacted", "tiers"),
}


def test_file_names_ascend_though_the_clock_does_not():
    first = file_name(1_700_000_000_123, "")
    assert len(first) == 17
    assert file_name(1_600_000_000_000, first) == file_name(1_700_000_000_124, "")
    assert file_name(1_700_000_000_999, file_name(1_700_000_000_999, "")) == file_name(
        1_700_000_001_000, ""
    )


def test_rocketmqs_files_are_where_it_looks_for_them_and_ours_beside_them():
    layout = StoreLayout(Path("/store"))
    assert layout.commit_log == Path("/store/commitlog")
    assert layout.consume_queue == Path("/store/consumequeue")
    assert layout.index == Path("/store/index")
    assert layout.config == Path("/store/config")
    assert layout.checkpoint == Path("/store/checkpoint")
    assert layout.abort == Path("/store/abort")
    assert layout.batch_queues == Path("/store/batchconsumequeue")
    assert layout.compacted == Path("/store/compaction/compactionLog")
    assert layout.tiers == Path("/store/config/tieredStoreMetadata.json")
    ours = {
        name: path
        for name, path in vars(layout).items()
        if isinstance(path, Path) and name not in {*ROCKETMQS, "root", "commit_log"}
    }
    assert len(set(ours.values())) == len(ours) > 8
    assert all(layout.own in {path, path.parent} for path in ours.values())


def test_a_time_that_is_damage_gives_a_name_all_the_same():
    for damaged in (-1, 2**63 - 1):
        name = file_name(damaged, "")
        assert len(name) == 17
        assert name.isdigit()


def test_the_log_of_one_queue_is_a_store_without_queues_and_index():
    for path in ("tiered/broker-a/Orders/0/COMMIT_LOG", "compaction/compactionLog/Orders/0"):
        layout = StoreLayout.of(Path("/data", path))
        assert layout.is_log_of_queue
        assert layout.commit_logs == (Path("/data", path),)
    assert not StoreLayout.of(Path("/data/store")).is_log_of_queue


@pytest.fixture
def conf(tmp_path):
    for name in ("store", "a", "b", "old", "raft/dledger-n1", "store/dledger-n1"):
        (tmp_path / name).mkdir(parents=True)

    def write(text, name="x.conf"):
        file = tmp_path / name
        file.write_text(text.replace("DIR", str(tmp_path)), encoding="utf-8")
        return file

    return write


@pytest.mark.parametrize(
    ("text", "logs"),
    [
        ("", ["store/commitlog"]),
        ("storePathCommitLog=DIR/a", ["a"]),
        ("storePathCommitLog = DIR/a, DIR/b\n", ["a", "b"]),
        ("storePathCommitLog=DIR/b\nreadOnlyCommitLogStorePaths=DIR/old", ["b", "old"]),
        ("storePathCommitLog=DIR/b\nstorePathCommitLog=DIR/a", ["a"]),
        (
            "enableDLegerCommitLog=true\ndLegerSelfId=n1\nstorePathDLedgerCommitLog=DIR/raft",
            ["raft/dledger-n1/data"],
        ),
        (
            "enableDLegerCommitLog=true\ndLegerSelfId=n1\nstorePathCommitLog=DIR/a,DIR/none",
            ["store/dledger-n1/data", "a"],
        ),
    ],
)
def test_the_store_and_its_log_are_where_the_file_says(conf, tmp_path, text, logs):
    root, found, _ = paths_of(conf(f"storePathRootDir=DIR/store\n{text}"))
    assert root == tmp_path / "store"
    assert found == tuple(tmp_path / log for log in logs)


@pytest.mark.parametrize(
    ("text", "tiered"),
    [
        ("", None),
        ("tieredStoreFilePath=DIR/none", "none/212d6b50_DefaultCluster"),
        ("tieredStoreFilePath=DIR/a\nbrokerClusterName=C", "a/0d61f837_C"),
    ],
)
def test_tiered_storage_is_where_the_file_says_whether_it_is_there_or_not(
    conf, tmp_path, text, tiered
):
    _, _, found = paths_of(conf(f"storePathRootDir=DIR/store\n{text}"))
    assert found == (None if tiered is None else tmp_path / tiered)


def test_a_store_without_a_name_is_rocketmqs_default(conf, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths_of(conf("brokerName=a"))[0] == tmp_path / "store"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("storePathRootDir=DIR/none", "storePathRootDir is .*none, which is not a directory"),
        ("storePathRootDir=store", "relative to where the broker was started"),
        (
            "storePathRootDir=DIR/store\nstorePathCommitLog=DIR/a,DIR/c",
            "c, which is not a directory",
        ),
        ("storePathRootDir=DIR/store\nstorePathCommitLog=DIR/a,DIR/a/", "twice"),
        (
            "storePathRootDir=DIR/store\nenableDLegerCommitLog=true\ndLegerSelfId=n7",
            "dLegerSelfId is .*dledger-n7, which is not a directory",
        ),
    ],
)
def test_what_is_not_there_or_contradicts_is_named(conf, text, said):
    with pytest.raises(NotAStore, match=said):
        paths_of(conf(text))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(NotAStore, match="not a directory"):
        paths_of(tmp_path)


def test_a_broker_conf_beside_a_store_is_used_if_it_is_of_that_store(conf, tmp_path):
    conf("storePathRootDir=DIR/store\nstorePathCommitLog=DIR/a", "broker.conf")
    assert StoreLayout.of(tmp_path / "store").commit_logs == (tmp_path / "a",)
    assert StoreLayout.of(tmp_path / "b").commit_logs == (tmp_path / "b" / "commitlog",)
    # Of a copy it names where the log was.
    conf("storePathRootDir=DIR/b\nstorePathCommitLog=DIR/a", "broker.conf")
    assert StoreLayout.of(tmp_path / "store").elsewhere == ()


def test_the_file_of_a_container_names_those_of_its_brokers(conf):
    file = conf("brokerConfigPaths=/conf/a.conf:/conf/b.conf\nlistenPort=10811")
    with pytest.raises(NotAStore, match=r"container: .* /conf/a\.conf or /conf/b\.conf"):
        paths_of(file)


@pytest.fixture
def said(tmp_path):
    """Give ``said(path)``: what every door says of a directory that has no log."""

    def open_it(*parts):
        path = tmp_path.joinpath(*parts)
        with pytest.raises(NotAStore) as by_store:
            rocketlens.open_store(path)
        with pytest.raises(NotAStore) as by_bulk:
            list(read_batches(path))
        assert str(by_store.value) == str(by_bulk.value)
        return str(by_store.value)

    return open_it


def test_stores_near_a_directory_that_is_none_are_named(tmp_path):
    for store in ("a", "b/store", "c", "d"):
        (tmp_path / store / "commitlog").mkdir(parents=True)
    said = missing_log(tmp_path / "commitlog")
    assert "no commit log segment" in said
    assert said.endswith(
        f"; did you mean {tmp_path / 'a'} or {tmp_path / 'b/store'} or {tmp_path / 'c'}? (1 more)"
    )
    inside = missing_log(tmp_path / "a/commitlog/commitlog")
    assert inside.endswith(f"; did you mean {tmp_path / 'a'}?")
    above = missing_log(tmp_path / "b/commitlog")
    assert above.endswith(f"; did you mean {tmp_path / 'b/store'}?")


def test_a_store_with_a_dledger_log_is_named_when_it_is_near(tmp_path):
    (tmp_path / "a" / "dledger-n0" / "data").mkdir(parents=True)
    assert missing_log(tmp_path / "commitlog").endswith(f"; did you mean {tmp_path / 'a'}?")


def test_a_path_that_is_not_there_is_no_such_file(said, tmp_path, run):
    assert said("broker.conf") == f"{tmp_path / 'broker.conf'}: no such file or directory"
    done = run("find", "k", "--broker-conf", tmp_path / "broker.conf")
    assert (done.code, done.out) == (2, "")
    assert "broker.conf: no such file or directory" in done.err
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert said("stroe").endswith(f"no such file or directory; did you mean {tmp_path / 'store'}?")


def test_a_dledger_log_without_entries_says_its_term_and_what_was_committed(said, tmp_path):
    root = make_replica(tmp_path)
    (root / "data" / f"{0:020}").unlink()
    (root / "currterm").write_text("voteLeader=n0\ncurrTerm=4\n")
    (root / "checkpoint").write_text("committedIndex=-1\n")
    assert said() == f"{root} is a DLedger log in term 4 in which no entry is committed"
    (root / "checkpoint").write_text("committedIndex=119\n")
    assert "whose checkpoint has 120 committed entries" in said()
    assert "copy it from the broker" in said()
    for name in ("currterm", "checkpoint"):
        (root / name).unlink()
    assert said() == f"{root} is a DLedger log in which no entry is committed"
    (root / "data" / f"{0:020}").write_bytes(b"")
    assert "no entry is committed" in said()
    for part in ("dledger-n0", "dledger-n0/data"):
        assert (
            said(part) == f"{root} is the DLedger log of the store {tmp_path}: give that directory"
        )


@pytest.mark.parametrize("part", ["", "a1_C", "a1_C/b/T/0", "a1_C/b/T/0/CONSUME_QUEUE"])
def test_tiered_storage_alone_names_the_log_of_a_queue(said, tmp_path, part):
    log = tmp_path / "tiers/a1_C/b/T/0/COMMIT_LOG"
    log.mkdir(parents=True)
    log.with_name("CONSUME_QUEUE").mkdir()
    assert said("tiers", part).endswith(
        f"has files of tiered storage: open the log of a queue by itself, as {log}"
    )


def test_a_store_whose_messages_are_in_tiered_storage_says_so(said, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "tieredStoreMetadata.json").write_text("{}")
    assert "its messages are in tiered storage" in said()


def test_logs_of_compacted_topics_alone_name_one(said, tmp_path):
    log = tmp_path / "compaction/compactionLog/T/0"
    log.mkdir(parents=True)
    assert said().endswith(f"open that of a queue by itself, as {log}")


@pytest.mark.parametrize("has_directory", [False, True])
@pytest.mark.parametrize(
    "cache", ["consumequeue/T/0", "batchconsumequeue/T/0", "index/20260101000000000"]
)
def test_a_store_whose_log_is_elsewhere_asks_for_its_broker_conf(
    said, tmp_path, cache, has_directory
):
    (tmp_path / cache).mkdir(parents=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {}}))
    if has_directory:
        (tmp_path / "commitlog").mkdir()
    name = cache.partition("/")[0]
    assert f"is a store ({name}, config) and its log is elsewhere" in said()
    assert "--broker-conf" in said()


def test_a_store_in_which_nothing_was_stored_yet_is_named(said, tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    assert "the store of a broker that stored no message yet" in said()


def test_files_of_a_log_without_a_store_are_named(said, tmp_path):
    (tmp_path / "disk1").mkdir()
    (tmp_path / "disk1" / f"{0:020}").write_bytes(b"x")
    assert "has files of a log" in said("disk1")
    assert "--broker-conf" in said("disk1")


def test_a_deep_tree_is_looked_at_for_a_thousand_entries_only(tmp_path, monkeypatch):
    for number in range(30):
        (tmp_path / f"{number:02}" / "a" / "b").mkdir(parents=True)
    (tmp_path / "29/a/b/COMMIT_LOG").mkdir()
    assert "tiered" in missing_log(tmp_path / "commitlog")
    monkeypatch.setattr("rocketlens.limits.MAX_LOOKED_AT_ENTRIES", 40)
    assert "no commit log segment" in missing_log(tmp_path / "commitlog")

"""Files of a store are where RocketMQ looks for them, and have its names.

The paths that a broker.conf of RocketMQ names.
"""

from pathlib import Path

import pytest

from rocketlens.errors import NotAStore
from rocketlens.store.layout import StoreLayout, paths_of
from rocketlens.store.layout import index_file_name as file_name

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

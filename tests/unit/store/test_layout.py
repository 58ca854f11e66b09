"""Files of a store are where RocketMQ looks for them, and have its names."""

from pathlib import Path

from rocketlens.store.layout import StoreLayout
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
        name: getattr(layout, name)
        for name, member in vars(StoreLayout).items()
        if isinstance(member, property)
        and name not in {*ROCKETMQS, "commit_logs", "disks", "is_log_of_queue"}
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

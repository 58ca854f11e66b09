"""The store's keys of a broker.conf."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import parse_delay_levels
from rocketlens.store.write.config import StoreConfig


def test_the_stores_keys_are_taken_and_the_others_handed_back():
    config, others = StoreConfig.from_properties(
        {
            "mappedFileSizeCommitLog": "262144",
            "flushDiskType": "SYNC_FLUSH",
            "messageIndexEnable": "False",
            "brokerName": "a",
            "noSuchKey": "1",
        }
    )
    assert (config.mappedFileSizeCommitLog, config.is_sync_flush) == (262_144, True)
    assert config.messageIndexEnable is False
    assert others == {"brokerName": "a", "noSuchKey": "1"}
    assert StoreConfig.from_properties({})[0] == StoreConfig()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mappedFileSizeCommitLog", "1G"),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", str(2**31)),
        ("maxIndexNum", "1"),
        ("maxIndexNum", "200000000"),
        ("messageIndexEnable", "yes"),
        ("flushDiskType", "NO_FLUSH"),
        ("deleteWhen", "25"),
        ("deleteWhen", "4am"),
        ("messageDelayLevel", "1s 5x"),
        ("flushIntervalCommitLog", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_key(key, text):
    with pytest.raises(BadInput, match=key):
        StoreConfig.from_properties({key: text})


def test_a_queue_file_holds_whole_entries():
    assert StoreConfig(mappedFileSizeConsumeQueue=6_000_001).queue_file_bytes == 6_000_020


def test_delay_levels_count_from_one():
    assert parse_delay_levels("1s 2m 3h 4d") == (0, 1000, 120_000, 10_800_000, 345_600_000)

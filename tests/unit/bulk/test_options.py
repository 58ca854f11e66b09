"""The table of options of the data source."""

import pytest

from rocketlens.bulk.messages import PARTITION_BYTES, BatchScan
from rocketlens.bulk.options import OPTIONS, known_options, names_of, time_option
from rocketlens.errors import BadInput
from rocketlens.pipeline.stream import MAX_STREAM_TRIGGER_BYTES


def defaults_of(reader):
    return {option.name: option.default for option in OPTIONS if reader in option.readers}


def test_a_reader_has_each_option_once():
    for reader in ("batch reads", "streams", "read_batches"):
        assert len(set(names_of(reader))) == len(names_of(reader)) > 10


def test_the_defaults_in_the_table_are_those_that_are_read(tmp_path):
    defaults = defaults_of("batch reads")
    scan = BatchScan({"store": str(tmp_path)})
    assert defaults["maxPartitionBytes"] == str(scan.partition_bytes) == str(PARTITION_BYTES)
    assert defaults["minPartitions"] == str(scan.min_partitions)
    assert defaults["body"] == str(scan.with_body).lower()
    assert defaults["checkCrc"] == str(scan.check_crc).lower()
    assert defaults["failOnDataLoss"] == str(scan.losses.fails).lower()
    trigger_bytes = defaults_of("streams")["maxBytesPerTrigger"]
    assert trigger_bytes == str(MAX_STREAM_TRIGGER_BYTES)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1795132800000", 1_795_132_800_000),
        ("2026-11-20", 1_795_132_800_000),
        ("2026-11-20T00:00:00.5", 1_795_132_800_500),
        ("2026-11-20T08:00+08:00", 1_795_132_800_000),
        ("2026-11-20 00:00:00Z", 1_795_132_800_000),
        ("20261120", 20_261_120),
    ],
)
def test_a_time_is_a_number_or_iso_8601(text, milliseconds):
    assert time_option({"endingTimestamp": text}, "endingTimestamp", -7) == milliseconds
    assert time_option({}, "endingTimestamp", -7) == -7


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1969-12-31", "1.5", "9" * 30])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(BadInput, match="endingTimestamp"):
        time_option({"endingTimestamp": text}, "endingTimestamp", 0)


def test_the_names_of_sparks_kafka_source_are_understood():
    given = {"Subscribe": "A,B", "startingOffsets": "earliest", "endingOffsets": "latest"}
    assert known_options(given, "batch reads") == {"topic": "A,B"}
    assert known_options({"startingOffsets": "Latest"}, "streams") == {"startingOffset": "latest"}


@pytest.mark.parametrize(
    ("options", "reader", "said"),
    [
        ({"subscribe": "A", "topic": "A"}, "batch reads", "give one"),
        ({"startingOffsets": "latest"}, "batch reads", "is earliest for batch reads"),
        ({"startingOffsets": "5"}, "streams", "for a position in the log"),
        (
            {"startingOffsets": '{"A":{"0":5}}', "startingOffset": "5"},
            "streams",
            "startingOffsets and startingOffset both say where to read",
        ),
        ({"startingOffsets": "earliest", "startingOffset": "5"}, "streams", "give one"),
        ({"endingOffsets": "earliest"}, "read_batches", "is latest for read_batches"),
        ({"endingOffsets": "latest"}, "streams", "not for streams"),
    ],
)
def test_what_those_names_cannot_mean_here_is_refused(options, reader, said):
    with pytest.raises(BadInput, match=said):
        known_options(options, reader)

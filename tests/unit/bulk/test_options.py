"""The table of options of the data source."""

from rocketlens import limits
from rocketlens.bulk.messages import PARTITION_BYTES, BatchScan
from rocketlens.bulk.options import OPTIONS, names_of


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
    assert defaults["failOnDataLoss"] == str(scan.fails_on_loss).lower()
    trigger_bytes = defaults_of("streams")["maxBytesPerTrigger"]
    assert trigger_bytes == str(limits.MAX_STREAM_TRIGGER_BYTES)

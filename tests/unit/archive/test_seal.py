"""A file of an archive whose footer is damaged is never read: the checksum before it decides."""

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rocketlens
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.seal import SealingSink, read_sealed_metadata
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log

TABLES = ("messages", "message_keys")


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    root = tmp_path_factory.mktemp("seal")
    write_log(root / "store", map(record, range(20)), 1 << 16)
    archive_store(root / "lake", root / "store")
    return root / "lake"


def file_of(lake, table):
    (path,) = lake.glob(f"{table}/day*/*.parquet")
    return path


def end_of(content):
    """Return how many bytes the seal and all behind it are."""
    return 12 + int.from_bytes(content[-8:-4], "little") + 8


@pytest.mark.parametrize("table", TABLES)
def test_every_flipped_byte_of_a_seal_or_a_footer_is_noticed(lake, table):
    content = file_of(lake, table).read_bytes()
    assert content[-end_of(content) :].startswith(b"RLfooter")
    assert read_sealed_metadata(pa.BufferReader(content)).num_rows in {20, 40}
    for at in range(1, end_of(content) + 1):
        for flip in (0x01, 0x80):
            damaged = bytearray(content)
            damaged[-at] ^= flip
            with pytest.raises(ValueError, match="damaged or truncated"):
                read_sealed_metadata(pa.BufferReader(damaged))


@pytest.mark.parametrize("table", TABLES)
def test_every_prefix_of_a_file_is_noticed(lake, table):
    content = file_of(lake, table).read_bytes()
    for size in range(len(content)):
        with pytest.raises(ValueError, match="damaged or truncated"):
            read_sealed_metadata(pa.BufferReader(content[:size]))


def test_a_footer_is_sealed_however_it_is_written():
    footer = bytes(range(256)) * 4
    whole = b"PAR1" + b"page" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    results = set()
    for piece in (1, 7, 1000, len(whole)):
        written = bytearray()
        sink = SealingSink(written.extend, lambda written=written: len(written))
        sink.write(whole[:4])
        sink.hold()
        for start in range(4, len(whole), piece):
            sink.write(whole[start : start + piece])
            assert sink.tell() == min(start + piece, len(whole))
        sink.seal()
        assert sink.tell() == len(whole) + 12
        results.add(bytes(written))
    (result,) = results
    assert result[:8] == whole[:8]
    assert result[20:] == whole[8:]


@pytest.mark.parametrize("table", TABLES)
def test_other_programs_read_a_file_that_has_a_seal(lake, table):
    rows = pq.ParquetFile(file_of(lake, table)).read()
    assert rows.num_rows in {20, 40}
    # What deltalake asks is not of Arrow's own reader.
    builder = deltalake.QueryBuilder().register("rows", deltalake.DeltaTable(lake / table))
    found = pa.table(builder.execute("SELECT store_size FROM rows ORDER BY physical_offset"))
    assert found.num_rows == rows.num_rows


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_footer_makes_the_answer_incomplete(lake, table):
    path = file_of(lake, table)
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[-end_of(content) + 40] ^= 1
    path.write_bytes(damaged)
    try:
        with rocketlens.open_archive(lake) as archive:
            answer = archive.find("key-7")
            assert (len(answer), answer.complete) == (0, False)
            assert "cannot be read: its end is damaged or truncated" in answer.failures[0].error
    finally:
        path.write_bytes(content)


def test_a_file_of_an_earlier_version_has_no_seal_and_is_read(lake, tmp_path):
    content = file_of(lake, "messages").read_bytes()
    end = end_of(content)
    path = tmp_path / "earlier.parquet"
    path.write_bytes(content[:-end] + content[12 - end :])
    with ArchiveLocation.of(tmp_path).parquet(str(path)) as file:
        assert file.read().num_rows == 20

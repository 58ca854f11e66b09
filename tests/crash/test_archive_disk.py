"""An archive on a disk that is full is as it was, and the job goes on once there is room."""

from tests.crash.small_disk import run_on_a_small_disk

ARCHIVE = """
import os, sys, tempfile
from pathlib import Path
import rocketlens
from rocketlens.errors import ArchiveError
from rocketlens.pipeline import archive
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log

archive.MAX_ARCHIVE_BATCH_BYTES = 1 << 19
disk = Path(sys.argv[1])
ballast, lake = disk / "ballast", disk / "lake"
ballast.write_bytes(bytes(6 << 20))
with tempfile.TemporaryDirectory() as directory:
    store = Path(directory)
    log = [record(n, body=os.urandom(4096)) for n in range(1000)]
    write_log(store, log, 1 << 19)
    for _ in range(3):
        try:
            archive_store(lake, store)
        except (OSError, ArchiveError) as error:
            assert "No space left on device" in str(error), error
            assert str(lake) in str(error) and "\\n" not in str(error), error
        else:
            raise AssertionError("it was not full")
    with rocketlens.open_archive(lake) as archive:
        count = len(list(archive.scan()))
        assert 0 < count < 1000
        # What there was no room for may have the key.
        assert not archive.find("no such key").complete
    assert len(list(lake.glob("messages/*/*.parquet"))) == len(
        archive.source.reader.listing.messages
    )
    ballast.unlink()
    archive_store(lake, store)
    with rocketlens.open_archive(lake) as archive:
        assert len(list(archive.scan())) == 1000
        assert all(len(archive.find(f"key-{n}")) == 1 for n in range(0, 1000, 97))
        assert archive.find("no such key").complete
print("all found")
"""


def test_a_full_disk_ends_a_job_with_a_line_and_the_next_one_goes_on(tmp_path):
    done = run_on_a_small_disk(ARCHIVE, tmp_path, mib=10)
    assert done.stdout == "all found\n", done.stderr

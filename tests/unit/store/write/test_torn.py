"""A record that a power cut tore is told from one that only looks odd."""

import pytest

from rocketlens.store.write.torn import SECTOR_BYTES, lacks_a_sector
from tests.support.failing_disks import RestartedDisk
from tests.support.written_stores import BORN_HOST, open_small, records_of, send_many


def append(store, body, properties):
    return store.append("Orders", 0, body, properties, BORN_HOST, born_timestamp_ms=1)


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_a_record_that_lacks_a_sector_of_its_properties_is_not_taken_for_whole(
    tmp_path, lost, follows
):
    store = open_small(tmp_path)
    send_many(store, 5, queues=1)
    store.flush()
    torn = append(store, b"body", b"note\x01" + b"v" * 3000 + b"\x02")
    if follows:
        append(store, b"x" * 600, b"KEYS\x01after\x02")
    store.close_abruptly()
    place = torn.physical_offset
    first = (place // 512 + 1) * 512
    last = (place + torn.store_size - 1) // 512 * 512
    sectors = {
        "first": [first],
        "middle": [first + 1024],
        "last": [last],
        "all": range(first, last + 512, 512),
    }[lost]
    segment = tmp_path / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    for sector in sectors:
        content[sector : sector + 512] = bytes(512)
    segment.write_bytes(content)
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.end_offset == place
        assert store.recovered.cut.start == place
    assert len(records_of(tmp_path)) == 5


def bytes_with(written, size=4 * SECTOR_BYTES):
    content = bytearray(size)
    for start, stop in written:
        content[start:stop] = b"x" * (stop - start)
    return memoryview(content)


def test_written_bytes_lack_no_sector_wherever_they_begin_and_end():
    for start, stop in ((0, 1), (500, 520), (512, 1024), (3, 2000)):
        assert not lacks_a_sector(bytes_with([(start, stop)]), start, stop)


@pytest.mark.parametrize("lost", range(4))
def test_each_sector_that_is_zeros_is_seen(lost):
    start, stop = 100, 2000
    content = bytes_with([(start, stop)])
    content[lost * SECTOR_BYTES : (lost + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    assert lacks_a_sector(content, start, stop)


def test_zeros_before_something_written_in_the_same_sector_are_no_lost_sector():
    content = bytes_with([(0, 10), (20, 30)])
    assert not lacks_a_sector(content, 0, 20)
    assert lacks_a_sector(content, 0, 40)

"""A look-up of a key that many messages have reads the newest, or those behind a cursor."""

from itertools import islice

import pytest

import rocketlens
from rocketlens.archive.reader import _OpenFile
from rocketlens.errors import BadInput
from rocketlens.query.answer_builder import order_in_time
from tests.support.archives import DAY_MS, archive_store
from tests.support.synthetic import START_MS, record, write_log

COUNT, DAYS, BATCHES = 240, 3, 4


def hot(number):
    """A record with the key that all have: days and batches overlap, and times are repeated."""
    when = START_MS + DAY_MS * (number % DAYS) + number * 37 % 50 * 1000
    return record(number, KEYS="hot also-hot", store_timestamp_ms=when)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hot")
    for batch in range(BATCHES):
        end = (batch + 1) * COUNT // BATCHES
        write_log(directory / "store", map(hot, range(end)), 1 << 17)
        archive_store(directory / "lake", directory / "store")
    return directory / "lake"


@pytest.mark.parametrize("max_num", [1, 2, 7, 50, COUNT - 1, COUNT, COUNT + 1])
def test_the_newest_messages_of_a_key_are_those_of_the_whole_answer(lake, max_num):
    with rocketlens.open_archive(lake) as archive:
        whole = archive.find("hot")
        assert len(whole) == COUNT
        answer = archive.find("hot", max_num=max_num)
        assert answer.messages == whole.messages[-max_num:]
        assert answer.truncated == (max_num < COUNT)
        assert answer.complete


def test_the_newest_messages_of_a_time_range_are_those_of_its_whole_answer(lake):
    begin, end = START_MS + DAY_MS // 2, START_MS + DAY_MS + 20_000
    with rocketlens.open_archive(lake) as archive:
        whole = archive.find("hot", begin=begin, end=end)
        assert {begin <= each.store_timestamp_ms <= end for each in whole} == {True}
        assert archive.find("hot", begin=begin, end=end, max_num=5).messages == whole.messages[-5:]


def test_the_newest_messages_are_found_without_reading_the_keys_of_older_days(lake, monkeypatch):
    read = []
    read_hash = _OpenFile.read_hash

    def noted(opened, *group_and_hash):
        rows = read_hash(opened, *group_and_hash)
        read.append(max(rows.column("store_timestamp_ms").to_pylist()))
        return rows

    monkeypatch.setattr(_OpenFile, "read_hash", noted)
    with rocketlens.open_archive(lake) as archive:
        assert len(archive.find("hot", max_num=3)) == 3
        assert {when // DAY_MS for when in read} == {(START_MS + DAY_MS * (DAYS - 1)) // DAY_MS}
        read.clear()
        assert len(list(islice(archive.look_up("hot"), 3))) == 3
        assert max(read) < START_MS + DAY_MS * (DAYS - 1)


@pytest.mark.parametrize("size", [1, 7, 128, 500])
def test_parts_of_a_key_have_each_message_once_the_oldest_first(lake, monkeypatch, size):
    monkeypatch.setattr("rocketlens.archive.scan._LOOKED_UP_AT_ONCE", 50)
    with rocketlens.open_archive(lake) as archive:
        whole = archive.find("hot").messages
        cursor, found = None, []
        while True:
            part = archive.look_up("hot", cursor=cursor)
            found += islice(part, size)
            cursor = part.cursor
            if cursor is None:
                assert part.complete
                break
        assert sorted(found, key=order_in_time) == list(whole)
        times = [each.store_timestamp_ms for each in found]
        assert times == sorted(times)


def test_an_id_has_one_message_and_no_cursor(lake):
    with rocketlens.open_archive(lake) as archive:
        (first, *_) = archive.find("hot", max_num=1)
        for text in (first.unique_key, first.offset_msg_id, first.position):
            look_up = archive.look_up(text)
            assert list(look_up) == [first]
            assert look_up.cursor is None
            assert list(archive.look_up(text, "Topic")) == [first]
        none = archive.look_up("none")
        assert list(none) == []
        assert none.complete


def test_what_was_stored_later_comes_behind_a_cursor(tmp_path):
    records = [
        record(number, KEYS="hot", store_timestamp_ms=START_MS + number) for number in range(4)
    ]
    write_log(tmp_path / "store", records[:2], 1 << 14)
    archive_store(tmp_path / "lake", tmp_path / "store")
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        look_up = archive.look_up("hot")
        assert next(iter(look_up)).queue_offset == 0
        write_log(tmp_path / "store", records, 1 << 14)
        archive_store(tmp_path / "lake", tmp_path / "store")
        rest = archive.look_up("hot", cursor=look_up.cursor)
        assert [each.queue_offset for each in rest] == [1, 2, 3]


def test_a_cursor_of_another_look_up_is_refused(lake):
    with rocketlens.open_archive(lake) as archive:
        look_up, scan = archive.look_up("hot"), archive.scan()
        next(iter(look_up))
        next(iter(scan))
        with pytest.raises(BadInput, match="of another search"):
            archive.look_up("also-hot", cursor=look_up.cursor)
        for of_other_kind in (scan.cursor, "", "W10", look_up.cursor[:-3]):
            with pytest.raises(BadInput, match="is not one that such a search"):
                archive.look_up("hot", cursor=of_other_kind)
        with pytest.raises(BadInput, match="is not one that such a search"):
            archive.scan(cursor=look_up.cursor)

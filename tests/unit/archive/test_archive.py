"""Messages of an archive, whose store is gone, are found, counted and scanned as in the store."""

import shutil
from itertools import islice
from pathlib import Path

import pytest

import rocketlens
from rocketlens.archive.archive import Archive
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, write_merged
from rocketlens.archive.reader import ArchiveReader, _OpenFile
from rocketlens.archive.scan import ArchiveCursor, decode_cursor, encode_cursor
from rocketlens.errors import (
    AnswerIncomplete,
    ArchiveError,
    BadInput,
    MessageNotFound,
    TopicNotFound,
    WrongUse,
)
from rocketlens.model.arrow import schema
from rocketlens.query.answer_builder import order_in_time
from tests.support.archives import BATCHES, DAY_MS, DAYS, archive_of_days, archive_store
from tests.support.effort import sized
from tests.support.synthetic import START_MS, record, write_log


@pytest.fixture(scope="module", params=["4.9.7", "5.5.0"])
def archived(request, golden, tmp_path_factory):
    """An archive, and the messages of the store from which it was made and which is gone."""
    directory = tmp_path_factory.mktemp("archived")
    store = directory / "store"
    shutil.copytree(golden(request.param).store, store)
    archive_store(directory / "a lake ü", store)
    with rocketlens.open_store(store) as opened:
        messages = opened.find(begin=0, all_topics=True).messages
        by_grep = opened.find(grep="pay", all_topics=True).messages
        filtered = opened.find(where="tag IS NOT NULL AND queue_id < 2", all_topics=True).messages
    shutil.rmtree(store)
    with rocketlens.open_archive(directory / "a lake ü") as archive:
        yield archive, messages, by_grep, filtered


def in_time(messages):
    return sorted(messages, key=lambda each: (each.store_timestamp_ms, each.physical_offset))


def test_every_message_of_a_store_that_is_gone_is_found_as_it_was(archived):
    archive, messages, _, _ = archived
    answer = archive.find(all_topics=True)
    assert list(answer.messages) == in_time(messages)
    assert answer.complete
    assert sorted(map(repr, archive.scan(all_topics=True))) == sorted(map(repr, messages))


def test_each_message_is_found_by_each_id_key_and_position(archived):
    archive, messages, _, _ = archived
    for message in messages[:: sized(111, 37)]:
        for text in (message.unique_key, message.offset_msg_id, message.position, *message.keys):
            if text is not None:
                assert message in archive.find(text, all_topics=True).messages, text


def test_a_key_finds_all_of_its_messages_and_no_other(archived):
    archive, messages, _, _ = archived
    keys = {key for message in messages for key in message.keys}
    for key in sorted(keys)[::97]:
        having = [each for each in messages if key in each.keys]
        assert list(archive.find(key, kind="key", all_topics=True).messages) == in_time(having)
        topic = having[0].topic
        of_topic = [each for each in having if each.topic == topic]
        assert list(archive.find(key, topic, kind="key", all_topics=True).messages) == in_time(
            of_topic
        )


def test_content_finds_what_it_finds_in_the_store(archived):
    archive, _, by_grep, filtered = archived
    assert list(archive.find(grep="pay", all_topics=True).messages) == in_time(by_grep)
    where = "tag IS NOT NULL AND queue_id < 2"
    found = archive.find(where=where, all_topics=True).messages
    assert list(found) == in_time(filtered)
    assert found


def test_times_and_tags_narrow_what_is_found(archived):
    archive, messages, _, _ = archived
    times = sorted(each.store_timestamp_ms for each in messages)
    begin, end = times[len(times) // 3], times[len(times) // 2]
    between = [each for each in messages if begin <= each.store_timestamp_ms <= end]
    assert list(archive.find(begin=begin, end=end, all_topics=True)) == in_time(between)
    tag = next(each.tags for each in messages if each.tags)
    tagged = [each for each in messages if each.tags == tag]
    scanned = archive.scan(tag=tag, all_topics=True)
    assert in_time(scanned) == in_time(tagged)
    assert scanned.complete


def test_the_newest_are_found(archived):
    archive, messages, _, _ = archived
    newest = in_time(messages)[-5:]
    answer = archive.find(all_topics=True, max_num=5)
    assert (list(answer.messages), answer.truncated) == (newest, True)
    topic = newest[-1].topic
    of_topic = [each for each in in_time(messages) if each.topic == topic]
    assert list(archive.tail(topic, 3).messages) == of_topic[-3:]


def test_one_message_is_viewed_as_in_a_store(archived):
    archive, messages, _, _ = archived
    message = next(each for each in messages if each.unique_key)
    assert archive.view_message(message.offset_msg_id) == message
    assert archive.view_message(message.topic, message.unique_key).unique_key == message.unique_key
    position = (message.topic, message.queue_id, message.queue_offset)
    assert archive.query_by_queue_offset(*position) == message
    assert message in archive.query_message(message.topic, message.unique_key).messages
    with pytest.raises(MessageNotFound, match="not in this archive"):
        archive.view_message("AC1100010001")


def test_coverage_says_from_when_to_when(archived):
    archive, messages, _, _ = archived
    (coverage,) = archive.find("no such key").coverage
    assert coverage.source.startswith("DefaultCluster/broker-a, 20")
    assert coverage.indexed_to_ms == max(each.store_timestamp_ms for each in messages)


def test_a_store_and_an_archive_of_it_give_each_message_once(golden, tmp_path):
    store = golden("5.5.0").store
    archive_store(tmp_path / "lake", store)
    with rocketlens.open_store(store) as opened:
        message = next(each for each in opened.scan() if each.keys)
        alone = opened.find(message.keys[0]).messages
    answer = rocketlens.find(message.keys[0], sources=[store, tmp_path / "lake"])
    assert sorted(map(repr, answer.messages)) == sorted(map(repr, alone))
    assert answer.complete


@pytest.mark.parametrize(("table", "text"), [("messages", None), ("message_keys", "order-42")])
def test_a_file_that_is_damaged_makes_the_answer_incomplete(golden, tmp_path, table, text):
    archive_store(tmp_path, golden("5.5.0").store)
    for path in tmp_path.glob(f"{table}/*/*.parquet"):
        content = bytearray(path.read_bytes())
        quarter = len(content) // 4
        content[4 : quarter * 2] = bytes(quarter * 2 - 4)
        path.write_bytes(content)
    with rocketlens.open_archive(tmp_path) as archive:
        answer = archive.find(text, all_topics=True)
        assert not answer.complete
        assert "cannot be read" in str(answer.failures[0].error)
        if text is not None:
            with pytest.raises(AnswerIncomplete):
                archive.view_message(text)


def test_what_is_not_an_archive_is_refused(tmp_path):
    with pytest.raises(ArchiveError, match="is not an archive"):
        rocketlens.open_archive(tmp_path)


def test_a_closed_archive_is_not_used(tmp_path, golden):
    archive_store(tmp_path, golden("5.5.0").store)
    archive = rocketlens.open_archive(tmp_path)
    archive.close()
    assert "closed" in repr(archive)
    with pytest.raises(WrongUse, match="was closed"):
        archive.find("K")


def test_an_archive_has_the_methods_of_a_store_but_those_of_a_broker():
    public = {name for name in dir(rocketlens.Store) if not name.startswith("_")}
    of_archive = {name for name in dir(rocketlens.Archive) if not name.startswith("_")}
    assert public - of_archive == {"groups", "path"}


@pytest.mark.parametrize("at_once", [1, 3, 4096])
def test_a_message_with_a_key_in_several_ways_comes_once(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("rocketlens.archive.source._POSITIONS_AT_ONCE", at_once)
    sent = [record(n, KEYS="often often" if n % 2 else "often", UNIQ_KEY="often") for n in range(9)]
    write_log(tmp_path / "store", sent, 1 << 14)
    archive_store(tmp_path / "lake", tmp_path / "store")
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        answer = archive.find("often", max_num=4)
        assert ([each.queue_offset for each in answer], answer.truncated) == ([5, 6, 7, 8], True)
        answer = archive.find("often")
        assert ([each.queue_offset for each in answer], answer.truncated) == ([*range(9)], False)
        assert len(archive.query_message("Topic", "often", max_num=9)) == 9
        assert not archive.query_message("Topic", "often", max_num=9).truncated


def test_readers_in_two_threads_list_once_and_each_sees_what_it_asked_for(golden, tmp_path):
    store = golden("5.5.0").store
    archive_store(tmp_path, store, broker="broker-a")
    with rocketlens.open_archive(tmp_path) as one, Archive(one.source.clone()) as two:
        assert two.source.reader.listing is one.source.reader.listing
        archive_store(tmp_path, store, broker="broker-b")
        before = one.source.reader.listing
        answer = two.find(begin=0, max_num=1)
        assert len([each for each in answer.coverage if each.kind == "archive"]) == 2
        assert one.source.reader.listing is before
        assert one.status().files == two.status().files
        assert one.source.reader.listing is two.source.reader.listing
    with pytest.raises(WrongUse, match="closed"):
        two.find("x")


def test_a_refresh_that_fails_half_way_is_made_up_for(golden, tmp_path, monkeypatch):
    store = golden("5.5.0").store
    archive_store(tmp_path, store, broker="broker-a")
    with rocketlens.open_archive(tmp_path) as archive:
        archive_store(tmp_path, store, broker="broker-b")
        refresh = ArchiveTables.refresh

        def fail(tables):
            refresh(tables)
            raise ArchiveError("offline")

        monkeypatch.setattr(ArchiveTables, "refresh", fail)
        with pytest.raises(ArchiveError, match="offline"):
            archive.status()
        monkeypatch.undo()
        assert len(archive.status().sources) == 2


def test_topics_have_the_queues_of_the_store_and_the_broker_of_the_archive(golden, tmp_path):
    store = golden("5.5.0").store
    archive_store(tmp_path, store, broker="broker-x")
    with rocketlens.open_store(store) as opened, rocketlens.open_archive(tmp_path) as archive:
        expected = {topic.name: topic for topic in opened.topics() if topic.messages}
        answer = archive.topics()
        assert answer.complete
        assert [topic.name for topic in answer] == sorted(expected)
        for topic in answer:
            queues = [queue for queue in expected[topic.name].queues if queue.messages]
            assert {queue.broker_name for queue in topic.queues} == {"broker-x"}
            assert [
                (each.queue_id, each.max_offset, each.messages, each.newest_ms)
                for each in topic.queues
            ] == [
                (each.queue_id, each.max_offset, each.messages, each.newest_ms) for each in queues
            ]
        name = next(iter(expected))
        assert [topic.name for topic in archive.topics(name)] == [name]
        with pytest.raises(TopicNotFound, match=f"did you mean {name}"):
            archive.topics(name.lower())


def test_a_file_is_counted_once_and_one_that_was_compacted_is_forgotten(tmp_path, monkeypatch):
    root = archive_of_days(tmp_path)
    read = []
    columns = ArchiveReader.columns
    monkeypatch.setattr(
        ArchiveReader,
        "columns",
        lambda self, file, *rest: read.append(file.path) or columns(self, file, *rest),
    )
    with rocketlens.open_archive(root) as archive:
        first = archive.topics()
        assert len(read) == DAYS * BATCHES
        assert archive.topics() == first
        assert archive.topics("Topic").topics == first.topics
        assert len(read) == DAYS * BATCHES
        compact(ArchiveTables(str(root)), lambda tasks: list(map(write_merged, tasks)))
        again = archive.topics()
        assert len(read) == DAYS * BATCHES + DAYS
        assert again.topics == first.topics
        assert len(archive.source.reader.kept) == DAYS


def test_counts_beyond_the_bound_are_not_kept_and_counted_again(tmp_path, monkeypatch):
    root = archive_of_days(tmp_path)
    with rocketlens.open_archive(root) as archive:
        expected = archive.topics()
    monkeypatch.setattr("rocketlens.archive.reader.MAX_KEPT_COUNTS", 2)
    with rocketlens.open_archive(root) as archive:
        assert [archive.topics() for _ in range(2)] == [expected] * 2
        assert len(archive.source.reader.kept) == 2


def test_what_of_a_file_could_not_be_read_is_not_kept(tmp_path):
    root = archive_of_days(tmp_path)
    with rocketlens.open_archive(root) as archive:
        reader = archive.source.reader
        path = Path(reader.path(reader.listing.messages[0]))
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))
        assert not archive.topics().complete
        path.write_bytes(content)
        assert archive.topics().complete


COUNT, KEY_DAYS, KEY_BATCHES = 240, 3, 4


def hot(number):
    """A record with the key that all have: days and batches overlap, and times are repeated."""
    when = START_MS + DAY_MS * (number % KEY_DAYS) + number * 37 % 50 * 1000
    return record(number, KEYS="hot also-hot", store_timestamp_ms=when)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hot")
    for batch in range(KEY_BATCHES):
        end = (batch + 1) * COUNT // KEY_BATCHES
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
        assert {when // DAY_MS for when in read} == {(START_MS + DAY_MS * (KEY_DAYS - 1)) // DAY_MS}
        read.clear()
        assert len(list(islice(archive.look_up("hot"), 3))) == 3
        assert max(read) < START_MS + DAY_MS * (KEY_DAYS - 1)


@pytest.mark.parametrize("size", [7, 500])
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
            with pytest.raises(BadInput, match="is not a cursor of this kind"):
                archive.look_up("hot", cursor=of_other_kind)
        with pytest.raises(BadInput, match="is not a cursor of this kind"):
            archive.scan(cursor=look_up.cursor)


@pytest.fixture(scope="module")
def scanned_lake(golden, tmp_path_factory):
    """One that no test changes."""
    directory = tmp_path_factory.mktemp("lake")
    archive_store(directory, golden("5.5.0").store)
    return directory


@pytest.fixture
def own_lake(golden, tmp_path):
    archive_store(tmp_path, golden("5.5.0").store)
    return tmp_path


def pages(archive, size, **what):
    """All messages, some at a time; the cursor of each page but the last."""
    cursor, cursors, messages = None, [], []
    while True:
        scan = archive.scan(cursor=cursor, **what)
        messages += islice(scan, size)
        cursor = scan.cursor
        if cursor is None:
            return messages, cursors
        cursors.append(cursor)


@pytest.mark.parametrize("what", [{"all_topics": True}, {"grep": "pay"}, {"tag": "Batch"}])
def test_pages_have_each_message_once_in_the_order_of_a_whole_scan(scanned_lake, what):
    with rocketlens.open_archive(scanned_lake) as archive:
        whole = list(archive.scan(**what))
        messages, cursors = pages(archive, 97, **what)
        assert messages == whole
        assert cursors or len(whole) < 97


def test_what_is_archived_meanwhile_changes_no_page(golden, own_lake):
    lake = own_lake
    with rocketlens.open_archive(lake) as archive:
        whole = list(archive.scan(all_topics=True))
        scan = archive.scan(all_topics=True)
        first = [next(iter(scan))]
        cursor = scan.cursor
        archive_store(lake, golden("4.9.7").store, broker="another")
        rest = archive.scan(all_topics=True, cursor=cursor)
        assert first + list(rest) == whole
        assert rest.complete
        assert "another" not in str(rest.coverage)
        assert len(list(archive.scan(all_topics=True))) > len(whole)
    with rocketlens.open_archive(lake) as again:
        assert first + list(again.scan(all_topics=True, cursor=cursor)) == whole


def test_what_was_removed_since_is_said(own_lake):
    lake = own_lake
    with rocketlens.open_archive(lake) as archive:
        scan = archive.scan(all_topics=True)
        next(iter(scan))
        cursor = scan.cursor
    for path in Path(lake, "messages").rglob("*.parquet"):
        path.unlink()
    with rocketlens.open_archive(lake) as archive:
        gone = archive.scan(all_topics=True, cursor=cursor)
        assert list(gone) == []
        assert "is gone: it was compacted or expired since" in str(gone.coverage)
        assert not gone.complete
        of_another = encode_cursor(decode_cursor(ArchiveCursor, cursor)._replace(version=99))
        with pytest.raises(ArchiveError, match="begin the search again"):
            archive.scan(all_topics=True, cursor=of_another)
        with pytest.raises(ArchiveError, match="begin the search again"):
            archive.scan(
                all_topics=True,
                cursor=encode_cursor(decode_cursor(ArchiveCursor, cursor)._replace(path="no")),
            )


def test_a_cursor_of_another_search_is_refused(scanned_lake):
    with rocketlens.open_archive(scanned_lake) as archive:
        scan = archive.scan(all_topics=True)
        next(iter(scan))
        with pytest.raises(BadInput, match="of another search"):
            archive.scan(grep="pay", cursor=scan.cursor)
        for wrong in ("", "abc", "WzEsMl0", scan.cursor[:-8], "é", "A" * 9999):
            with pytest.raises(BadInput, match="is not a cursor of this kind"):
                archive.scan(all_topics=True, cursor=wrong)


def test_columns_become_the_same_batches_as_messages(scanned_lake):
    with rocketlens.open_archive(scanned_lake) as archive:
        for what in ({}, {"topic": ["OrderTopic", "PayTopic"]}, {"topic": "OrderTopic"}):
            whole = archive.scan(all_topics=True, **what)
            by_message = rocketlens.Answer("", tuple(whole), ()).to_arrow()
            table = archive.scan(all_topics=True, **what).to_arrow()
            assert table.equals(by_message)
            assert table.schema == schema()
            for name in ("cluster", "broker"):
                assert table[name].null_count == 0
        without = archive.scan(topic="OrderTopic", all_topics=True).record_batches(with_body=False)
        assert all(batch["body"].null_count == batch.num_rows > 0 for batch in without)

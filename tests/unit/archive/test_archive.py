"""Messages of an archive, whose store is gone, are found as they were in the store."""

import shutil

import pytest

import rocketlens
from rocketlens.archive.archive import Archive
from rocketlens.archive.journal import ArchiveTables
from rocketlens.errors import (
    AnswerIncomplete,
    ArchiveError,
    MessageNotFound,
    WrongUse,
)
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log


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
    for message in messages[::37]:
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

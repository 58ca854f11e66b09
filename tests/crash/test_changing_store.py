"""A store that another process changes otherwise than by appending, while it is open here."""

import errno
import os
import shutil

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.store import fs
from tests.crash.test_live_store import SEGMENT_BYTES, Broker, assert_found, sent
from tests.support import made_stores
from tests.support.made_stores import Sent, make_store, overwrite, some_messages


@pytest.fixture
def refusing(monkeypatch):
    """Have opens of some files fail: ``refusing[path] = error number``."""
    refused: dict = {}
    whole = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path in refused:
            raise OSError(refused[path], "refused", str(path))
        whole(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    return refused


def forget_mappings(store):
    """Unmap every file, as when others are read meanwhile."""
    store._reader.log._mapped.close()
    store._reader.queues._mapped.close()


def make_old(path):
    """Have all directories look as if nothing was changed in them for long."""
    for directory in (path, *(one for one in path.rglob("*") if one.is_dir())):
        os.utime(directory, ns=(10**18 + 7, 10**18 + 7))


def test_a_scan_of_a_handle_that_is_open_for_long_sees_what_was_stored_since(tmp_path):
    broker = Broker(tmp_path / "store", with_index=False)
    make_old(broker.path)
    with rocketlens.open_store(broker.path) as store:
        assert len(list(store.scan())) == 10
        prepared = store.scan("Topic1")
        records = [broker.send(sent(n)) for n in range(120)]
        assert len(list((broker.path / "commitlog").iterdir())) > 3
        assert len(list(prepared)) == 3 + 40
        newest = store.find(topic="Topic0", begin=made_stores.NOW_MS + 10_000)
        assert (len(newest), newest.complete) == (40, True)
        last = broker.send(sent(500), queued=False)
        place = (last.topic, last.queue_id, last.queue_offset)
        assert store.query_by_queue_offset(*place).body == last.body
        del records


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_a_segment_that_could_not_be_opened_once_is_read_by_the_next_look_up(
    tmp_path, refusing, number, which
):
    made = make_store(
        tmp_path / "store", some_messages(80), segment_bytes=SEGMENT_BYTES, index=None
    )
    path = sorted((made.path / "commitlog").iterdir())[which]
    inside = [r for r in made.records if made.segment_path(r.physical_offset) == path]
    key = made_stores.texts_of(inside[1])[1]
    with rocketlens.open_store(made.path) as store:
        refusing[path] = number
        answer = store.query_message(inside[1].topic, key)
        assert (answer.messages, answer.complete) == ((), False)
        assert "refused" in str(answer.failures)
        assert not store.find("no such key").complete
        scanned = store.scan()
        assert len(list(scanned)) == len(made.records) - len(inside)
        assert not scanned.complete
        with pytest.raises(AnswerIncomplete):
            store.view_message(inside[1].offset_msg_id)
        record = inside[1]
        with pytest.raises(AnswerIncomplete):
            store.query_by_queue_offset(record.topic, record.queue_id, record.queue_offset)
        refusing.clear()
        for record in made.records:
            assert_found(store, record)
        answer = store.find("no such key")
        assert answer.complete
        assert not answer.failures


def test_a_last_segment_that_could_not_be_opened_again_makes_the_answer_incomplete(
    tmp_path, refusing
):
    broker = Broker(tmp_path / "store", with_index=False)
    with rocketlens.open_store(broker.path) as store:
        assert store.find("no such key").complete
        record = broker.send(sent(1))
        forget_mappings(store)
        refusing[broker.made.segment_path(record.physical_offset)] = errno.EMFILE
        assert not store.query_message(record.topic, "live-1").complete
        refusing.clear()
        assert_found(store, record)
        assert store.find("no such key").complete


def test_a_queue_that_cannot_be_opened_is_named_and_the_log_asked(tmp_path, refusing):
    broker = Broker(tmp_path / "store", with_index=False)
    record = broker.made.records[4]
    place = (record.topic, record.queue_id, record.queue_offset)
    directory = broker.path / "consumequeue" / record.topic / str(record.queue_id)
    with rocketlens.open_store(broker.path) as store:
        refusing.update(dict.fromkeys(directory.iterdir(), errno.EMFILE))
        answer = store.find("/".join(map(str, place)), kind="queue-offset")
        assert [m.body for m in answer] == [record.body]
        assert "refused" in str(answer.coverage)
        refusing.clear()
        answer = store.find("/".join(map(str, place)), kind="queue-offset")
        assert "refused" not in str(answer.coverage)


def test_a_topic_that_was_deleted_and_made_again_is_read_as_it_is_now(tmp_path):
    sent_before = [Sent("T", body=b"old%d" % n, keys=f"o{n}") for n in range(5)]
    broker = Broker(tmp_path / "store", with_index=False)
    broker.queue_ends.clear()
    for message in sent_before:
        broker.send(message)
    make_old(broker.path)
    with rocketlens.open_store(broker.path) as store:
        for n in range(5):
            assert store.query_by_queue_offset("T", 0, n).body == b"old%d" % n
        shutil.rmtree(broker.path / "consumequeue" / "T")
        broker.queue_ends.clear()
        for n in range(3):
            broker.send(Sent("T", body=b"new%d" % n, keys=f"n{n}"))
        for n in range(3):
            assert store.query_by_queue_offset("T", 0, n).body == b"new%d" % n
        with pytest.raises(MessageNotFound):
            store.query_by_queue_offset("T", 0, 4)


def test_a_log_that_was_swapped_for_another_is_read_anew_and_the_first_when_it_is_back(tmp_path):
    one = make_store(tmp_path / "one", some_messages(60), segment_bytes=SEGMENT_BYTES)
    other_sent = [Sent(f"Other{n % 2}", f"other-{n}", body=b"%d" % n) for n in range(70)]
    other = make_store(tmp_path / "other", other_sent, segment_bytes=SEGMENT_BYTES)
    path = tmp_path / "store"
    one.path.rename(path)
    make_old(path)
    make_old(other.path)
    with rocketlens.open_store(path) as store:
        for record in one.records[::9]:
            assert_found(store, record)
        for now, away, made in (("other", "one", other), ("one", "other", one)) * 2:
            path.rename(tmp_path / away)
            for text in ("shared-1", "no such key"):
                assert not store.find(text).complete
            with pytest.raises(AnswerIncomplete):
                store.view_message("0A000009" + "00002A9F" + f"{1:016X}")
            (tmp_path / now).rename(path)
            for record in made.records[::9]:
                assert_found(store, record)
            gone = store.find("order-3" if made is other else "other-3")
            assert (gone.messages, gone.complete) == ((), True)
            assert len(list(store.scan())) == len(made.records)


@pytest.mark.parametrize("change", ["replaced", "cut", "zeroed", "moved"])
def test_a_segment_that_was_changed_under_an_open_handle_is_read_as_it_is_now(tmp_path, change):
    path = tmp_path / "store"
    made = make_store(path, some_messages(40), segment_bytes=SEGMENT_BYTES, index=None)
    make_old(path)
    sent_after = [Sent("Topic0", f"after-{n}", body=b"after") for n in range(10)]
    with rocketlens.open_store(path) as store:
        assert_found(store, made.records[-1])
        assert_found(store, made.records[0])
        last = max((path / "commitlog").iterdir())
        base = int(last.name)
        kept = [r for r in made.records if r.physical_offset < base]
        again = make_store(
            tmp_path / "again", sent_after, segment_bytes=SEGMENT_BYTES, first_offset=base
        )
        content = again.segment_path(base).read_bytes()
        if change == "replaced":
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").replace(last)
        elif change == "moved":
            last.rename(tmp_path / "old")
            assert not [m for m in store.scan() if m.physical_offset >= base]
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").rename(last)
        elif change == "cut":
            with last.open("r+b") as file:
                file.truncate(0)
            store.find("no such key")
            last.write_bytes(content)
        else:
            overwrite(last, 0, content)
        for record in again.records:
            assert [m.body for m in store.find(made_stores.texts_of(record)[0])] == [b"after"]
            assert store.view_message(record.offset_msg_id).body == b"after"
        assert len(list(store.scan())) == len(kept) + len(again.records)
        for record in kept:
            assert_found(store, record)
        went = [r for r in made.records if r.physical_offset >= base]
        for record in went:
            assert not store.query_message(record.topic, made_stores.texts_of(record)[0]).messages


def test_a_segment_that_is_moved_back_is_no_hole_any_more(tmp_path):
    made = make_store(
        tmp_path / "store", some_messages(80), segment_bytes=SEGMENT_BYTES, index=None
    )
    path = sorted((made.path / "commitlog").iterdir())[1]
    make_old(made.path)
    inside = next(r for r in made.records if made.segment_path(r.physical_offset) == path)
    with rocketlens.open_store(made.path) as store:
        assert_found(store, inside)
        path.rename(tmp_path / "away")
        assert not store.find("no such key").complete
        with pytest.raises(AnswerIncomplete):
            store.view_message(inside.offset_msg_id)
        (tmp_path / "away").rename(path)
        assert_found(store, inside)
        assert store.find("no such key").complete


def test_topics_that_could_not_be_listed_once_are_named_and_listed_by_the_next_look_up(
    tmp_path, monkeypatch
):
    made = make_store(tmp_path / "store", some_messages(30))
    whole = fs.entries

    def refuse(directory):
        if directory.name == "consumequeue":
            raise OSError(errno.EMFILE, "refused", str(directory))
        return whole(directory)

    with rocketlens.open_store(made.path) as store:
        monkeypatch.setattr(fs, "entries", refuse)
        assert not store.find("no such key").complete
        monkeypatch.undo()
        assert store.find("no such key").complete


def test_a_damaged_record_that_was_put_right_is_found_by_its_id(tmp_path):
    made = make_store(tmp_path / "store", some_messages(30), index=None, with_queues=False)
    record = made.records[7]
    with rocketlens.open_store(made.path) as store:
        made_stores.flip(made.segment_path(0), record.physical_offset + 3)
        with pytest.raises(AnswerIncomplete):
            store.view_message(record.offset_msg_id)
        made_stores.flip(made.segment_path(0), record.physical_offset + 3)
        assert store.view_message(record.offset_msg_id).body == record.body

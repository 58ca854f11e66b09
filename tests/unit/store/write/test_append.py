"""What is appended has the bytes that RocketMQ writes, and is there at once."""

import struct
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.errors import MessageIllegal
from rocketlens.formats import batch_body, commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SIZE_AND_MAGIC
from rocketlens.model.message import Host
from rocketlens.model.message_id import pack_address
from rocketlens.model.rocketmq import DELAY_TOPIC
from rocketlens.model.text.java import string_hash
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.support.written_stores import (
    BORN_HOST,
    BORN_HOST_V6,
    SMALL,
    STORE_HOST,
    Clock,
    open_small,
    properties_of,
    records_of,
    send,
    send_many,
)

GOLDEN_LEVELS = " ".join(f"{level}s" for level in range(1, 19))


def packed(host):
    return pack_address(host.address) + struct.pack(">i", host.port)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_appending_what_a_real_broker_stored_gives_its_files_byte_for_byte(
    golden, version, tmp_path
):
    theirs = golden(version).store
    records = records_of(theirs)
    config = StoreConfig(
        mappedFileSizeCommitLog=262_144,
        mappedFileSizeConsumeQueue=20_000,
        maxHashSlotNum=500,
        maxIndexNum=1000,
        messageDelayLevel=GOLDEN_LEVELS,
        diskSpaceWarningLevelRatio=100,
    )
    clock = Clock()
    options = StoreOptions(records[0].store_host, with_tag_index=version == "5.5.0", threads=False)
    with MessageStore(tmp_path, config, options, clock=clock) as store:
        while records:
            # A batch moves to the next segment whole, so the golden log shows where one began.
            here = records[: batch_length(records, store._appender)]
            records = records[len(here) :]
            clock.now_ms = here[0].store_timestamp_ms
            append_again(store, here)
        store.flush_log()
        while not store.build_index():
            pass
    for name in ("commitlog", "consumequeue"):
        ours = {p.relative_to(tmp_path): p for p in (tmp_path / name).rglob("*") if p.is_file()}
        for path in (p for p in (theirs / name).rglob("*") if p.is_file()):
            if path.relative_to(theirs) in ours:
                assert ours[path.relative_to(theirs)].read_bytes() == path.read_bytes(), path
            else:
                assert not any(path.read_bytes()), path
    ours, golden_files = (
        [p.read_bytes() for p in sorted((root / "index").iterdir())] for root in (tmp_path, theirs)
    )
    assert ours == golden_files


def batch_length(records, appender):
    first = records[0]
    if first.physical_offset != appender.segment_bytes * (
        first.physical_offset // appender.segment_bytes
    ):
        return 1
    count = 1
    while (
        count < len(records)
        and records[count].queue_id == first.queue_id
        and records[count].topic == first.topic
        and records[count].born_timestamp_ms == first.born_timestamp_ms
        and records[count].store_timestamp_ms == first.store_timestamp_ms
    ):
        count += 1
    return count


def append_again(store, records):
    first = records[0]
    if len(records) > 1:
        members = [(r.flag, r.body, r.properties) for r in records]
        appended = store.append_batch(
            first.topic,
            first.queue_id,
            members,
            packed(first.born_host),
            born_timestamp_ms=first.born_timestamp_ms,
            sys_flag=first.sys_flag,
        )[0]
    else:
        appended = store.append(
            first.topic,
            first.queue_id,
            first.body,
            first.properties,
            packed(first.born_host),
            born_timestamp_ms=first.born_timestamp_ms,
            flag=first.flag,
            sys_flag=first.sys_flag,
            reconsume_times=first.reconsume_times,
            prepared_transaction_offset=first.prepared_transaction_offset,
        )
    assert appended.physical_offset == first.physical_offset
    assert appended.queue_offset == first.queue_offset


def test_a_record_has_every_field_that_it_was_given(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 0)
        appended = store.append(
            "Orders",
            2,
            b"body",
            properties_of(1),
            BORN_HOST,
            born_timestamp_ms=7,
            flag=-3,
            sys_flag=0x301,
            reconsume_times=4,
            prepared_transaction_offset=9,
        )
    record = records_of(tmp_path)[1]
    expected = commitlog_record.Record(
        total_size=appended.store_size,
        magic=MAGIC_V1,
        body_crc=record.body_crc,
        queue_id=2,
        flag=-3,
        queue_offset=0,
        physical_offset=appended.physical_offset,
        sys_flag=0x301,
        born_timestamp_ms=7,
        born_host=Host("10.0.0.1", 5555),
        store_timestamp_ms=Clock().now_ms,
        store_host=STORE_HOST,
        reconsume_times=4,
        prepared_transaction_offset=9,
        body=b"body",
        topic="Orders",
        properties=properties_of(1),
    )
    assert record == expected
    assert commitlog_record.encode(record) == commitlog_record.encode(expected)


@pytest.mark.parametrize("born_host", [BORN_HOST, BORN_HOST_V6])
@pytest.mark.parametrize("store_address", ["127.0.0.1", "fd00::1"])
def test_hosts_of_either_kind_are_written_as_the_format_says(tmp_path, born_host, store_address):
    options = StoreOptions(STORE_HOST._replace(address=store_address), threads=False)
    with open_small(tmp_path, options=options) as store:
        for number in range(2):
            store.append("T", 0, b"b", properties_of(number), born_host, born_timestamp_ms=1)
        assert store.queues.offset_by_time("T", 0, Clock().now_ms) == 0
        assert store.queues.offset_by_time("T", 0, Clock().now_ms + 1) == 2
    records = records_of(tmp_path)
    assert [packed(record.born_host) for record in records] == [born_host] * 2
    assert records[0].store_host.address == store_address
    assert commitlog_record.encode(records[1]) == raw_record(tmp_path, records[1])


def raw_record(path, record):
    log = b"".join(p.read_bytes() for p in sorted((path / "commitlog").iterdir()))
    return log[record.physical_offset : record.physical_offset + record.total_size]


def test_a_long_topic_is_stored_as_rocketmq_5_does_or_refused(tmp_path):
    topic = "%RETRY%" + "g" * 140
    with open_small(tmp_path / "5") as store:
        send(store, 1, topic=topic)
    (record,) = records_of(tmp_path / "5")
    assert (record.topic, record.magic) == (topic, MAGIC_V2)
    with (
        open_small(
            tmp_path / "4", config=replace(SMALL, autoMessageVersionOnTopicLen=False)
        ) as store,
        pytest.raises(MessageIllegal, match="topic"),
    ):
        send(store, 1, topic=topic)


@pytest.mark.parametrize("topic", ["", "../../x", "a/b", "x" * 256, "a b", "\0"])
def test_a_topic_that_is_none_is_refused_and_leaves_no_directory(tmp_path, topic):
    with open_small(tmp_path) as store:
        with pytest.raises(MessageIllegal):
            send(store, 1, topic=topic)
        assert not (tmp_path / "consumequeue").exists()


def test_a_message_that_is_too_large_is_refused_with_rocketmqs_words(tmp_path):
    config = replace(SMALL, maxMessageSize=1000)
    with open_small(tmp_path, config=config) as store:
        for body, properties in ((b"x" * 1001, b""), (b"", b"x" * 32_768)):
            with pytest.raises(MessageIllegal, match="body length limit 1000B") as refused:
                store.append("T", 0, body, properties, BORN_HOST, born_timestamp_ms=1)
            assert refused.value.code == 13
        with pytest.raises(MessageIllegal):
            store.append("T", 0, b"", b"x" * 20_000, BORN_HOST, born_timestamp_ms=1)
        assert send(store, 1).physical_offset == 0


def test_numbers_that_do_not_fit_store_nothing(tmp_path):
    with open_small(tmp_path) as store:
        with pytest.raises(struct.error):
            send(store, 1, flag=2**31)
        members = [(0, b"a", b""), (2**31, b"b", b"")]
        with pytest.raises(struct.error):
            store.append_batch("Orders", 0, members, BORN_HOST, born_timestamp_ms=1)
        assert send(store, 2)[:2] == (0, 0)
    assert len(records_of(tmp_path)) == 1


def test_host_bits_of_a_sender_do_not_shift_the_record(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1, sys_flag=0x33)
        store.append_batch(
            "Orders", 0, [(0, b"b", b"")], BORN_HOST, born_timestamp_ms=1, sys_flag=0x31
        )
    assert [record.sys_flag for record in records_of(tmp_path)] == [0x3, 0x1]


def test_a_segment_ends_with_a_filler_that_says_how_much_is_left(tmp_path):
    with open_small(tmp_path) as store:
        appended = send_many(store, 100)
    size = SMALL.mappedFileSizeCommitLog
    last = max(a.physical_offset + a.store_size for a in appended if a.physical_offset < size)
    first_segment = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    assert SIZE_AND_MAGIC.unpack_from(first_segment, last) == (size - last, MAGIC_BLANK)
    assert not any(first_segment[last + 8 :])
    assert min(a.physical_offset for a in appended if a.physical_offset >= size) == size


@pytest.mark.parametrize("short_by", range(-1, 3))
def test_a_record_leaves_room_for_the_filler(tmp_path, short_by):
    with open_small(tmp_path) as store:
        empty = store.append("T", 0, b"", b"", BORN_HOST, born_timestamp_ms=1).store_size
        body = bytes(SMALL.mappedFileSizeCommitLog - 2 * empty - 8 + short_by)
        second = store.append("T", 0, body, b"", BORN_HOST, born_timestamp_ms=1)
    fits = short_by <= 0
    assert (second.physical_offset == empty) == fits
    assert [r.physical_offset for r in records_of(tmp_path)] == [0, second.physical_offset]


def test_a_batch_is_one_record_a_member_side_by_side_in_one_segment(tmp_path):
    members = [
        batch_body.BatchMember(n, b"body %d" % n, properties_of(n, tags=f"T{n}")) for n in range(20)
    ]
    with open_small(tmp_path) as store:
        send_many(store, 70, queues=1)
        appended = store.append_batch("Orders", 0, members, BORN_HOST, born_timestamp_ms=3)
        queue = store.queues.get("Orders", 0)
        entries = [queue.entry(a.queue_offset) for a in appended]
        after = send(store, 99)
    assert [a.queue_offset for a in appended] == list(range(70, 90))
    assert appended[0].physical_offset == SMALL.mappedFileSizeCommitLog
    ends = [a.physical_offset + a.store_size for a in appended]
    assert ends == [a.physical_offset for a in appended[1:]] + [after.physical_offset]
    records = records_of(tmp_path)[70:-1]
    assert [(r.flag, r.body, r.properties) for r in records] == [tuple(m) for m in members]
    assert [(e.physical_offset, e.store_size) for e in entries] == [
        (a.physical_offset, a.store_size) for a in appended
    ]
    assert [e.tags_code for e in entries] == [string_hash(f"T{n}") for n in range(20)]


@pytest.mark.parametrize(
    ("topic", "members", "sys_flag"),
    [("T", [], 0), ("T", [(0, b"", b"")], 4), (DELAY_TOPIC, [(0, b"", b"")], 0)],
)
def test_a_batch_that_rocketmq_refuses_is_refused(tmp_path, topic, members, sys_flag):
    with open_small(tmp_path) as store, pytest.raises(MessageIllegal):
        store.append_batch(topic, 0, members, BORN_HOST, born_timestamp_ms=1, sys_flag=sys_flag)


def test_prepared_and_rolled_back_records_get_no_queue_entry(tmp_path):
    with open_small(tmp_path) as store:
        offsets = [send(store, n, sys_flag=f).queue_offset for n, f in enumerate((0, 4, 12, 8, 0))]
        assert offsets == [0, 0, 0, 1, 2]
        assert store.queues.max_offset("Orders", 0) == 3
    assert [r.queue_offset for r in records_of(tmp_path)] == offsets


def test_a_delayed_message_has_its_delivery_time_as_tags_code(tmp_path):
    with open_small(tmp_path) as store:
        for level in (b"3", b"99", b"0", b"x"):
            properties = b"DELAY\x01" + level + b"\x02TAGS\x01a"
            store.append(DELAY_TOPIC, 2, b"", properties, BORN_HOST, born_timestamp_ms=1)
        codes = [store.queues.get(DELAY_TOPIC, 2).entry(n).tags_code for n in range(4)]
    now = Clock().now_ms
    assert codes == [now + 10_000, now + 7_200_000, string_hash("a"), string_hash("a")]


class Killed(BaseException):
    """Ends a write in the middle."""


@pytest.mark.parametrize("written", range(6))
def test_a_batch_whose_writer_is_killed_leaves_its_first_members_and_no_hole(
    tmp_path, written, monkeypatch
):
    store = open_small(tmp_path)
    send(store, 0)

    class Dying:
        size, pack = SIZE_AND_MAGIC.size, SIZE_AND_MAGIC.pack
        left = written

        def pack_into(self, *arguments):
            if not self.left:
                raise Killed
            self.left -= 1
            SIZE_AND_MAGIC.pack_into(*arguments)

    monkeypatch.setattr("rocketlens.store.write.append.SIZE_AND_MAGIC", Dying())
    members = [(0, b"body", properties_of(n)) for n in range(1, 7)]
    with pytest.raises(Killed):
        store.append_batch("Orders", 0, members, BORN_HOST, born_timestamp_ms=1)
    store.close_abruptly()
    monkeypatch.undo()
    with rocketlens.open_store(tmp_path) as reader:
        answer = reader.query_message("Orders", "all")
        assert (len(answer.messages), answer.complete) == (1 + written, True)
    with open_small(tmp_path) as store:
        assert send(store, 9).queue_offset == 1 + written
    assert [r.queue_offset for r in records_of(tmp_path)] == list(range(2 + written))

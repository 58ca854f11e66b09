"""C-1, C-2: a torn tail costs the torn record, a bad record in the middle costs itself."""

import random
import shutil
import struct

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound, NotAStore
from tests.crash.asking import assert_right, every_cache, lose_caches
from tests.support import made_stores
from tests.support.effort import sized
from tests.support.made_stores import Sent, flip, make_store, overwrite, some_messages


def scanned(path):
    """Offsets and bodies of all that a scan gives, and what it says it could not read."""
    with rocketlens.open_store(path) as store:
        scan = store.scan()
        found = {message.physical_offset: message.body for message in scan}
        return found, scan.failures, scan.torn_at


# C-1


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    path = tmp_path_factory.mktemp("torn") / "store"
    return make_store(path, some_messages(12), segment_bytes=1 << 14)


@pytest.mark.parametrize("how", ["cut", "zeros", "garbage", "stale"])
@every_cache
def test_a_last_record_torn_at_any_byte_costs_no_other(torn, tmp_path, how, caches):
    """At each of its bytes: the records before it, or all."""
    copy = tmp_path / "store"
    shutil.copytree(torn.path, copy)
    made = made_stores.Made(copy, torn.records, torn.segment_bytes)
    lose_caches(made, caches)
    last = made.records[-1]
    path = made.segment_path(last.physical_offset)
    whole = path.read_bytes()
    chance = random.Random(how)
    stale = whole[made.records[3].physical_offset :] + bytes(1000)
    keep = {r.physical_offset: r.body for r in made.records[:-1]}
    for byte in range(0, last.total_size, sized(7, 1)):
        at = last.physical_offset + byte
        if how == "cut":
            path.write_bytes(whole[:at])
        else:
            rest = len(whole) - at
            behind = {
                "zeros": bytes(rest),
                "garbage": chance.randbytes(300).ljust(rest, b"\0"),
                "stale": stale[byte : byte + 600].ljust(rest, b"\0"),
            }[how]
            path.write_bytes(whole[:at] + behind[:rest])
        found, failures, torn_at = scanned(copy)
        # With all lengths there it is whole, but for properties without a checksum.
        is_whole = last.physical_offset in found
        assert found.pop(last.physical_offset, last.body) == last.body
        assert found == keep
        is_unfinished = failures == [
            f"the record at physical offset {last.physical_offset} may be incomplete"
        ]
        is_proved = bool(failures) and all("messages at its end are lost" in f for f in failures)
        assert is_unfinished or is_proved or not failures
        assert not (is_whole or is_unfinished) or byte >= last.total_size - len(last.properties)
        assert torn_at in (None, last.physical_offset + (last.total_size if is_whole else 0))
        if byte % 40 == 0 and not is_whole and not is_unfinished:
            assert_torn_is_told(made, last)


def assert_torn_is_told(made, last):
    with rocketlens.open_store(made.path) as store:
        key = made_stores.texts_of(last)[0]
        answer = store.query_message(last.topic, key)
        assert answer.messages == ()
        for record in made.records[:-1]:
            for text in made_stores.texts_of(record)[:2]:
                found = store.query_message(record.topic, text).messages
                assert record.physical_offset in [m.physical_offset for m in found]
        with pytest.raises((MessageNotFound, AnswerIncomplete)):
            store.view_message(last.offset_msg_id)


# C-2


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "store"
    return make_store(path, some_messages(40), segment_bytes=1 << 12)


def copy_of(made, tmp_path, caches):
    copy = tmp_path / "store"
    shutil.copytree(made.path, copy)
    result = made_stores.Made(copy, made.records, made.segment_bytes)
    lose_caches(result, caches)
    return result


def assert_one_hit(made, hit):
    """All but one record are as they were, and that one has its body or none."""
    found, failures, torn_at = scanned(made.path)
    for record in made.records:
        if record is not hit:
            assert found.pop(record.physical_offset, None) == record.body
    assert found.pop(hit.physical_offset, hit.body) == hit.body
    assert found == {}
    assert torn_at is None
    return failures


@every_cache
def test_a_flipped_byte_in_a_middle_record_costs_that_record_and_is_told(sound, tmp_path, caches):
    """Where no checksum covers the byte the record is what its bytes now say, body unchanged."""
    made = copy_of(sound, tmp_path, caches)
    hit = made.records[20]
    path = made.segment_path(hit.physical_offset)
    place = hit.physical_offset % made.segment_bytes
    for byte in range(0, hit.total_size, sized(7, 1)):
        for bits in (1 << byte % 8, 0xFF):
            flip(path, place + byte, bits)
            failures = assert_one_hit(made, hit)
            with rocketlens.open_store(made.path) as store:
                readable = [m for m in store.scan() if m.physical_offset == hit.physical_offset]
                assert bool(readable) != bool(failures)
                if byte % 8 == 0:
                    assert_key_is_told(made, store, hit, readable)
                for other in (made.records[19], made.records[21]):
                    view = store.view_message(other.offset_msg_id)
                    assert view.body == other.body
                    key = made_stores.texts_of(other)[0]
                    assert [m.body for m in store.query_message(other.topic, key)] == [other.body]
            flip(path, place + byte, bits)


def assert_key_is_told(made, store, hit, readable):
    """A record that was hit answers as it is now, or its keys get an answer that says so."""
    for text in made_stores.texts_of(hit)[:2]:
        answer = store.query_message(hit.topic, text)
        bodies = [m.body for m in answer.messages]
        assert bodies in ([], [hit.body])
        if not readable:
            assert bodies == []
            assert not answer.complete


@every_cache
def test_random_flips_anywhere_in_a_log_cost_one_record_each(sound, tmp_path, caches):
    made = copy_of(sound, tmp_path, caches)
    chance, end = random.Random(caches), made.records[-1].physical_offset
    for _ in range(sized(20, 2000)):
        offset = chance.randrange(end)
        before = [r for r in made.records if r.physical_offset <= offset][-1]
        is_in_record = offset < before.physical_offset + before.total_size
        path, place = made.segment_path(offset), offset % made.segment_bytes
        bits = 1 << chance.randrange(8)
        flip(path, place, bits)
        if is_in_record:
            assert_one_hit(made, before)
        else:
            # The filler behind a segment's last record: no record is hit.
            found, _, torn_at = scanned(made.path)
            assert found == {r.physical_offset: r.body for r in made.records}
            assert torn_at is None
        flip(path, place, bits)


@every_cache
def test_a_checksum_over_the_whole_record_finds_every_flipped_byte(tmp_path, caches):
    """RocketMQ 5 can store one; then no byte can change unseen."""
    messages = [made_stores.replace(sent, append_crc=True) for sent in some_messages(9)]
    made = make_store(tmp_path / "store", messages)
    lose_caches(made, caches)
    hit = made.records[4]
    path = made.segment_path(hit.physical_offset)
    for byte in range(0, hit.total_size, sized(7, 1)):
        flip(path, hit.physical_offset + byte, 1 << byte % 8)
        failures = assert_one_hit(made, hit)
        found, _, _ = scanned(made.path)
        is_in_tail = byte >= hit.total_size - 20
        assert is_in_tail or (hit.physical_offset not in found and failures)
        flip(path, hit.physical_offset + byte, 1 << byte % 8)


@every_cache
@pytest.mark.parametrize("kind", [bytes, random.Random(5).randbytes], ids=["zeros", "garbage"])
def test_lost_pages_cost_the_records_that_lie_in_them(tmp_path, caches, kind):
    made = make_store(tmp_path / "store", some_messages(400), segment_bytes=1 << 16)
    lose_caches(made, caches)
    lost = set()
    for offset in (0, 8192, 20480, 24576, 61440, 65536):
        path, place = made.segment_path(offset), offset % made.segment_bytes
        overwrite(path, place, kind(4096))
        lost |= {
            r.physical_offset
            for r in made.records
            if r.physical_offset < offset + 4096 and offset < r.physical_offset + r.total_size
        }
    found, failures, _ = scanned(made.path)
    assert found == {
        r.physical_offset: r.body for r in made.records if r.physical_offset not in lost
    }
    assert failures
    assert_right(made, lost=lost, step=17, topics=(None,))


@every_cache
def test_a_lost_segment_in_the_middle_costs_what_was_in_it(tmp_path, caches):
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)
    lose_caches(made, caches)
    gone = made.segment_path(3 << 13)
    gone.unlink()
    lost = {r.physical_offset for r in made.records if made.segment_path(r.physical_offset) == gone}
    assert len(lost) > 20
    _, failures, _ = scanned(made.path)
    assert failures == ["physical offsets 24576 to 32768: no segment has these offsets"]
    assert_right(made, lost=lost, step=7, topics=(None,))


@every_cache
def test_a_segment_cut_short_costs_what_was_cut_off(tmp_path, caches):
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)
    lose_caches(made, caches)
    path = made.segment_path(2 << 13)
    with path.open("r+b") as file:
        file.truncate(5000)
    lost = {
        r.physical_offset
        for r in made.records
        if (2 << 13) + 5000 < r.physical_offset + r.total_size <= 3 << 13
    }
    assert_right(made, lost=lost, step=7, topics=(None,))


@every_cache
def test_expired_segments_are_no_damage(tmp_path, caches):
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)
    lose_caches(made, caches)
    for n in range(2):
        made.segment_path(n << 13).unlink()
    gone = [r for r in made.records if r.physical_offset < 2 << 13]
    kept = made_stores.Made(made.path, made.records[len(gone) :], made.segment_bytes)
    assert_right(kept, step=7, topics=(None,), damaged=False)
    with rocketlens.open_store(made.path) as store:
        for record in gone[::9]:
            with pytest.raises(MessageNotFound):
                store.view_message(record.offset_msg_id)
            with pytest.raises(MessageNotFound):
                store.query_by_queue_offset(record.topic, record.queue_id, record.queue_offset)
            answer = store.query_message(record.topic, made_stores.texts_of(record)[0])
            assert (answer.messages, answer.complete) == ((), True)


@every_cache
def test_a_lost_last_segment_costs_what_was_in_it(tmp_path, caches):
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)
    lose_caches(made, caches)
    gone = made.segment_path(made.records[-1].physical_offset)
    gone.unlink()
    lost = {r.physical_offset for r in made.records if made.segment_path(r.physical_offset) == gone}
    assert_right(made, lost=lost, step=7)


def test_strays_in_the_log_directory_are_no_segments(tmp_path):
    made = make_store(tmp_path / "store", some_messages(100), segment_bytes=1 << 13)
    log = made.path / "commitlog"
    (log / "notes.txt").write_text("?")
    (log / "00000000000000000000.bak").write_bytes(b"\xff" * 5000)
    (log / "99999999999999999999").write_bytes(b"\xff" * 5000)
    (log / "00000000000000000005").write_bytes(b"\xff" * 5000)
    (log / "00000000000000004096").write_bytes(b"\xff" * 5000)
    (log / "00000000000000004097").mkdir()
    assert_right(made, step=7)


def test_empty_segment_files_hold_nothing_and_cost_nothing(tmp_path):
    made = make_store(tmp_path / "store", some_messages(100), segment_bytes=1 << 13)
    last = made.segment_path(made.records[-1].physical_offset)
    (last.parent / f"{int(last.name) + (1 << 13):020d}").write_bytes(b"")
    assert_right(made, step=7, damaged=False)


def test_a_segment_that_was_made_longer_ends_where_the_next_begins(tmp_path):
    made = make_store(tmp_path / "store", some_messages(100), segment_bytes=1 << 13)
    first = made.segment_path(0)
    first.write_bytes(first.read_bytes() + bytes(9000))
    assert_right(made, step=7, damaged=False)


@pytest.mark.parametrize("is_sparse", [True, False], ids=["sparse", "filled"])
def test_a_mostly_unwritten_last_segment_costs_no_time(tmp_path, is_sparse):
    made = make_store(tmp_path / "store", some_messages(50))
    path = made.segment_path(0)
    end = made.records[-1].physical_offset + made.records[-1].total_size
    content = path.read_bytes()[:end]
    with path.open("wb") as file:
        file.write(content)
        if is_sparse:
            file.truncate(256 << 20)
        else:
            file.write(bytes(48 << 20))
    assert_right(made, step=5, damaged=False)


@pytest.mark.parametrize("is_sparse", [True, False], ids=["sparse", "filled"])
def test_records_behind_a_long_hole_are_found(tmp_path, is_sparse):
    """A segment in the middle lost 20 MiB; what lies behind, and in the next file, is there."""
    messages = [
        made_stores.replace(sent, body=bytes([n % 251 + 1]) * (1 << 20))
        for n, sent in enumerate(some_messages(40))
    ]
    made = make_store(tmp_path / "store", messages, segment_bytes=32 << 20, index=None)
    shutil.rmtree(made.path / "consumequeue")
    path = made.segment_path(0)
    content = bytearray(path.read_bytes())
    low, high = made.records[4].physical_offset, made.records[24].physical_offset
    content[low:high] = bytes(high - low)
    with path.open("wb") as file:
        if is_sparse:
            file.write(content[:low])
            file.seek(high)
            file.write(content[high:])
        else:
            file.write(content)
    found, failures, torn_at = scanned(made.path)
    assert set(found) == {r.physical_offset for r in [*made.records[:4], *made.records[24:]]}
    assert (len(failures), torn_at) == (1, None)


def test_records_with_a_size_that_no_one_bears_out_are_skipped_alone(tmp_path):
    """As RocketMQ stores them for a producer that sets the IPv6 flags wrongly."""
    made = make_store(tmp_path / "store", some_messages(100))
    hits = made.records[40:43]
    for hit, flags in zip(hits, (0x10, 0x20, 0x30), strict=True):
        overwrite(made.segment_path(0), hit.physical_offset + 36, struct.pack(">i", flags))
    found, failures, _ = scanned(made.path)
    kept = [r for r in made.records if r not in hits]
    assert found == {r.physical_offset: r.body for r in kept}
    assert failures


def test_a_directory_without_a_log_is_no_store(tmp_path):
    cases = {name: tmp_path / name for name in ("nothing", "empty", "no-log", "odd", "file")}
    cases["empty"].mkdir()
    (cases["no-log"] / "commitlog").mkdir(parents=True)
    (cases["odd"] / "commitlog" / "0").mkdir(parents=True)
    cases["file"].write_bytes(b"a file")
    for path in cases.values():
        with pytest.raises(NotAStore):
            rocketlens.open_store(path)


def test_a_flipped_size_that_leads_to_another_record_costs_one_record(tmp_path):
    """Records of 128 bytes: one changed bit makes 128 into 384, which is three of them."""
    probe, _ = made_stores.record_of(Sent(keys="k00", body=b""), 0, 0)
    body = b"b" * (128 - probe.total_size)
    made = make_store(
        tmp_path / "store", [Sent(keys=f"k{n:02d}", body=body) for n in range(60)], index=None
    )
    assert {r.total_size for r in made.records} == {128}
    hit = made.records[30]
    flip(made.segment_path(0), hit.physical_offset + 2, 0x01)
    shutil.rmtree(made.path / "consumequeue")
    assert_one_hit(made, hit)

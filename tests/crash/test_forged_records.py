"""C-6: bytes in a body that look like a record are never taken for one."""

import random

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound
from rocketlens.model.message_id import OffsetMessageId
from tests.crash.asking import every_cache, lose_caches
from tests.support import made_stores
from tests.support.effort import sized
from tests.support.made_stores import BROKER, Sent, flip, forged, make_store, overwrite, record_of

INNER = Sent(topic="Orders", keys="forged", unique_key="F" * 32, body=b"forged!", queue_id=0)


def log_with_forgeries(path, *, count=60, chain=1, segment_bytes=1 << 14):
    """Every third message holds ``chain`` forged records, each at the place that it claims."""
    messages, forgeries = [], []
    offset = 0
    for n in range(count):
        sent = Sent(
            keys=f"k{n}",
            unique_key=f"{n:032X}",
            body=b"plain body %d" % n,
            store_timestamp_ms=made_stores.NOW_MS + n,
        )
        if n % 3 == 1:
            sent = replace(sent, body=b"")
            here = []
            for link in range(chain):
                before = sent.body
                inner = replace(INNER, queue_id=link % 2)
                sent = forged(sent, offset, before, b"", inner)
                here.append(offset + 88 + len(before))
            sent = replace(sent, body=sent.body + b" tail")
        size = len(record_of(sent, offset, 0)[1])
        left = segment_bytes - offset % segment_bytes
        if size + 8 > left:
            # It would be moved: send something short here, to keep to the places claimed.
            messages.append(Sent(keys=f"k{n}", body=b"filler"))
            size = len(record_of(messages[-1], offset, 0)[1])
            offset = offset + size if size + 8 <= left else offset + left + size
            continue
        if n % 3 == 1:
            forgeries += here
        messages.append(sent)
        offset += size
    made = make_store(path, messages, segment_bytes=segment_bytes)
    assert len(forgeries) >= chain * count // 5
    return made, forgeries


def id_of(offset):
    return OffsetMessageId(BROKER, offset).encode()


def assert_nothing_forged(made, forgeries, lost=()):
    with rocketlens.open_store(made.path) as store:
        for offset in forgeries:
            with pytest.raises((MessageNotFound, AnswerIncomplete)):
                store.view_message(id_of(offset))
        for topic in ("Orders", None):
            assert store.query_message(topic, "forged").messages == ()
            assert store.query_message(topic, "F" * 32).messages == ()
        expected = [r.physical_offset for r in made.records if r.physical_offset not in lost]
        assert [m.physical_offset for m in store.scan()] == expected
        assert not set(expected) & set(forgeries)
        for record in made.records:
            if record.physical_offset not in lost:
                assert store.view_message(record.offset_msg_id).body == record.body


@every_cache
@pytest.mark.parametrize("chain", [1, 3])
def test_a_forged_record_in_a_body_is_never_a_message(tmp_path, caches, chain):
    made, forgeries = log_with_forgeries(tmp_path / "store", chain=chain)
    lose_caches(made, caches)
    assert_nothing_forged(made, forgeries)


@every_cache
@pytest.mark.parametrize("chain", [1, 3])
@pytest.mark.parametrize("which", ["before", "around"])
def test_a_forged_record_beside_a_damaged_one_is_never_a_message(tmp_path, caches, chain, which):
    """One byte of the record before it, or of the one that it is in, is wrong: each in turn."""
    made, forgeries = log_with_forgeries(tmp_path / "store", count=12, chain=chain)
    lose_caches(made, caches)
    around = max(r.physical_offset for r in made.records if r.physical_offset < forgeries[0])
    number = [r.physical_offset for r in made.records].index(around)
    hit = made.records[number - (which == "before")]
    head = [*range(16), *range(28, 44), *range(84, 88)]
    for byte in [
        *head[:: sized(3, 1)],
        hit.total_size - len(hit.properties) - 1,
        hit.total_size - 1,
    ]:
        for bits in (0x01, 0x80, 0xFF):
            flip(made.segment_path(0), hit.physical_offset + byte, bits)
            with rocketlens.open_store(made.path) as store:
                found = {m.physical_offset for m in store.scan()}
                assert not found & set(forgeries), (byte, bits)
                assert found | {hit.physical_offset} == {r.physical_offset for r in made.records}
                with pytest.raises((MessageNotFound, AnswerIncomplete)):
                    store.view_message(id_of(forgeries[0]))
            flip(made.segment_path(0), hit.physical_offset + byte, bits)


@pytest.mark.parametrize("caches", ["index-queues", "index"])
@pytest.mark.parametrize("kind", [bytes, random.Random(8).randbytes], ids=["zeros", "garbage"])
def test_an_index_tells_forged_records_from_true_ones_behind_a_lost_header(tmp_path, caches, kind):
    """With 88 bytes gone nothing in the log tells where the damaged record ends."""
    made, forgeries = log_with_forgeries(tmp_path / "store", chain=3)
    lose_caches(made, caches)
    around = max(r.physical_offset for r in made.records if r.physical_offset < forgeries[0])
    overwrite(made.segment_path(0), around, kind(88))
    assert_nothing_forged(made, forgeries, lost={around})


@every_cache
def test_a_lone_forged_record_behind_a_lost_header_is_not_a_message(tmp_path, caches):
    made, forgeries = log_with_forgeries(tmp_path / "store")
    lose_caches(made, caches)
    around = max(r.physical_offset for r in made.records if r.physical_offset < forgeries[0])
    overwrite(made.segment_path(0), around, bytes(88))
    assert_nothing_forged(made, forgeries, lost={around})


@every_cache
def test_a_forged_record_in_a_torn_tail_is_not_a_message(tmp_path, caches):
    made, _ = log_with_forgeries(tmp_path / "store", count=10)
    inner_at = made.records[-1].physical_offset + made.records[-1].total_size
    _, encoded = record_of(forged(Sent(), inner_at, b"x", b"", INNER), inner_at, 99)
    lose_caches(made, caches)
    # All of the body is there, of topic and properties nothing.
    torn = encoded[: -len("Orders") - 3]
    overwrite(made.segment_path(inner_at), inner_at, torn)
    assert_nothing_forged(made, [inner_at + 89])


@every_cache
def test_asked_offsets_give_whole_records_that_begin_there_or_nothing(tmp_path, caches):
    """Each offset of a log: inside bodies, misaligned, at forgeries, behind the end, far away."""
    made, forgeries = log_with_forgeries(tmp_path / "store", chain=3, segment_bytes=1 << 13)
    lose_caches(made, caches)
    starts = {r.physical_offset: r for r in made.records}
    end = max(starts) + 2000
    step = sized(5, 1) if caches == "index" else sized(11, 3)
    asked = [*range(0, end, step), *forgeries, *starts]
    asked += [end + 10**6, 2**31, 2**40, 2**63 - 1]
    assert_true_records(made, asked, starts)


def assert_true_records(made, asked, starts):
    with rocketlens.open_store(made.path) as store:
        for offset in asked:
            try:
                message = store.view_message(id_of(offset))
            except MessageNotFound:
                assert offset not in starts
            else:
                assert message.body == starts[offset].body


@pytest.mark.slow
@every_cache
def test_a_hundred_thousand_asked_offsets_give_true_records_or_nothing(tmp_path, caches):
    made, forgeries = log_with_forgeries(
        tmp_path / "store", count=2400, chain=3, segment_bytes=1 << 16
    )
    lose_caches(made, caches)
    starts = {r.physical_offset: r for r in made.records}
    chance = random.Random(6)
    asked = [chance.randrange(max(starts) + 9000) for _ in range(100_000 - 2 * len(forgeries))]
    assert_true_records(made, [*asked, *forgeries, *forgeries], starts)


def test_ids_that_are_no_ids_are_refused_or_not_found(tmp_path):
    made, _ = log_with_forgeries(tmp_path / "store")
    with rocketlens.open_store(made.path) as store:
        for text in ("0", "xyz", "0" * 31, "0" * 33, "G" * 32, "é" * 32, "0" * 56, "F" * 56, " "):
            with pytest.raises(MessageNotFound):
                store.view_message(text)
            for kind in ("offset-id",):
                try:
                    assert not store.find(text, kind=kind).messages
                except BadInput:
                    continue
        for text in ("", "k" * 1_000_000):
            with pytest.raises(BadInput):
                store.view_message(text)
            with pytest.raises(BadInput):
                store.query_message("Orders", text)

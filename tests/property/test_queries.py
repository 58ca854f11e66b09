"""D-4, T-1, T-2: look-ups against brute force over everything that was stored."""

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlens
from rocketlens import limits
from rocketlens.errors import MessageNotFound, TopicNotFound
from rocketlens.model.message_id import UniqueKey
from rocketlens.model.text.java import index_hash
from tests.support.effort import sized
from tests.support.made_stores import NOW_MS, Sent, make_store, texts_of

# Of the same hash, alone and behind any topic; and of others.
TWINS = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa")
keys = st.lists(st.sampled_from([*TWINS, "k1", "k2", "订单", "🚀"]), max_size=5)
topics = st.sampled_from(["Aa", "BB", "Orders", "%RETRY%g"])
clock_steps = st.sampled_from([0, 0, 1, 2, 999, 1000, 1001, 60_000, -1, -1000, -50_000, -3_600_000])
messages = st.builds(
    dict,
    topic=topics,
    keys=keys.map(" ".join),
    unique_key=st.sampled_from([None, "U1", "U2", "Aa"]),
    tags=st.sampled_from([None, "TagA", "TagB"]),
    queue_id=st.integers(0, 1),
    body=st.binary(max_size=20),
    step=clock_steps,
)
geometries = st.sampled_from([None, (500, 1000), (4, 9), (16, 40), (1, 300)])

quick = settings(
    max_examples=sized(15, 120),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)


def stored(directory, parts, geometry, **named):
    time_ms = NOW_MS
    sent = []
    for part in parts:
        fields = dict(part)
        time_ms += fields.pop("step")
        sent.append(Sent(store_timestamp_ms=time_ms, **fields))
    return make_store(Path(directory) / "store", sent, index=geometry, **named)


def expected(made, topic, text, begin=0, end=limits.MAX_TIMESTAMP_MS):
    return [
        record.physical_offset
        for record in made.records
        if topic in (None, record.topic)
        and text in texts_of(record)
        and begin <= record.store_timestamp_ms <= end
    ]


def offsets(found):
    return [message.physical_offset for message in found]


@quick
@given(st.lists(messages, min_size=1, max_size=30), geometries, st.booleans(), st.booleans())
def test_keys_are_found_as_brute_force_finds_them(parts, geometry, with_queues, with_tags):
    with tempfile.TemporaryDirectory() as directory:
        made = stored(
            directory, parts, geometry, with_queues=with_queues, with_tags=with_tags,
            segment_bytes=1500,
        )  # fmt: skip
        with rocketlens.open_store(made.path) as store:
            for text in (*TWINS, "k1", "k2", "订单", "🚀", "U1", "U2", "TagA", "nobody's"):
                for topic in ("Aa", "BB", "Orders", "%RETRY%g", None, "NoTopic"):
                    answer = store.query_message(topic, text, None)
                    assert offsets(answer) == expected(made, topic, text)
                    assert answer.complete
                    newest = store.query_message(topic, text, 2)
                    assert offsets(newest) == expected(made, topic, text)[-2:]
                    assert newest.truncated == (len(answer) > 2)


@quick
@given(st.lists(messages, min_size=1, max_size=25), geometries)
def test_every_id_and_place_leads_to_its_message_alone(parts, geometry):
    with tempfile.TemporaryDirectory() as directory:
        made = stored(directory, parts, geometry)
        with rocketlens.open_store(made.path) as store:
            for record in made.records:
                assert store.view_message(record.offset_msg_id).body == record.body
                place = (record.topic, record.queue_id, record.queue_offset)
                found = store.query_by_queue_offset(*place)
                assert found.physical_offset == record.physical_offset
                other_topic = "BB" if record.topic == "Aa" else "Aa"
                with pytest.raises(MessageNotFound):
                    store.view_message(other_topic, record.offset_msg_id)


@quick
@given(st.lists(messages, min_size=2, max_size=20), geometries)
def test_windows_at_every_edge_give_what_brute_force_gives(parts, geometry):
    """T-1: with clocks that step back and forth, one millisecond beside every time there is."""
    with tempfile.TemporaryDirectory() as directory:
        made = stored(directory, parts, geometry, segment_bytes=1500)
        times = sorted({r.store_timestamp_ms for r in made.records})
        edges = sorted({t + d for t in times[:4] + times[-4:] for d in (-1, 0, 1)})
        text = next((t for r in made.records for t in texts_of(r)), "none")
        with rocketlens.open_store(made.path) as store:
            for begin in edges:
                for end in edges[::2]:
                    answer = store.query_message(None, text, None, begin, end)
                    assert offsets(answer) == expected(made, None, text, begin, end)
                    scanned = offsets(store.scan(begin=begin, end=end))
                    assert scanned == [
                        r.physical_offset
                        for r in made.records
                        if begin <= r.store_timestamp_ms <= end
                    ]


@quick
@given(st.lists(messages, min_size=1, max_size=25), st.data())
def test_scans_give_what_brute_force_gives(parts, data):
    topic = data.draw(st.none() | topics)
    tag = data.draw(st.sampled_from([None, "*", "TagA", "TagB || TagA", "NoTag"]))
    with tempfile.TemporaryDirectory() as directory:
        made = stored(directory, parts, None)
        tags = None if tag in (None, "*") else {t.strip() for t in tag.split("||")}
        with rocketlens.open_store(made.path) as store:
            whole = list(store.scan())
            assert offsets(whole) == [r.physical_offset for r in made.records]
            if topic is None or any(m.topic == topic for m in whole):
                assert list(store.scan(topic, tag=tag)) == [
                    m
                    for m in whole
                    if topic in (None, m.topic) and (tags is None or m.tags in tags)
                ]
                assert tuple(store.find(topic=topic).messages) == tuple(store.scan(topic))
            else:
                for ask in (store.find, store.scan):
                    with pytest.raises(TopicNotFound):
                        ask(topic=topic)


def test_hash_twins_are_told_apart_over_topic_and_key(tmp_path):
    """ "Aa" and "BB" have one hash, so topic "Aa" and key "x" collide with topic "BB" and "x"."""
    assert index_hash("Aa#x") == index_hash("BB#x")
    sent = [Sent(topic=topic, keys=key) for topic in ("Aa", "BB") for key in ("x", "Aa", "BB", "x")]
    made = make_store(tmp_path / "store", sent)
    with rocketlens.open_store(made.path) as store:
        for topic in ("Aa", "BB"):
            for key in ("x", "Aa", "BB"):
                assert offsets(store.query_message(topic, key)) == expected(made, topic, key)


def test_one_key_on_ten_thousand_messages_gives_them_all(tmp_path):
    sent = [Sent(keys=f"hot {n}", body=b"%d" % n) for n in range(10_000)]
    made = make_store(tmp_path / "store", sent, index=(500, 20_000), segment_bytes=1 << 17)
    with rocketlens.open_store(made.path) as store:
        answer = store.query_message("Orders", "hot", None)
        assert offsets(answer) == [r.physical_offset for r in made.records]
        assert not answer.truncated
        newest = store.query_message("Orders", "hot")
        assert offsets(newest) == [r.physical_offset for r in made.records[-64:]]
        assert newest.truncated
        assert offsets(store.query_message("Orders", "77")) == [made.records[77].physical_offset]
        assert store.query_message("Orders", "hot", 0).messages == ()


def test_a_hundred_keys_in_one_message_each_lead_to_it_once(tmp_path):
    keys_of_one = [f"key-{n}" for n in range(100)]
    sent = [Sent(keys=" ".join([*keys_of_one, *keys_of_one])), Sent(keys="key-7  key-7 key-8")]
    made = make_store(tmp_path / "store", sent, index=(50, 64))
    with rocketlens.open_store(made.path) as store:
        for key in keys_of_one:
            answer = store.query_message("Orders", key)
            assert offsets(answer) == expected(made, "Orders", key)
        assert store.view_message(made.records[1].offset_msg_id).keys == ("key-7", "key-7", "key-8")


def test_a_key_is_found_in_every_topic_when_none_is_given(tmp_path):
    """In topics that no config and no queue names any more, too."""
    names = [f"Topic{n}" for n in range(30)]
    sent = [Sent(topic=name, keys="everywhere", body=name.encode()) for name in names * 3]
    made = make_store(tmp_path / "store", sent)
    for name in names[3:]:
        shutil.rmtree(made.path / "consumequeue" / name)
    with rocketlens.open_store(made.path) as store:
        answer = store.find("everywhere")
        assert offsets(answer) == [r.physical_offset for r in made.records]
        assert [c.kind for c in answer.coverage].count("topics") == 1


def test_a_key_only_in_a_deleted_topic_of_a_large_log_is_found(tmp_path, monkeypatch):
    from rocketlens.query import store_topics

    monkeypatch.setattr(store_topics, "_READ_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(store_topics, "_SAMPLES", 3)
    sent = [Sent(keys=f"k{n}", unique_key=f"{n:032X}") for n in range(400)]
    sent[123] = Sent(topic="Deleted", keys="rare", unique_key="D" * 32)
    made = make_store(tmp_path / "store", sent)
    shutil.rmtree(made.path / "consumequeue" / "Deleted")
    with rocketlens.open_store(made.path) as store:
        assert offsets(store.find("rare")) == [made.records[123].physical_offset]
        assert store.view_message("D" * 32).topic == "Deleted"
        assert offsets(store.find("k124")) == [made.records[124].physical_offset]


def test_times_far_out_of_the_ordinary_are_compared_exactly(tmp_path):
    times = [0, 1, 999, NOW_MS, 2**40, 2**62, 2**63 - 1]
    sent = [Sent(keys="k", store_timestamp_ms=t) for t in times]
    made = make_store(tmp_path / "store", sent)
    with rocketlens.open_store(made.path) as store:
        for begin in (*times, 10**30):
            for end in (*times, 10**30):
                kept = [t for t in times if begin <= t <= end]
                answer = store.query_message("Orders", "k", None, begin, end)
                assert [m.store_timestamp_ms for m in answer] == kept
                assert [m.store_timestamp_ms for m in store.scan(begin=begin, end=end)] == kept


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/Los_Angeles"])
def test_a_unique_keys_time_is_its_own_at_every_months_ends(zone):
    """T-2: made up to a month before it is read, in the zone that it was made in."""
    here = ZoneInfo(zone) if zone != "UTC" else UTC
    for month in range(1, 13):
        start = datetime(2026, month, 1, tzinfo=here)
        after = datetime(2026 + month // 12, month % 12 + 1, 1, tzinfo=here)
        for made_at in (
            start,
            start + timedelta(milliseconds=1),
            start + timedelta(days=24, hours=21),
            datetime.fromtimestamp(after.timestamp() - 1, here),
        ):
            made_ms = round(made_at.timestamp() * 1000)
            millis = made_ms - round(start.timestamp() * 1000)
            key = UniqueKey("10.0.0.1", 7, 8, millis, 9)
            assert UniqueKey.decode(key.encode()) == key
            for age_ms in (1, 1000, 3_600_000):
                assert key.nearly_time_ms(made_ms + age_ms, here) == made_ms

"""Topics that were deleted, and made again, while the log still has their messages."""

import shutil

import pytest
from msgspec.structs import replace

from rocketlens.store.read.consumequeue import ConsumeQueues
from tests.support.synthetic import record, write_log
from tests.support.written_stores import open_small, records_of, send

TOPICS_JSON = '{"dataVersion":{"counter":1},"topicConfigTable":{%s}}'


def dispatch(*arguments, **options):
    from rocketlens.pipeline.dispatch import dispatch

    return dispatch(*arguments, **options)


def verify(*arguments, **options):
    from rocketlens.pipeline.verify import verify

    return verify(*arguments, **options)


def bodies_of(store):
    """Which messages the queues of a store lead to, by topic and queue, in order."""
    bodies = {one.physical_offset: one.body.decode() for one in records_of(store)}
    queues = ConsumeQueues(store / "consumequeue")
    found = {}
    for name in queues.names():
        entries = queues.queue(*name).entries()
        found[tuple(name)] = [(at, bodies[entry.physical_offset]) for at, entry in entries]
    queues.close()
    return {name: entries for name, entries in found.items() if entries}


def delete(store, topic):
    assert store.deleted.mark(topic)
    store.deleted.snapshot()()
    store._disk.remove_tree(store.deleted.remove_queues(topic))


def name_topics(store, *topics):
    """Write the table of topics that a broker of this store would have."""
    path = store / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(TOPICS_JSON % ",".join(f'"{t}":{{"topicName":"{t}"}}' for t in topics))


NEW = [(number, f"new{number}") for number in range(3)]
KEPT = [(number, f"keep{number}") for number in range(4)]


@pytest.fixture
def store(tmp_path):
    """A store of ours, closed: T was deleted and made again, Gone was deleted, Kept was not."""
    with open_small(tmp_path / "store") as written:
        for number in range(5):
            send(written, number, topic="T", queue_id=number % 2, body=b"old%d" % number)
            send(written, 100 + number, topic="Gone", body=b"gone%d" % number)
        send(written, 200, topic="Kept", body=b"keep0")
        delete(written, "T")
        delete(written, "Gone")
        for number in range(3):
            send(written, 300 + number, topic="T", body=b"new%d" % number)
            send(written, 400 + number, topic="Kept", body=b"keep%d" % (number + 1))
    return tmp_path / "store"


def as_of_a_real_broker(store, *topics):
    """Leave what a real broker would have of it."""
    shutil.rmtree(store / "rocketlens")
    name_topics(store, *topics)


@pytest.mark.parametrize("whose", ["ours", "real"])
def test_a_store_with_deleted_topics_has_nothing_wrong_and_says_which_they_are(spark, store, whose):
    if whose == "real":
        as_of_a_real_broker(store, "T", "Kept")
    report = verify(spark.sparkContext, store)
    assert report.is_sound, report.findings
    assert not report.not_compared
    assert [note for note in report.notes if "deleted" in note] == [
        "10 records of deleted topics have no queue entry, which is normal: Gone, T"
    ]


@pytest.mark.parametrize("whose", ["ours", "real"])
@pytest.mark.parametrize("range_bytes", [1 << 16, 1 << 26])
def test_queues_are_built_of_what_was_sent_since_and_of_nothing_else(
    spark, store, whose, range_bytes
):
    if whose == "real":
        as_of_a_real_broker(store, "T", "Kept")
    before = bodies_of(store)
    assert before == {("T", 0): NEW, ("Kept", 0): KEPT}
    result = dispatch(spark.sparkContext, store, queues=True, range_bytes=range_bytes)
    assert bodies_of(store) == before
    assert any("10 records of deleted topics" in note for note in result.notes)
    assert verify(spark.sparkContext, store).is_sound


@pytest.mark.parametrize("known", ["marks", "topics", "offsets"])
def test_without_queues_the_rest_of_the_evidence_keeps_deleted_messages_away(spark, store, known):
    shutil.rmtree(store / "consumequeue")
    expected = {("T", 0): NEW, ("Kept", 0): KEPT}
    if known == "topics":
        as_of_a_real_broker(store, "T", "Kept")
    elif known == "offsets":
        shutil.rmtree(store / "rocketlens")
        # Nothing says that this topic was deleted: its messages are not to be lost.
        expected["Gone", 0] = [(number, f"gone{number}") for number in range(5)]
    dispatch(spark.sparkContext, store, queues=True)
    assert bodies_of(store) == expected


def test_queues_that_lead_to_messages_of_a_deleted_topic_are_named(spark, store):
    kept = store.with_name("kept")
    shutil.copytree(store, kept)
    # What a builder makes that takes the first claim of each place.
    with open_small(store.with_name("other")) as written:
        for number in range(5):
            send(written, number, topic="T", queue_id=number % 2, body=b"old%d" % number)
            send(written, 100 + number, topic="Gone", body=b"gone%d" % number)
    for topic in ("T", "Gone"):
        shutil.rmtree(store / "consumequeue" / topic, ignore_errors=True)
        other = store.with_name("other") / "consumequeue" / topic
        shutil.copytree(other, store / "consumequeue" / topic)
    shutil.rmtree(store / "rocketlens")
    counts = verify(spark.sparkContext, store).counts
    assert counts["queue entry wrong"] == 3
    assert counts["queue entry extra"] == 5
    shutil.copytree(kept / "rocketlens", store / "rocketlens")
    assert verify(spark.sparkContext, store).counts["queue entry extra"] == 10


def test_a_topic_without_a_queue_is_not_taken_for_compared(spark, store):
    as_of_a_real_broker(store, "T", "Kept", "Gone")
    report = verify(spark.sparkContext, store)
    assert report.is_sound
    (text,) = report.not_compared
    assert text.startswith("5 records of topics that have no queue: Gone.")
    result = dispatch(spark.sparkContext, store, queues=True)
    assert set(bodies_of(store)) == {("T", 0), ("Kept", 0)}
    assert any("move consumequeue away first" in note for note in result.notes)
    shutil.rmtree(store / "consumequeue")
    dispatch(spark.sparkContext, store, queues=True)
    assert set(bodies_of(store)) == {("T", 0), ("Kept", 0), ("Gone", 0)}


def test_a_queue_that_our_broker_lost_is_built_and_missed(spark, store):
    shutil.rmtree(store / "consumequeue" / "Kept")
    assert verify(spark.sparkContext, store).counts["queue entry missing"] == 4
    dispatch(spark.sparkContext, store, queues=True)
    assert bodies_of(store) == {("T", 0): NEW, ("Kept", 0): KEPT}


def test_one_damaged_queue_offset_of_0_costs_its_own_entry_only(spark, tmp_path):
    log = [record(n, queue_offset=0 if n == 12 else n) for n in range(20)]
    write_log(tmp_path, log, 1 << 20)
    result = dispatch(spark.sparkContext, tmp_path, queues=True, queue_file_size=1000)
    assert result.queue_entries == 19
    assert result.notes == ["1 record with a queue offset that another record has"]


def test_a_topic_made_again_twice_in_many_queues_has_its_last_messages_only(spark, tmp_path):
    lives = [(0, 1, 2, 3), (0, 1), (1, 2)]
    log, places = [], {}
    for life, queues in enumerate(lives):
        places.clear()
        for number in range(6 * len(queues)):
            queue_id = queues[number % len(queues)]
            place = places[queue_id] = places.get(queue_id, -1) + 1
            made = record(len(log), queue_id=queue_id, queue_offset=place)
            log.append(replace(made, body=b"life%d" % life))
    write_log(tmp_path, log, 20_000)
    dispatch(spark.sparkContext, tmp_path, queues=True, range_bytes=1 << 16)
    last = [(number, "life2") for number in range(6)]
    assert bodies_of(tmp_path) == {("Topic", 1): last, ("Topic", 2): last}
    assert verify(spark.sparkContext, tmp_path).is_sound

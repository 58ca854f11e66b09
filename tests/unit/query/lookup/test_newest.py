"""The newest messages of a topic: found from the ends of queues, the same as by reading the log."""

import random

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import limits
from rocketlens.query.lookup import by_time, newest
from tests.support.effort import sized
from tests.support.made_stores import QUEUE_ENTRY, make_store, some_messages


@pytest.fixture
def made(tmp_path, monkeypatch):
    # Every log is long here.
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    return make_store(tmp_path / "store", some_messages(300))


@pytest.fixture
def scans(monkeypatch):
    """The physical offsets at which scans of the log began."""
    began = []
    make = by_time.Scan.__init__

    def note(self, *arguments, start=None, **options):
        began.append(start)
        make(self, *arguments, start=start, **options)

    monkeypatch.setattr(by_time.Scan, "__init__", note)
    return began


def newest_of(made, count, topic="Topic1", **options):
    with rocketlens.open_store(made.path) as store:
        return store.find(topic=topic, max_num=count, **options)


def expected_of(made, count, topic="Topic1"):
    offsets = [each.physical_offset for each in made.records if each.topic == topic]
    return offsets[-count:]


def queue_files(made, topic="Topic1"):
    files = (made.path / "consumequeue" / topic).rglob("*")
    return sorted(each for each in files if each.is_file())


@pytest.mark.parametrize("count", [1, 7, 40])
def test_only_the_end_of_the_log_is_read_and_the_answer_relies_on_nothing(made, scans, count):
    found = newest_of(made, count)
    assert [each.physical_offset for each in found] == expected_of(made, count)
    assert (found.complete, found.truncated, found.relies_on) == (True, True, ())
    assert scans == [expected_of(made, count + 1)[0]]
    assert next(each.begin_offset for each in found.coverage) == scans[0]


def test_several_topics_are_read_from_the_nearest_end(made, scans):
    found = newest_of(made, 9, ["Topic1", "Topic2"])
    both = [r.physical_offset for r in made.records if r.topic in ("Topic1", "Topic2")]
    assert [each.physical_offset for each in found] == both[-9:]
    assert scans == [both[-10]]


def test_all_of_the_log_is_read_where_queues_have_too_few(made, scans):
    total = len(expected_of(made, 1000))
    found = newest_of(made, total + 5)
    assert [each.physical_offset for each in found] == expected_of(made, 1000)
    assert (found.complete, found.truncated, found.relies_on) == (True, False, ())
    assert scans == [None]
    # As many as there are: whether there is another one, only the log tells.
    assert not newest_of(made, total).truncated


def test_an_exhaustive_search_reads_all_of_the_log(made, scans):
    found = newest_of(made, 3, exhaustive=True)
    assert [each.physical_offset for each in found] == expected_of(made, 3)
    assert scans == [None]


def damage_nothing(_):
    pass


def remove_a_queue(made):
    for file in queue_files(made)[:1]:
        file.unlink()


def remove_all_queues(made):
    for file in queue_files(made):
        file.unlink()


def cut_the_end(made):
    for file in queue_files(made):
        content = file.read_bytes().rstrip(b"\0")
        file.write_bytes(content[: len(content) // 40 * 20])


def zero_the_last_entries(made):
    for file in queue_files(made):
        content = bytearray(file.read_bytes())
        end = (len(content.rstrip(b"\0")) + 19) // 20 * 20
        content[end - 60 : end] = bytes(60)
        file.write_bytes(content)


def lead_elsewhere(made):
    for file in queue_files(made):
        content = bytearray(file.read_bytes())
        end = (len(content.rstrip(b"\0")) + 19) // 20 * 20
        content[end - 20 : end - 12] = content[0:8]
        file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [damage_nothing, remove_a_queue, remove_all_queues, cut_the_end, zero_the_last_entries,
     lead_elsewhere],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 5, 30])
def test_whatever_queues_are_like_the_answer_is_that_of_the_log(made, damage, count):
    damage(made)
    found = newest_of(made, count)
    assert [each.physical_offset for each in found] == expected_of(made, count)
    assert found.complete
    assert found.relies_on == ()


def test_a_rare_topic_is_found_by_its_queues_and_says_what_it_relies_on(made, scans, monkeypatch):
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -(1 << 40))
    found = newest_of(made, 4)
    assert [each.physical_offset for each in found] == expected_of(made, 4)
    assert (found.complete, found.truncated) == (True, True)
    start = expected_of(made, 5)[0]
    [relies_on] = found.relies_on
    assert relies_on.startswith(f"consume queues lack no message from physical offset {start} to ")
    assert scans == [max(each.physical_offset + each.total_size for each in made.records)]
    few = newest_of(made, 1000)
    assert [each.physical_offset for each in few] == expected_of(made, 1000)
    assert not few.truncated
    assert "from physical offset 0 to" in few.relies_on[0]


def test_log_behind_the_queues_is_read_also_of_a_rare_topic(made, monkeypatch):
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -(1 << 40))
    middle = made.records[len(made.records) // 2].physical_offset
    for file in (made.path / "consumequeue").rglob("*"):
        if file.is_file():
            entries = [entry for entry in QUEUE_ENTRY.iter_unpack(file.read_bytes()) if entry[1]]
            kept = [QUEUE_ENTRY.pack(*entry) for entry in entries if entry[0] < middle]
            file.write_bytes(b"".join(kept).ljust(20 * 100, b"\0"))
    found = newest_of(made, 4)
    assert [each.physical_offset for each in found] == expected_of(made, 4)


def test_a_damaged_message_among_the_newest_makes_the_answer_incomplete(made):
    offset = expected_of(made, 3)[1]
    [segment] = [
        each
        for each in (made.path / "commitlog").iterdir()
        if int(each.name) <= offset < int(each.name) + each.stat().st_size
    ]
    content = bytearray(segment.read_bytes())
    position = offset - int(segment.name)
    size = next(r.total_size for r in made.records if r.physical_offset == offset)
    body = content.index(b"body", position, position + size) if b"body" in content else None
    at = position + 92 if body is None else body
    content[at] ^= 1
    segment.write_bytes(content)
    found = newest_of(made, 5)
    assert not found.complete


def test_many_messages_that_do_not_match_end_the_search_in_queues(made, scans, monkeypatch):
    monkeypatch.setattr(newest, "_MAX_OTHERS", 3)
    found = newest_of(made, 2, grep="body 1 ")
    assert scans == [None]
    assert found.complete
    assert len(found) == 1


def in_time(made, begin, end, topic="Topic1"):
    return [
        each.physical_offset
        for each in made.records
        if each.topic == topic and begin <= each.store_timestamp_ms <= end
    ]


@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_newest_of_a_range_of_times_begin_where_the_range_ends_in_the_queues(
    made, scans, monkeypatch, count
):
    monkeypatch.setattr(newest, "_MAX_OTHERS", 0)
    times = [each.store_timestamp_ms for each in made.records]
    begin, end = times[30], times[200]
    found = newest_of(made, count, begin=begin, end=end)
    matching = in_time(made, begin, end)
    assert [each.physical_offset for each in found] == matching[-count:]
    assert (found.complete, found.truncated, found.relies_on) == (True, True, ())
    assert scans == [matching[-count - 1]]


def test_all_of_the_log_is_read_where_queues_have_too_few_of_a_range(made, scans, monkeypatch):
    monkeypatch.setattr(newest, "_MAX_OTHERS", 0)
    times = [each.store_timestamp_ms for each in made.records]
    found = newest_of(made, 50, begin=times[250], end=times[270])
    assert [each.physical_offset for each in found] == in_time(made, times[250], times[270])
    assert (found.complete, found.truncated, found.relies_on) == (True, False, ())
    assert scans == [None]


@pytest.mark.parametrize(("first", "last"), [(100, 200), (0, 5), (290, 299), (40, 41)])
def test_a_range_of_times_is_read_from_the_queues_of_a_long_log(made, monkeypatch, first, last):
    monkeypatch.setattr(newest, "_MAX_OTHERS", 0)
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -(1 << 40))
    times = [each.store_timestamp_ms for each in made.records]
    found = newest_of(made, 1000, begin=times[first], end=times[last])
    assert [each.physical_offset for each in found] == in_time(made, times[first], times[last])
    assert (found.complete, found.truncated) == (True, False)
    [relies_on] = found.relies_on
    assert ", and their store times rise (an exhaustive search reads the log)" in relies_on
    few = newest_of(made, 1, begin=times[first], end=times[last])
    assert [each.physical_offset for each in few] == in_time(made, times[first], times[last])[-1:]


def test_a_range_of_times_reads_all_of_a_long_log_whose_clock_is_known_to_have_been_set_back(
    tmp_path, scans, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -(1 << 40))
    sent = some_messages(300)
    sent[150:] = [
        replace(each, store_timestamp_ms=each.store_timestamp_ms - 3_600_000) for each in sent[150:]
    ]
    made = make_store(tmp_path / "store", sent, segment_bytes=8192)
    first_half = [each.store_timestamp_ms for each in made.records[:150]]
    found = newest_of(made, 3, begin=first_half[10], end=first_half[100])
    assert [each.physical_offset for each in found] == in_time(
        made, first_half[10], first_half[100]
    )[-3:]
    assert (found.complete, found.relies_on, scans) == (True, (), [None])


def test_messages_that_were_deleted_are_passed_over_where_a_range_of_times_ends(
    tmp_path, scans, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    monkeypatch.setattr(newest, "_MAX_OTHERS", 0)
    made = make_store(tmp_path / "store", some_messages(300), segment_bytes=8192)
    files = sorted((made.path / "commitlog").iterdir())
    for file in files[:-2]:
        file.unlink()
    kept = [each for each in made.records if each.physical_offset >= int(files[-2].name)]
    begin, end = kept[0].store_timestamp_ms, kept[-5].store_timestamp_ms
    found = newest_of(made, 2, begin=begin, end=end)
    assert [each.physical_offset for each in found] == in_time(made, begin, end)[-2:]
    assert scans == [in_time(made, begin, end)[-3]]


@pytest.mark.parametrize("seed", range(sized(5, 20)))
def test_with_whatever_clock_and_times_the_newest_of_a_short_log_are_those_of_all(
    tmp_path, monkeypatch, seed
):
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    rng = random.Random(seed)
    sent = [
        replace(each, store_timestamp_ms=each.store_timestamp_ms + rng.randrange(-9000, 9000))
        for each in some_messages(120)
    ]
    made = make_store(tmp_path / "store", sent)
    times = [each.store_timestamp_ms for each in made.records]
    for _ in range(10):
        begin, end = sorted(rng.choices(times, k=2))
        count = rng.randrange(1, 30)
        found = newest_of(made, count, begin=begin, end=end)
        assert [each.physical_offset for each in found] == in_time(made, begin, end)[-count:]
        assert (found.complete, found.relies_on) == (True, ())


@pytest.mark.parametrize(("count", "topic"), [(1, "Topic1"), (3, "Topic1"), (3, "Topic2")])
def test_tail_of_a_store_is_found_the_same_way(made, scans, count, topic):
    with rocketlens.open_store(made.path) as store:
        found = store.tail(topic, count)
    assert [each.physical_offset for each in found] == expected_of(made, count, topic)
    assert scans == [expected_of(made, count + 1, topic)[0]]

"""A range of times in a long log: the files that can have its messages are read, as is said."""

import random

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import limits
from rocketlens.query.lookup import by_time, newest
from rocketlens.query.lookup.newest import LogPart
from tests.support.made_stores import NOW_MS, flip, forged, make_store, some_messages

SEGMENT_BYTES = 8192


@pytest.fixture(autouse=True)
def every_log_is_long(monkeypatch):
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -1)


@pytest.fixture
def made(tmp_path):
    made = make_store(tmp_path / "store", some_messages(300), segment_bytes=SEGMENT_BYTES)
    assert len(files(made)) > 5
    return made


@pytest.fixture
def read(monkeypatch):
    """The parts of the log that were read."""
    parts = []
    make = by_time.Scan.__init__

    def note(self, *arguments, start=None, stop=None, **options):
        parts.append((start, stop))
        make(self, *arguments, start=start, stop=stop, **options)

    monkeypatch.setattr(by_time.Scan, "__init__", note)
    return parts


def files(made):
    return sorted({each.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES for each in made.records})


def found_in(made, **options):
    with rocketlens.open_store(made.path) as store:
        return store.find(**options)


def offsets(messages):
    return [each.physical_offset for each in messages]


def expected(made, begin, end):
    return [
        each.physical_offset for each in made.records if begin <= each.store_timestamp_ms <= end
    ]


def of_file(made, number):
    """The times of a file's first and last message."""
    base = files(made)[number]
    times = [
        each.store_timestamp_ms
        for each in made.records
        if base <= each.physical_offset < base + SEGMENT_BYTES
    ]
    return times[0], times[-1]


def test_of_a_long_log_only_the_files_that_can_have_messages_of_the_times_are_read(made, read):
    begin, end = of_file(made, 2)
    found = found_in(made, begin=begin + 1, end=end)
    assert offsets(found) == expected(made, begin + 1, end)
    assert read == [(files(made)[2], files(made)[3])]
    assert found.complete
    [relies_on] = found.relies_on
    assert relies_on == (
        "store times rise along the log, as those of its files' first messages do: what is before "
        f"physical offset {files(made)[2]} and from physical offset {files(made)[3]} on was not "
        "read (an exhaustive search reads it)"
    )


@pytest.mark.parametrize(
    ("shift", "expected_part"),
    [
        pytest.param((0, 0), (1, 3), id="the file before can end in the same millisecond"),
        pytest.param((1, 0), (2, 3), id="behind the first message of a file"),
        pytest.param((0, -1), (1, 3), id="up to before the last message of a file"),
    ],
)
def test_the_ends_of_a_range_are_in_the_part(made, read, shift, expected_part):
    begin, end = (time + by for time, by in zip(of_file(made, 2), shift, strict=True))
    assert offsets(found_in(made, begin=begin, end=end)) == expected(made, begin, end)
    assert read == [tuple(files(made)[each] for each in expected_part)]


def test_a_range_that_is_open_on_one_side_is_read_to_that_end_of_the_log(made, read):
    begin, end = of_file(made, 3)
    since = found_in(made, begin=begin + 1)
    assert offsets(since) == expected(made, begin + 1, limits.MAX_TIMESTAMP_MS)
    until = found_in(made, end=end)
    assert offsets(until) == expected(made, 0, end)
    assert read == [(files(made)[3], None), (None, files(made)[4])]
    assert "on was not read" not in since.relies_on[0]
    assert "before physical" not in until.relies_on[0]


@pytest.mark.parametrize("side", ["before", "behind"])
def test_a_range_that_no_message_has_is_complete_and_empty(made, side):
    first, last = made.records[0].store_timestamp_ms, made.records[-1].store_timestamp_ms
    times = {"end": first - 1} if side == "before" else {"begin": last + 1}
    found = found_in(made, **times)
    assert (len(found), found.complete) == (0, True)


def test_an_exhaustive_search_reads_all_of_a_long_log(made, read):
    begin, end = of_file(made, 2)
    found = found_in(made, begin=begin, end=end, exhaustive=True)
    assert offsets(found) == expected(made, begin, end)
    assert (found.relies_on, read) == ((), [(None, None)])


def test_without_times_all_of_a_long_log_is_read_and_nothing_relied_on(made, read):
    found = found_in(made, topic="Topic1", max_num=None)
    assert (found.complete, found.relies_on, read) == (True, (), [(None, None)])


def test_a_clock_that_was_set_back_makes_all_of_a_long_log_be_read(tmp_path, read):
    sent = some_messages(300)
    # The second half is stored an hour before the first.
    sent[150:] = [
        replace(each, store_timestamp_ms=each.store_timestamp_ms - 3_600_000) for each in sent[150:]
    ]
    made = make_store(tmp_path / "store", sent, segment_bytes=SEGMENT_BYTES)
    begin, end = made.records[-20].store_timestamp_ms, made.records[-10].store_timestamp_ms
    found = found_in(made, begin=begin, end=end)
    assert offsets(found) == expected(made, begin, end)
    assert (found.relies_on, read) == ((), [(None, None)])


def test_a_file_that_does_not_begin_with_a_message_makes_all_of_a_long_log_be_read(made, read):
    flip(made.segment_path(files(made)[3]), 4)
    begin, end = of_file(made, 1)
    found = found_in(made, begin=begin, end=end)
    assert offsets(found) == expected(made, begin, end)
    assert not found.complete
    assert read == [(None, None)]


def test_a_file_that_a_broker_has_made_in_advance_is_no_obstacle(made, read):
    after = files(made)[-1] + SEGMENT_BYTES
    (made.path / "commitlog" / f"{after:020d}").write_bytes(bytes(SEGMENT_BYTES))
    begin, end = of_file(made, 2)
    assert offsets(found_in(made, begin=begin + 1, end=end)) == expected(made, begin + 1, end)
    assert read == [(files(made)[2], files(made)[3])]


def test_a_missing_file_in_the_part_makes_the_answer_incomplete_and_elsewhere_not(made):
    made.segment_path(files(made)[2]).unlink()
    begin, end = of_file(made, 1)
    # Whether the file that is missing has messages of these times is not known.
    assert not found_in(made, begin=begin, end=end).complete
    begin, end = of_file(made, 4)
    elsewhere = found_in(made, begin=begin + 1, end=end)
    assert offsets(elsewhere) == expected(made, begin + 1, end)
    assert elsewhere.complete


def test_a_scan_of_a_time_range_reads_the_same_part_and_relies_on_the_same(made, read):
    begin, end = of_file(made, 2)
    with rocketlens.open_store(made.path) as store:
        scan = store.scan(begin=begin + 1, end=end)
        assert offsets(scan) == expected(made, begin + 1, end)
        whole = store.scan(begin=begin + 1, end=end, exhaustive=True)
        assert offsets(whole) == expected(made, begin + 1, end)
    assert read == [(files(made)[2], files(made)[3]), (None, None)]
    assert scan.complete
    assert [each.relies_on for each in scan.coverage if each.relies_on]
    assert not [each.relies_on for each in whole.coverage if each.relies_on]


@pytest.mark.parametrize(
    ("part", "left_out"),
    [
        (LogPart(5), "before physical offset 5"),
        (LogPart(stop=9), "from physical offset 9 on"),
        (LogPart(5, 9), "before physical offset 5 and from physical offset 9 on"),
    ],
)
def test_a_part_names_what_of_the_log_it_leaves_out(part, left_out):
    assert part.relies_on == (
        "store times rise along the log, as those of its files' first messages do: what is "
        f"{left_out} was not read (an exhaustive search reads it)"
    )
    assert LogPart().relies_on is None


# Within a file.

LONG_SEGMENT_BYTES = 1 << 18


@pytest.fixture
def fine(monkeypatch):
    """Samples of files are near one another."""
    monkeypatch.setattr(newest, "_GRAIN_BYTES", 1024)


def made_long(path, sent, **options):
    return make_store(path / "store", sent, segment_bytes=LONG_SEGMENT_BYTES, **options)


@pytest.mark.usefixtures("fine")
@pytest.mark.parametrize("with_queues", [True, False])
def test_of_a_file_only_what_can_have_messages_of_the_times_is_read(tmp_path, read, with_queues):
    made = made_long(tmp_path, some_messages(2_000), with_queues=with_queues)
    assert made.records[-1].physical_offset > LONG_SEGMENT_BYTES
    chosen = random.Random(7)
    span = 137 * len(made.records)
    for _ in range(60):
        begin = NOW_MS + chosen.randrange(-1_000, span + 1_000)
        end = begin + chosen.choice([0, 137, 5_000, 100_000])
        times = {"begin": begin, "end": end}
        for name in chosen.sample(("begin", "end"), chosen.choice([0, 0, 0, 1])):
            del times[name]
        read.clear()
        found = found_in(made, **times)
        low, high = times.get("begin", 0), times.get("end", limits.MAX_TIMESTAMP_MS)
        assert (offsets(found), found.complete) == (expected(made, low, high), True)
        if len(times) == 2:
            [(start, stop)] = read
            bytes_read = (stop or made.records[-1].physical_offset) - (start or 0)
            # A second is 7 messages of some 300 bytes.
            assert bytes_read < 300 * (end - begin) / 137 + 12_000


@pytest.mark.usefixtures("fine")
def test_a_clock_that_was_set_back_by_less_than_a_second_hides_no_message(tmp_path):
    sent = some_messages(1_000)
    set_back = [
        replace(each, store_timestamp_ms=each.store_timestamp_ms - (900 if number > 400 else 0))
        for number, each in enumerate(sent)
    ]
    made = made_long(tmp_path, set_back)
    for number in range(380, 420):
        at = made.records[number].store_timestamp_ms
        found = found_in(made, begin=at, end=at)
        assert offsets(found) == expected(made, at, at)


@pytest.mark.usefixtures("fine")
def test_a_file_in_which_samples_go_back_is_read_whole(tmp_path, read):
    sent = some_messages(1_000)
    set_back = [
        replace(each, store_timestamp_ms=each.store_timestamp_ms - (60_000 if n > 400 else 0))
        for n, each in enumerate(sent)
    ]
    made = made_long(tmp_path, set_back)
    begin = made.records[500].store_timestamp_ms
    found = found_in(made, begin=begin, end=begin + 200)
    assert offsets(found) == expected(made, begin, begin + 200)
    files = {None, *range(0, 2 * LONG_SEGMENT_BYTES, LONG_SEGMENT_BYTES)}
    assert set(read[-1]) <= files


@pytest.mark.usefixtures("fine")
def test_damage_where_a_sample_would_be_hides_no_message_but_itself(tmp_path):
    made = made_long(tmp_path, some_messages(1_000))
    for record in made.records[100:900:3]:
        flip(made.segment_path(record.physical_offset), record.physical_offset + 4)
    begin, end = NOW_MS + 137 * 300, NOW_MS + 137 * 310
    found = found_in(made, begin=begin, end=end)
    sound = [
        each.physical_offset
        for number, each in enumerate(made.records)
        if begin <= each.store_timestamp_ms <= end and (number - 100) % 3
    ]
    assert offsets(found) == sound
    assert not found.complete


@pytest.mark.usefixtures("fine")
def test_a_record_in_a_body_is_no_sample(tmp_path):
    sent = some_messages(600)
    # Of any time: were it believed, the range would be taken to begin behind it.
    inner = replace(sent[0], store_timestamp_ms=NOW_MS + 10_000_000, body=b"inner")
    made = made_long(tmp_path / "plain", sent)
    around = b"." * 1_000
    for number in range(190, 210, 5):
        offset = made.records[number].physical_offset
        sent[number] = forged(sent[number], offset, around, around, inner)
        made = made_long(tmp_path / str(number), sent)
    begin, end = NOW_MS + 137 * 200, NOW_MS + 137 * 205
    found = found_in(made, begin=begin, end=end)
    assert offsets(found) == expected(made, begin, end)


@pytest.mark.usefixtures("fine")
@pytest.mark.parametrize("with_queues", [True, False])
def test_the_newest_of_a_time_do_not_need_all_of_the_log_behind_the_queues(
    tmp_path, read, with_queues
):
    made = made_long(tmp_path, some_messages(2_000), with_queues=with_queues)
    begin, end = NOW_MS + 137 * 700, NOW_MS + 137 * 800
    found = found_in(made, topic="Topic1", begin=begin, end=end, max_num=5)
    of_topic = [
        each.physical_offset
        for each in made.records
        if each.topic == "Topic1" and begin <= each.store_timestamp_ms <= end
    ]
    assert (offsets(found), found.truncated, found.complete) == (of_topic[-5:], True, True)
    assert all((start or 0) > 0 and stop is not None for start, stop in read)

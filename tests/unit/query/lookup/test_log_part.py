"""A range of times in a long log: the files that can have its messages are read, as is said."""

from dataclasses import replace

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.query.lookup import by_time
from rocketlens.query.lookup.newest import LogPart
from tests.support.made_stores import flip, make_store, some_messages

SEGMENT_BYTES = 8192


@pytest.fixture(autouse=True)
def every_log_is_long(monkeypatch):
    monkeypatch.setattr(limits, "MAX_INTERPRETED_SCAN_BYTES", 0)
    monkeypatch.setattr(limits, "MAX_NEWEST_SCAN_BYTES", -1)


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

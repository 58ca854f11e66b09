"""Notes on an answer: verdict, damage, failures."""

import pytest

from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState, hint
from rocketlens.terminal.notes import lines_of


def coverage(state, error=None, source="index/1"):
    return Coverage(source, SourceKind.INDEX_FILE, state, None, error)


@pytest.mark.parametrize(
    ("count", "begin"), [(0, "nothing found, COMPLETE"), (1, "1 message, "), (2, "2 messages, ")]
)
def test_the_first_line_has_the_count_and_the_verdict(count, begin):
    searched = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    answer = Answer("k", (), (searched,))
    (line,) = lines_of(answer, count)
    assert line.startswith(begin)
    assert line.endswith("searched broker-a")


def test_what_an_answer_relies_on_is_said_with_the_option_that_reads_it():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, relies_on="an order"),))
    _, relies_on, option = lines_of(answer, 0)
    assert relies_on == "assumed, not read in full: an order"
    assert "find --exhaustive" in option


def test_hints_on_messages_that_were_found_are_counted_and_printed_with_verbose():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    left_out = hint("topics", "3 system messages left out")
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, relies_on="an order"), left_out))
    (line,) = lines_of(answer, 2)
    assert line == "2 messages, COMPLETE: searched broker-a (-v: 3 notes)"
    assert "topics: 3 system messages left out" in lines_of(answer, 2, verbose=True)
    failed = Answer("k", (), (*answer.coverage, coverage(SourceState.FAILED, "cut short")))
    assert "topics: 3 system messages left out" in lines_of(failed, 2)


def test_a_failure_is_named_and_makes_the_answer_incomplete():
    failed = coverage(SourceState.FAILED, "cut\x1b short")
    lines = list(lines_of(Answer("k", (), (failed,)), 0))
    assert "INCOMPLETE" in lines[0]
    assert "failed: index/1: cut\\x1b short" in lines
    assert "exit code 3" in lines[-1]


def test_damage_that_did_not_matter_is_said_to_be_so():
    damaged = coverage(SourceState.DAMAGED, "bad header")
    searched = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    lines = list(lines_of(Answer("k", (), (searched, damaged)), 0))
    assert "damaged, and not needed for this answer: index/1: bad header" in lines


def test_a_long_list_is_cut_and_counted():
    failed = tuple(coverage(SourceState.FAILED, "x", f"index/{n}") for n in range(50))
    lines = list(lines_of(Answer("k", (), failed), 0))
    assert len(lines) < 30
    assert "failed: 30 more (all of them: -o json)" in lines


def test_of_an_incomplete_answer_damage_is_not_said_to_be_unneeded():
    damaged = coverage(SourceState.DAMAGED, "its entry 0 leads to a bad record")
    failed = coverage(SourceState.FAILED, "bad checksum", "commitlog")
    lines = list(lines_of(Answer("k", (), (damaged, failed)), 0))
    assert "damaged: index/1: its entry 0 leads to a bad record" in lines


def test_the_time_that_was_searched_has_its_zone():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, 1_700_000_000_000),))
    (line,) = lines_of(answer, 0)
    assert line.partition(", up to ")[2][-6] in "+-"


def test_a_consume_queue_that_is_not_there_is_not_said_to_be_searched():
    queue = hint("consumequeue/T/9", "it has no files: the log was read", SourceKind.CONSUME_QUEUE)
    broker = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    first, *others = lines_of(Answer("k", (), (broker, queue)), 0)
    assert "consumequeue" not in first
    assert "consumequeue/T/9: it has no files: the log was read" in others


def test_a_gap_between_an_archive_and_what_brokers_still_hold_is_said():
    def notes(begin_ms):
        broker = Coverage("b", SourceKind.BROKER, SourceState.SEARCHED, held_from_ms=begin_ms)
        archive = Coverage(
            "lake", SourceKind.ARCHIVE, SourceState.SEARCHED, 2_000_000, held_from_ms=1_000_000
        )
        return list(lines_of(Answer("q", (), (archive, broker)), 0))

    _, held, gap = notes(3_000_000)
    assert held.startswith("b: from ")
    assert gap.startswith("gap: of ")
    assert len(notes(1_500_000)) == 2

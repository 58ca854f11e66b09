"""Which messages a command passes on; `test_export` has what it reads."""

from argparse import ArgumentParser

import pytest

from rocketlens.cli.source import add_selection, selected
from rocketlens.errors import BadInput
from tests.support.made_stores import make_store, some_messages


def selection(*words):
    parser = ArgumentParser()
    add_selection(parser)
    return selected(parser.parse_args(words))


def test_everything_is_selected_unless_something_is_asked_for():
    assert (selection().text, selection().topics, selection().begin) == (None, (), None)
    request = selection("-t", "A,B", "-t", "C", "-k", "K", "--since", "2026-11-20T00:00Z")
    assert (request.text, request.kind, request.topics) == ("K", "key", ("A", "B", "C"))
    assert (request.begin, request.all_topics) == (1_795_132_800_000, True)


def test_a_filter_is_a_part_of_what_is_asked_for():
    request = selection("--where", "key = 'K' AND body.$.a = 1", "-t", "A")
    assert (request.text, request.topics) == ("K", ("A",))
    assert selection("--grep", "x", "--grep-in", "keys, body").content.grep_in == {
        "keys",
        "body",
    }
    with pytest.raises(BadInput, match="filter, character 2"):
        selection("--where", "(")
    with pytest.raises(BadInput, match="give --grep, too"):
        selection("--grep-in", "keys")


def test_times_in_the_wrong_order_are_refused():
    with pytest.raises(BadInput, match="--since is after --until"):
        selection("--since", "2026-11-21", "--until", "2026-11-20")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("find", "-o", "jsonl"), id="find"),
        pytest.param(("export", "OUT"), id="export"),
        pytest.param(("sql", "SELECT queue_offset FROM messages"), id="sql"),
    ],
)
def test_a_range_of_times_in_a_long_log_says_what_it_relies_on_unless_all_is_read(
    run, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -1)
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=8192)
    words = [str(tmp_path / "out.csv") if each == "OUT" else each for each in command]
    options = ("--store", made.path, "--since", made.records[150].store_timestamp_ms)
    done = run(*words, *options)
    assert done.code == 0, done.err
    assert "store times" not in done.err
    assert "(-v: 2 notes)" in done.err
    again = ("--overwrite",) if "OUT" in command else ()
    done = run(*words, *options, "-v", *again)
    assert "store times rise along the log" in done.err
    whole = run(*words, *options, "-v", "--exhaustive", *again)
    assert whole.code == 0, whole.err
    assert "store times rise" not in whole.err
    assert whole.out == done.out

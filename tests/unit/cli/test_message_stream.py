"""Which messages a command passes on; `test_export` has what it reads."""

from argparse import ArgumentParser

import pytest

from rocketlens.cli.source import MessageSelection, add_selection, selection_of
from rocketlens.errors import BadInput
from tests.support.made_stores import make_store, some_messages


def selection(*words):
    parser = ArgumentParser()
    add_selection(parser)
    return selection_of(parser.parse_args(words))


def test_everything_is_selected_unless_something_is_asked_for():
    assert selection() == MessageSelection()
    assert selection("-t", "A,B", "-t", "C", "-k", "K", "--since", "2026-11-20T00:00Z") == (
        ("A,B", "C"),
        1_795_132_800_000,
        None,
        "K",
        {},
        False,
    )


def test_a_filter_is_a_part_of_what_is_asked_for():
    request = selection("--where", "key = 'K' AND body.$.a = 1", "-t", "A").request()
    assert (request.text, request.topics) == ("K", ("A",))
    assert selection("--grep", "x", "--grep-in", "keys, body").request().content.grep_in == {
        "keys",
        "body",
    }
    with pytest.raises(BadInput, match="filter, character 2"):
        selection("--where", "(").request()
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
    assert "store times rise along the log" in done.err
    whole = run(*words, *options, "--exhaustive", *(("--overwrite",) if "OUT" in command else ()))
    assert whole.code == 0, whole.err
    assert "store times rise" not in whole.err
    assert whole.out == done.out

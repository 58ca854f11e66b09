"""Which messages a command passes on; `test_export` has what it reads."""

from argparse import ArgumentParser

import pytest

from rocketlens.cli.message_stream import MessageSelection, add_selection, selection_of
from rocketlens.errors import BadInput


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

"""Command lines: help that is short where it can be, complaints in one line."""

import pytest

from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.command_parser import CommandParser


@pytest.fixture
def parser():
    made = CommandParser(prog="tool", epilog="exit codes: 0")
    made.add_argument("--store", help="100%% of it")
    return made


def test_examples_stand_before_the_end_of_the_help(parser):
    parser.add_examples("\ntool --store x  # look at x\n")
    assert parser.format_help().endswith(
        "\n\nexamples:\n  # look at x\n  tool --store x\n\nexit codes: 0\n"
    )


def test_no_examples_leave_the_help_as_it_is(parser):
    before = parser.format_help()
    parser.add_examples("")
    assert parser.format_help() == before


def test_folded_options_are_words_in_the_usage_line_and_explained_below(parser):
    actions = [parser.add_argument("--key"), parser.add_argument("--secret", help="5 %% of it")]
    parser.fold(actions, "access options")
    assert parser.format_usage() == (
        "usage: tool [-h] [--store STORE]\n            [access options]\n"
    )
    text = parser.format_help()
    assert text.startswith(parser.format_usage())
    assert "--secret SECRET" in text


@pytest.mark.parametrize(
    ("unknown", "said"),
    [
        (["--stroe=x"], "unrecognized arguments: --stroe=x; did you mean --store?"),
        (["x", "--y"], "unrecognized arguments: x --y"),
        (["z" * 1_000], "unrecognized arguments: " + "z" * 276),
    ],
)
def test_arguments_are_refused_in_one_line(parser, capsys, unknown, said):
    with pytest.raises(SystemExit) as done:
        parser.refuse_arguments(unknown)
    assert done.value.code == 2
    assert capsys.readouterr().err == f"rocketlens: {said} (see tool --help)\n"


def test_an_abbreviation_is_not_taken_for_an_option(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--sto", "x"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_words_that_resemble_none_have_no_suggestion():
    assert suggestion("qqqq", ["find", "show"]) == ""
    assert suggestion("Fnid", ["find", "show"]) == "; did you mean find?"


@pytest.mark.parametrize("value", ["-2h", "-1d12h", "-.5h", "-1"])
def test_a_value_can_begin_with_a_minus_and_a_digit(parser, value):
    assert parser.parse_args(["--store", value]).store == value
    assert parser.parse_args([f"--store={value}"]).store == value


def test_what_begins_with_a_minus_and_a_letter_is_an_option(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--store", "-h2"])
    assert "expected one argument" in capsys.readouterr().err

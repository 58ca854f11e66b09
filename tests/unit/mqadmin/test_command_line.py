"""Command lines mean what Commons CLI makes of them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.mqadmin.command_line import COMMON, check_required, parse
from rocketlens.mqadmin.commands import COMMANDS
from rocketlens.mqadmin.run import OURS, command_named

OPTIONS = (*COMMON, *command_named("queryMsgByUniqueKey").options)
VALUES = st.text(min_size=1).filter(lambda text: not text.startswith(("-", "=", '"')))


@given(VALUES, st.sampled_from(["-t {}", "-t{}", "-t={}", "--topic {}", "--topic={}", "-topic {}"]))
def test_every_form_of_an_option_gives_its_value(value, form):
    before, space, after = form.partition(" ")
    words = [before, after.format(value)] if space else [form.format(value)]
    if form == "-t{}" and "topic".startswith(value.partition("=")[0][:4].join(["t", ""])):
        return  # -to is the long name cut short, there as here
    assert parse(OPTIONS, words).text("t") == value.strip()


@given(st.lists(st.text(max_size=12), max_size=8), st.sampled_from(COMMANDS))
def test_any_words_are_read_or_refused(words, command):
    with suppress(BadInput):
        parse((*COMMON, *command.options), words)


def test_a_long_name_may_be_cut_short_and_a_doubtful_one_is_refused():
    assert parse(OPTIONS, ["--top", "T", "--show"]).text("t") == "T"
    with pytest.raises(BadInput, match="Ambiguous option"):
        parse(OPTIONS, ["--c", "x"])


def test_our_own_options_take_nothing_from_the_real_tools_command_lines():
    options = (*OURS, *COMMON, *command_named("topicRoute").options)
    found = parse(options, ["--l", "-tls", "--layout", "4.9", "--tls", "--context=prod"])
    assert "l" in found
    assert found.text("t") == "ls"
    assert (found.text("layout"), found.text("context"), "tls" in found) == ("4.9", "prod", True)
    for word in ("--lay", "--cont", "-context"):
        with pytest.raises(BadInput, match="Unrecognized option"):
            parse(options, [word, "x"])
    with pytest.raises(BadInput, match="Missing argument for option: context"):
        parse(options, ["--context", "--tls"])


def test_topic_and_group_are_those_of_the_namespace():
    found = parse(OPTIONS, ["-t", " Orders ", "-g", "%RETRY%g", "-i", "Orders"]).in_namespace("ns")
    assert [found.text(letter) for letter in "tgi"] == ["ns%Orders", "%RETRY%ns%g", "Orders"]


def test_flags_stand_together_with_an_option_that_takes_a_value():
    found = parse(OPTIONS, ["-ahtOrders"])
    assert "a" in found
    assert "h" in found
    assert found.text("t") == "Orders"


def test_negative_numbers_and_unknown_options_are_values():
    found = parse(OPTIONS, ["-i", "-5", "-t", "-xyz"])
    assert (found.text("i"), found.text("t")) == ("-5", "-xyz")


def test_quotation_marks_around_a_value_are_taken_off_and_the_first_value_counts():
    assert parse(OPTIONS, ["-t", '"A B"', "-t", "C"]).text("t") == "A B"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-t"], "Missing argument for option: t"),
        (["-t", "-i", "x"], "Missing argument for option: t"),
        (["-z", "x"], "Unrecognized option: -z"),
        (["--zone", "x"], "Unrecognized option: --zone"),
        (["-t", "T", "more"], "'more' does not belong to an option"),
    ],
)
def test_a_wrong_command_line_is_refused_in_the_words_of_the_real_tool(words, text):
    with pytest.raises(BadInput, match=text):
        parse(OPTIONS, words)


def test_what_is_missing_is_named():
    with pytest.raises(BadInput, match="Missing required options: i, t"):
        check_required(OPTIONS, parse(OPTIONS, []))
    options = command_named("updateTopic").options
    with pytest.raises(BadInput, match="give exactly one of -b, -c"):
        check_required(options, parse(options, ["-t", "T"]))

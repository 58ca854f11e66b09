"""Finding a command, its help, and layouts."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.mqadmin.commands import COMMANDS
from rocketlens.mqadmin.run import command_list, command_named, usage_of
from tests.unit.mqadmin.printed_by_rocketmq import printed


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    "name",
    ["printMsg", "queryMsgById", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey"],
)
def test_the_help_of_a_command_is_that_of_the_real_tool(golden, version, name):
    expected = printed(golden, version, f"help-{name}")
    assert usage_of(command_named(name.upper()), version[:3]) == f"{expected}\n"


def test_a_command_is_found_in_any_case_and_an_unknown_one_refused():
    assert command_named("QUERYMSGBYID").name == "queryMsgById"
    with pytest.raises(BadInput, match="The sub command nonsense not exist"):
        command_named("nonsense")


@pytest.mark.parametrize("words", [(), ("help",), ("--layout", "4.9", "help")])
def test_help_lists_every_command_and_asks_no_cluster(run, words):
    done = run("mqadmin", *words)
    assert (done.code, done.err) == (0, "")
    assert done.out == command_list("4.9" if words[1:] else "5.5")
    assert all(command.name in done.out for command in COMMANDS)


@pytest.mark.parametrize(
    "words", [("--layout", "6", "topicList"), ("topicList", "--layout", "6"), ("--layout", "6")]
)
def test_an_unknown_layout_is_refused(run, words):
    done = run("mqadmin", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected 4.9 or 5.5" in done.err


def test_a_wrong_option_points_to_the_help_of_the_command(run):
    done = run("mqadmin", "topicroute", "-t", "T", "--nonsense", "x")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "rocketlens mqadmin help topicRoute" in done.err

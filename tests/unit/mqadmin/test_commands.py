"""The commands and their options are those of RocketMQ's tools."""

from pathlib import Path

import pytest

from rocketlens.mqadmin.command_line import check_required, parse
from rocketlens.mqadmin.commands import COMMANDS
from rocketlens.mqadmin.run import command_named, usage_of


def test_query_msg_by_id_needs_no_topic():
    options = command_named("queryMsgById").options
    check_required(options, parse(options, ["-i", "00"]))


@pytest.mark.parametrize("layout", ["4.9", "5.5"])
def test_the_help_of_every_command_that_the_real_tools_know_is_theirs(layout):
    texts = Path(__file__).with_name("printed").joinpath(f"help-{layout}.txt").read_text()
    # They have the class of decodeMessageId, but no longer know its name.
    # The help of commands about access has tests of its own.
    known = [each for each in COMMANDS if each.name != "decodeMessageId" and each.namespaced]
    assert "".join(usage_of(command, layout) for command in known) == texts

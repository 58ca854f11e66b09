"""The commands and their options are those of RocketMQ's tools."""

from pathlib import Path

import pytest

from rocketlens.errors import BadInput
from rocketlens.mqadmin.command_line import check_required, parse
from rocketlens.mqadmin.commands import COMMANDS, ONLY_REAL
from rocketlens.mqadmin.run import command_named, usage_of

NOT_IN_4_9 = {"haStatus", "dumpCompactionLog", "setConsumeMode"}


def test_a_command_that_only_the_real_tool_has_is_named_so():
    for name in ("updateKvConfig", "ADDBROKER"):
        with pytest.raises(BadInput, match="RocketMQ's mqadmin has it, this one does not"):
            command_named(name)
    assert not {each.name for each in COMMANDS} & set(ONLY_REAL)


def test_query_msg_by_id_needs_no_topic():
    options = command_named("queryMsgById").options
    check_required(options, parse(options, ["-i", "00"]))


@pytest.mark.parametrize("layout", ["4.9", "5.5"])
def test_the_help_of_every_command_that_the_real_tools_know_is_theirs(layout):
    texts = Path(__file__).with_name("printed").joinpath(f"help-{layout}.txt").read_text()
    # They have the class of decodeMessageId, but no longer know its name.
    # The help of commands about access has tests of its own.
    unknown = {"decodeMessageId"} | (NOT_IN_4_9 if layout == "4.9" else set())
    known = [each for each in COMMANDS if each.name not in unknown and each.namespaced]
    assert "".join(usage_of(command, layout) for command in known) == texts

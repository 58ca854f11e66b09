from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands.messages import PULL_MESSAGE, SEND_BATCH_MESSAGE
from tests.support.wire_samples import COMMANDS


def test_commands_are_found_by_their_code():
    assert COMMANDS[RequestCode.PULL_MESSAGE] is PULL_MESSAGE
    assert COMMANDS[RequestCode(320)] is SEND_BATCH_MESSAGE
    for code, command in COMMANDS.items():
        assert command.code is code
    assert repr(PULL_MESSAGE) == "Command(PULL_MESSAGE)"

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands import COMMANDS, pull, send


def test_commands_are_found_by_their_code():
    assert COMMANDS[RequestCode.PULL_MESSAGE] is pull.PULL_MESSAGE
    assert COMMANDS[RequestCode(320)] is send.SEND_BATCH_MESSAGE
    for code, command in COMMANDS.items():
        assert command.code is code
    assert repr(pull.PULL_MESSAGE) == "Command(PULL_MESSAGE)"

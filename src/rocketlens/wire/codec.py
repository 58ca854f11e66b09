"""Commands to frames and back, whichever header codec a frame names."""

from rocketlens.errors import HeaderError
from rocketlens.wire import frame, header_binary, header_json
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.frame import BINARY_CODEC, JSON_CODEC, Frame


def decode(received: Frame) -> RemotingCommand:
    """Parse the command in a frame.

    :raises HeaderError: when the header's codec is unknown, or cannot read it; nothing else is
        raised, whatever the bytes.
    """
    codec, header, body = received
    if codec == JSON_CODEC:
        return header_json.decode(header, body)
    if codec == BINARY_CODEC:
        return header_binary.decode(header, body)
    raise HeaderError(f"a header of the unknown codec {codec}")


def encode(command: RemotingCommand, codec: int = JSON_CODEC) -> bytes:
    """Write a command as a frame.

    :raises BadInput: when a text in it is no Unicode, a number does not fit, or the frame would
        be over 16 MiB.
    """
    encode_header = header_binary.encode if codec == BINARY_CODEC else header_json.encode
    return frame.encode(encode_header(command), command.body, codec)

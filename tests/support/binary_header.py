"""Commands with the binary header, which RocketMQ's clients can write and RocketLens only reads."""

import struct

from rocketlens.errors import BadInput
from rocketlens.wire import frame, header_json
from rocketlens.wire.header_binary import HEAD, LENGTH, NAME_LENGTH, decode

__all__ = ["decode", "encode", "encode_command"]


def encode(command):
    """The header of a command; BadInput when a number does not fit, or a text is not Unicode."""
    try:
        remark = (command.remark or "").encode()
        parts = []
        for name, value in command.ext_fields.items():
            name_bytes, value_bytes = name.encode(), value.encode()
            parts += (NAME_LENGTH.pack(len(name_bytes)), name_bytes)
            parts += (LENGTH.pack(len(value_bytes)), value_bytes)
        ext = b"".join(parts)
        numbers = command.code, command.language, command.version, command.opaque, command.flag
        head = HEAD.pack(*numbers, len(remark))
    except (struct.error, UnicodeEncodeError) as error:
        raise BadInput(f"a header that the binary codec cannot write: {error}") from None
    return head + remark + LENGTH.pack(len(ext)) + ext


def encode_command(command, codec=frame.JSON_CODEC):
    """The frame of a command, with either header."""
    header = encode(command) if codec == frame.BINARY_CODEC else header_json.encode(command)
    return frame.encode(header, command.body, codec)

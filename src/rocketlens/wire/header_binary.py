"""The binary header of a command, which RocketMQ calls ROCKETMQ; it is only read.

======  =====  ================  ===========================================================
offset  type   field             notes
======  =====  ================  ===========================================================
0       i16    code
2       i8     language          a number of LanguageCode; others are read as OTHER
3       i16    version
5       i32    opaque
9       i32    flag              bit 0 response, bit 1 one-way
13      i32+n  remark            0 bytes: none
17+n    i32+m  ext_fields        one after another: name i16+n, value i32+n
======  =====  ================  ===========================================================

All integers are big-endian and signed; text is UTF-8. An empty value is absent in RocketMQ 5 and
empty in 4; here it is empty.

Drawbacks: codes above 32,767 do not fit. A name can come twice, and the last one counts: a Java
client of 5.x that signs its requests writes every field twice. Source: ``RocketMQSerializable``.
"""

import struct
from typing import Final

from rocketlens import limits
from rocketlens.errors import HeaderError
from rocketlens.model.text.java import decode_utf8
from rocketlens.wire.codes import LANGUAGE_OF_NUMBER, LanguageCode
from rocketlens.wire.command import RemotingCommand

HEAD: Final = struct.Struct(">hbhiii")
"""code .. length of the remark: 17 bytes."""
LENGTH: Final = struct.Struct(">i")
NAME_LENGTH: Final = struct.Struct(">h")


def decode(header: bytes, body: bytes = b"") -> RemotingCommand:
    """Read a header; raise HeaderError, and no other error, if the bytes are invalid."""
    try:
        code, language, version, opaque, flag, remark_length = HEAD.unpack_from(header)
        cursor = HEAD.size + remark_length
        (ext_length,) = LENGTH.unpack_from(header, cursor)
        if remark_length < 0 or ext_length != len(header) - cursor - LENGTH.size:
            raise HeaderError(f"header: impossible lengths {remark_length} and {ext_length}")
        remark = _text(header[HEAD.size : cursor]) if remark_length else None
        ext_fields = _read_ext_fields(header, cursor + LENGTH.size) if ext_length else {}
    except struct.error:
        raise HeaderError(f"header: truncated at {len(header)} bytes") from None
    spoken = LANGUAGE_OF_NUMBER.get(language, LanguageCode.OTHER)
    return RemotingCommand(code, opaque, flag, remark, ext_fields, body, spoken, version)


def _read_ext_fields(header: bytes, cursor: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    end = len(header)
    read = 0
    while cursor < end:
        name_start = cursor + NAME_LENGTH.size
        (name_length,) = NAME_LENGTH.unpack_from(header, cursor)
        name_end = name_start + name_length
        if name_length < 0:
            raise HeaderError(f"header: a name of {name_length} bytes")
        value_start = name_end + LENGTH.size
        (value_length,) = LENGTH.unpack_from(header, name_end)
        cursor = value_start + value_length
        if value_length < 0 or cursor > end:
            raise HeaderError(f"header: a value of {value_length} bytes")
        fields[_text(header[name_start:name_end])] = _text(header[value_start:cursor])
        read += 1
        if read > limits.MAX_EXT_FIELDS:
            raise HeaderError(f"header: more than {limits.MAX_EXT_FIELDS} fields")
    return fields


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return decode_utf8(encoded)

"""Java's text of times, hosts, numbers, maps and messages, in the layout of a release."""

import codecs
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from ipaddress import IPv6Address
from typing import Final

from msgspec import Struct

from rocketlens.errors import BadInput
from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.model.message import Host, MessageExt
from rocketlens.model.properties import TRANSACTION_PREPARED, java_order
from rocketlens.model.text.java import utf8_pieces
from rocketlens.terminal.output import time_text

NULL: Final = "null"
_PIECE: Final = 1 << 16
_SIGNED: Final = [str(byte - 256 if byte > 127 else byte) for byte in range(256)]
"""Bytes as Java prints them."""


class Form(Struct, frozen=True):
    """The release whose layout is printed; `shown` makes text of messages safe for terminals."""

    is_5: bool = True
    shown: Callable[[str], str] = str

    def sys_flag(self, message: MessageExt) -> int:
        """Return the flags as a client sees them: RocketMQ 5 clears one when it decompresses."""
        if self.is_5 and message.body_error is None:
            return message.sys_flag & ~COMPRESSED
        return message.sys_flag

    def properties(self, message: MessageExt) -> str:
        """Return properties as Java's ``HashMap`` prints them."""
        # Since RocketMQ 5.1 the map has a larger capacity, which changes its order.
        return self.shown(map_text(java_order(message.properties, 128 if self.is_5 else 16)))


def map_text(values: Mapping[str, str]) -> str:
    """Return ``{a=1, b=2}``."""
    return f"{{{', '.join(f'{name}={value}' for name, value in values.items())}}}"


def padded(text: str, width: int) -> str:
    """Pad on the right as Java does, counting UTF-16 units."""
    return text + " " * (width - _units(text))


def columns(cells: Iterable[object], widths: Sequence[int], gap: str = "  ") -> str:
    return gap.join(padded(str(each), width) for each, width in zip(cells, widths, strict=True))


def padded_left(text: str, width: int) -> str:
    """Pad on the left as Java does, counting UTF-16 units."""
    return " " * (width - _units(text)) + text


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def time_of(epoch_ms: int) -> str:
    """Return local time as ``2026-11-21 02:40:35,736``."""
    return time_text(epoch_ms).replace(".", ",")


def seconds_of(epoch_ms: int) -> str:
    """Return local time as ``2026-11-21 02:40:35``."""
    return time_text(epoch_ms).partition(".")[0]


def compact_time_of(epoch_ms: int) -> str:
    """Return local time as ``20261121024035736``."""
    return "".join(filter(str.isdigit, time_text(epoch_ms)))


def flag_text(value: object) -> str:
    return "true" if value else "false"


def host_of(host: Host) -> str:
    """Return a host as Java prints it: an IPv6 address without ``::`` and leading zeros."""
    if ":" not in host.address:
        return f"{host.address}:{host.port}"
    address = IPv6Address(host.address)
    if address.ipv4_mapped is not None:
        return f"{address.ipv4_mapped}:{host.port}"
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"[{groups}]:{host.port}"


def rounded(number: float, digits: int) -> str:
    """Return a number rounded half up, as by Java's formatter."""
    if math.isnan(number):
        return "NaN"
    step = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(number)).quantize(step, rounding=ROUND_HALF_UP))


def body_pieces(body: bytes, charset: str | None) -> Iterator[str]:
    """Decode a body of up to 64 MiB in pieces, replacing malformed bytes.

    :raises BadInput: if the charset is unknown.
    """
    if charset is None or charset.lower() in {"utf-8", "utf8"}:
        return utf8_pieces(body)
    try:
        b"".decode(charset)
        decoder = codecs.getincrementaldecoder(charset)("replace")
    except (LookupError, ValueError) as error:
        raise _unknown_charset(charset) from error
    return _decoded(body, decoder, charset)


def _decoded(body: bytes, decoder: codecs.IncrementalDecoder, charset: str) -> Iterator[str]:
    try:
        for start in range(0, len(body), _PIECE):
            yield decoder.decode(body[start : start + _PIECE])
        yield decoder.decode(b"", final=True)
    except ValueError as error:
        raise _unknown_charset(charset) from error


def _unknown_charset(charset: str) -> BadInput:
    return BadInput(f"unknown charset {charset[:40]!r}: expected UTF-8, GBK or another")


def message_pieces(form: Form, broker_name: str, message: MessageExt) -> Iterator[str]:
    """Yield the text of ``MessageExt.toString``; the bytes of the body are signed."""
    is_transaction = message.properties.get(TRANSACTION_PREPARED, "").lower() == "true"
    transaction = message.unique_key if is_transaction else None
    yield (
        f"MessageExt [brokerName={broker_name}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={form.sys_flag(message)}, bornTimestamp={message.born_timestamp_ms}, "
        f"bornHost=/{host_of(message.born_host)}, storeTimestamp={message.store_timestamp_ms}, "
        f"storeHost=/{host_of(message.store_host)}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{form.shown(message.topic)}', flag={message.flag}, "
        f"properties={form.properties(message)}, body={'[' if message.body else NULL}"
    )
    for start in range(0, len(message.body), _PIECE):
        numbers = ", ".join(map(_SIGNED.__getitem__, message.body[start : start + _PIECE]))
        yield f", {numbers}" if start else numbers
    end = "]" if message.body else ""
    yield f"{end}, transactionId='{form.shown(transaction or NULL)}'}}]"

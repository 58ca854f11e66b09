"""Handles plain pulls with compiled code, from the bytes of the request to those of the reply.

It handles codes 11 and 361 in either header format, with texts of printable ASCII, if
:mod:`rocketlens.broker.delivery.pull_reader` can answer at once. ``broker.requests.query`` handles
all other cases: refusals, pulls that could be held, resets, errors, and topics of copies under
access control. It also defines the result: this module returns the same bytes and changes the same
tables, or does nothing.
"""

import logging
from array import array
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rocketlens import limits
from rocketlens.broker.delivery.held_pulls import PullFields
from rocketlens.broker.delivery.pull_filter import PullRefused
from rocketlens.broker.delivery.pull_reader import FOUND, PullReader, response_fields
from rocketlens.formats.compiled import pull_constants as constants
from rocketlens.formats.compiled.pull import read_request
from rocketlens.formats.compiled.request_constants import CODE, F_SIGNATURE, F_USER, NUMBERS
from rocketlens.formats.compiled.request_names import name_cells, settings_without_body
from rocketlens.model.rocketmq import has_copies
from rocketlens.net.channel import Channel
from rocketlens.net.server import host_of
from rocketlens.wire import acl, frame, header_json
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.commands.messages import PULL_MESSAGE
from rocketlens.wire.connection import encode_command

if TYPE_CHECKING:
    from rocketlens.broker.access.control import AccessControl

_log: Final = logging.getLogger("rocketlens.broker")

CODES: Final = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE
_REQUEST_BYTES: Final = 4096
_MAX_TOGETHER_BYTES: Final = 64 * 1024
"""Replies to consecutive pulls are sent together up to this size."""
_MARK: Final = limits.MAX_INT


class CompiledPulls:
    """Handles plain pulls; see `net.Runs`."""

    def __init__(self, reader: PullReader, rights: "AccessControl | None" = None) -> None:
        """Load the kernel; in any thread. Without ``rights``, all pulls are permitted."""
        self._has_failed = False
        self._reader: Final = reader
        self._rights: Final = rights
        names = _field_names(is_signed=rights is not None)
        self._signed_order: Final = acl.signed_order(names)
        self._names: Final = name_cells([*names, *names])
        self._settings: Final = settings_without_body(*CODES)
        self._numbers: Final = array("q", bytes(8 * constants.REQUEST_NUMBERS))
        self._request: Final = np.frombuffer(self._numbers, np.int64)
        inbox = bytearray(_REQUEST_BYTES)
        self._inbox_view: Final = memoryview(inbox)
        self._inbox: Final = np.frombuffer(inbox, np.uint8)

    def take(
        self, channel: Channel, received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Answer pulls at the beginning of ``received``; see `net.Runs`."""
        frames = np.frombuffer(received, np.uint8)
        ends_at = perf_counter() + limits.MAX_TURN_S
        end = size = 0
        replies: list[bytes] = []
        try:
            while len(replies) < max_count and size < _MAX_TOGETHER_BYTES:
                reply_end = self._read(frames, end, len(frames))
                reply = self._reply(channel, received) if reply_end else None
                if reply is None:
                    break
                end = reply_end
                size += len(reply)
                replies.append(reply)
                if perf_counter() >= ends_at:
                    break
        finally:
            # The traceback of an error keeps this frame, but ``received`` must be released.
            del frames
        return len(replies), end, b"".join(replies)

    def answer(self, channel: Channel, received: bytes) -> bytes | None:
        """Return the reply to a single request; None if it needs another handler."""
        length = len(received)
        if length > _REQUEST_BYTES:
            return None
        self._inbox_view[:length] = received
        if self._read(self._inbox, 0, length) != length:
            return None
        return self._reply(channel, received)

    def _read(self, frames: Any, position: int, length: int) -> int:
        return read_request(frames, position, length, self._names, self._settings, self._request)

    def _reply(self, channel: Channel, received: bytes | memoryview) -> bytes | None:
        try:
            request = self._fields(received)
            if not self._is_permitted(request, channel, received):
                return None
            return self._pull(request, channel)
        except OSError:
            # For example, no file descriptor is free. The other handler reports it.
            return None
        except Exception:  # noqa: BLE001 - the other handler fails, too, and reports it
            if not self._has_failed:
                self._has_failed = True
                _log.warning("compiled code failed for a pull: pulls are slow", exc_info=True)
            return None

    def _is_permitted(
        self, request: PullFields, channel: Channel, received: bytes | memoryview
    ) -> bool:
        rights, numbers = self._rights, self._numbers
        if rights is None:
            return True
        signed = acl.signed_values(received, numbers, self._signed_order)
        if not signed.isascii() or has_copies(request.topic):
            return False
        user = acl.value_at(received, numbers, F_USER)
        code, host = numbers[NUMBERS + CODE], host_of(channel)
        secret = rights.secret_for(code, user, host, request.topic, request.consumer_group)
        if not secret:
            return secret is not None
        signature = acl.value_at(received, numbers, F_SIGNATURE) or b""
        return acl.is_signed(signed, signature, secret)

    def _pull(self, request: PullFields, channel: Channel) -> bytes | None:
        reader = self._reader
        try:
            reader.check_allowed(request, channel)
            pull_filter = reader.filter_of(request)
        except PullRefused:
            return None
        if reader.is_reset(request):
            return None
        found = reader.queue_of(request)
        result = reader.get(request, pull_filter, request.queue_offset, found)
        size = sum(map(len, result.slices))
        if result.code == ResponseCode.PULL_NOT_FOUND or size > limits.MAX_ANSWER_FRAME_BYTES:
            return None
        _, low, high = found
        opaque = self._numbers[constants.OPAQUE]
        if result.code == ResponseCode.SUCCESS:
            header = _FOUND % (result.next_offset, low, high, opaque)
            prefix = frame.PREFIX.pack(frame.MIN_LENGTH + len(header) + size, len(header))
            reply = b"".join((prefix, header, *result.slices))
        else:
            code, ext_fields, _, remark = reader.response(request, result)
            reply = encode_command(RemotingCommand(code, opaque, RESPONSE_FLAG, remark, ext_fields))
        reader.commit(request)
        reader.count(result)
        return reply

    def _fields(self, received: bytes | memoryview) -> PullFields:
        numbers = self._numbers[constants.VALUES : constants.REQUEST_NUMBERS]
        queue_id, queue_offset, max_nums, flag, commit, suspend_ms = numbers[:6]
        version, max_bytes, group, group_bytes, topic, topic_bytes = numbers[6:12]
        wanted, wanted_bytes, kind, kind_bytes = numbers[12:]
        return PullFields(
            str(received[group : group + group_bytes], "ascii"),
            str(received[topic : topic + topic_bytes], "ascii"),
            *(queue_id, queue_offset, max_nums, flag, commit, suspend_ms),
            None if wanted_bytes < 0 else str(received[wanted : wanted + wanted_bytes], "ascii"),
            version,
            None if kind_bytes < 0 else str(received[kind : kind + kind_bytes], "ascii"),
            max_bytes,
        )


def _found_header() -> bytes:
    """Return the header of a reply with messages, as a format string for its numbers."""
    marks = "@1@", "@2@", "@3@"
    fields = response_fields(*marks)
    command = RemotingCommand(ResponseCode.SUCCESS, _MARK, RESPONSE_FLAG, FOUND, fields)
    header = header_json.encode(command).replace(b"%", b"%%")
    for mark in (*marks, str(_MARK)):
        header = header.replace(mark.encode(), b"%d")
    return header


_FOUND: Final = _found_header()


def _field_names(*, is_signed: bool) -> list[str | None]:
    """Return names in the kernel's order. Signed pulls have only fields of RocketMQ's consumers."""
    wire = PULL_MESSAGE.request.wire_names
    names: list[str | None] = [
        wire[name]
        for name in (
            *("queue_id", "queue_offset", "max_message_nums", "sys_flag", "commit_offset"),
            *("suspend_timeout_ms", "subscription_version", "max_message_bytes"),
            *("consumer_group", "topic", "subscription", "expression_type"),
        )
    ]
    names.insert(constants.NO_FIELD, None)
    if is_signed:
        return [*names, "bname", acl.ACCESS_KEY, acl.SIGNATURE]
    return [*names, "requestSource", "bname", "lo"]

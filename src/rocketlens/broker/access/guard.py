"""Checks each request before its handler runs, and logs refusals.

A refused request is answered, unless it is one-way. Large bodies are checked in a thread.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rocketlens.broker.access.needs import JSON_CODES
from rocketlens.broker.access.plain_rules import ADMIN_CODES
from rocketlens.model.text.escape import printable
from rocketlens.net.channel import Answer, Channel, Handler, Response
from rocketlens.net.pace import LARGE_BODY_BYTES, in_thread
from rocketlens.net.server import host_of
from rocketlens.wire.acl import ACCESS_KEY
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand

LARGE_SIGNED_BYTES: Final = 1024 * 1024
"""Larger bodies are checked in a thread: a signature of this many takes 1 ms."""
LINES_PER_S: Final = 20
"""Maximum log lines about refused requests in a second; the others are counted."""
_MAX_SHOWN: Final = 100
_NAMES: Final = {code.value: code.name for code in RequestCode}
AUDITED: Final = frozenset(
    {
        *ADMIN_CODES,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests of administrators: they change what others use, or read secrets."""

_log: Final = logging.getLogger("rocketlens.audit")


Decide = Callable[[RemotingCommand, str], Response | None]
"""Returns the refusal of a request from an address, or None. For any thread."""


class Audit:
    """Writes refused and administrators' requests to the log ``rocketlens.audit``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.refused = 0
        self._clock: Final = clock
        self._since_s = clock()
        self._lines = 0
        self._left_out = 0

    def refuse(self, command: RemotingCommand, channel: Channel, refusal: Response) -> None:
        """Write a line, or count the refusal if there were many in this second."""
        self.refused += 1
        now_s = self._clock()
        if now_s - self._since_s >= 1:
            self._since_s, self._lines = now_s, 0
        if self._lines >= LINES_PER_S:
            self._left_out += 1
            return
        self._lines += 1
        more = f" ({self._left_out} refusals before it are not shown)" if self._left_out else ""
        self._left_out = 0
        why = printable(refusal.remark or "")
        _log.warning("refused %s: %s%s", _request_text(command, channel), why, more)

    def admit(self, command: RemotingCommand, channel: Channel) -> None:
        _log.info("admitted %s", _request_text(command, channel))


def guard_handlers(
    handlers: Mapping[int, Handler], decide: Decide, audit: Audit
) -> dict[int, Handler]:
    """Return handlers that run only for admitted requests.

    Codes without a handler get one, too, so that clients without permission do not learn which
    codes are supported.
    """
    by_code = {**dict.fromkeys(map(int, RequestCode), _unsupported), **handlers}
    return {code: _guard(handler, decide, audit) for code, handler in by_code.items()}


def _guard(handler: Handler, decide: Decide, audit: Audit) -> Handler:
    def check(command: RemotingCommand, channel: Channel) -> Answer:
        if _is_large(command):
            return check_later(command, channel)
        return handled(decide(command, host_of(channel)), command, channel)

    def handled(refusal: Response | None, command: RemotingCommand, channel: Channel) -> Answer:
        if refusal is not None:
            audit.refuse(command, channel, refusal)
            return refusal
        if command.code in AUDITED:
            audit.admit(command, channel)
        return handler(command, channel)

    async def check_later(command: RemotingCommand, channel: Channel) -> Response | None:
        host = host_of(channel)
        refusal = await in_thread(lambda: decide(command, host), owner=channel)
        answer = handled(refusal, command, channel)
        return await answer if isinstance(answer, Awaitable) else answer

    return check


def _is_large(command: RemotingCommand) -> bool:
    size = len(command.body)
    return size > LARGE_BODY_BYTES and (size > LARGE_SIGNED_BYTES or command.code in JSON_CODES)


def _unsupported(command: RemotingCommand, _: Channel) -> Response:
    remark = f" request type {command.code} not supported"
    return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def _request_text(command: RemotingCommand, channel: Channel) -> str:
    user = command.ext_fields.get(ACCESS_KEY)
    shown = "nobody" if user is None else printable(user[:_MAX_SHOWN])
    name = _NAMES.get(command.code, "unknown")
    subject = next(
        (
            f" {name}={command.ext_fields[name][:_MAX_SHOWN]}"
            for name in _SUBJECTS
            if name in command.ext_fields
        ),
        "",
    )
    return f"{command.code} {name}{printable(subject)} of {shown} from {channel.address}"


_SUBJECTS: Final = (
    "username",
    "subject",
    "accessKey",
    "topic",
    "b",
    "groupName",
    "group",
    "consumerGroup",
)
"""Fields that name the object of a request in the log: the first present one."""

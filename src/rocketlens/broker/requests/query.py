"""Queries: by key, unique key or tag (12), and by offset in the log (33).

Only messages that match are returned, each once. RocketMQ's brokers also return those whose keys
have the same hash, which its clients then drop, and return a message twice that has a key twice. If
nothing was found and something could not be searched, the response is an error, never "not found".
Source: ``QueryMessageProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.lookup.look_up import FoundRecords, LookUp
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import NOT_SEARCHED, QUERY_MESSAGE, VIEW_MESSAGE_BY_ID

TAG_TYPE: Final = "T"
UNIQUE_TYPE: Final = "U"
NOT_FOUND: Final = "can not find message, maybe time range not correct"
_PICK: Final = QUERY_MESSAGE.request.picker(
    *("topic", "key", "max_num", "begin_timestamp_ms", "end_timestamp_ms"),
    *("is_unique_key", "index_type"),
)
_PICK_OFFSET: Final = VIEW_MESSAGE_BY_ID.request.picker("physical_offset")

Pending = Response | Awaitable[Response | None]


class QueryProcessor:
    """Answers queries by key (12) and by offset (33)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
        }

    def query(self, command: RemotingCommand, channel: Channel) -> Pending:
        """Return the newest messages of a topic that have a key, a unique key or a tag."""
        topic, key, max_num, begin_ms, end_ms, is_unique_key, kind = _PICK(command.ext_fields)
        config = self.core.config
        is_unique = is_unique_key or kind == UNIQUE_TYPE
        max_num = config.defaultQueryMaxNum if is_unique_key else max_num
        max_num = min(max_num, config.maxMsgsNumBatch)
        is_valid = 0 < len(key) <= limits.MAX_KEY_BYTES
        is_valid = is_valid and 0 < len(topic) <= limits.MAX_TOPIC_CHARACTERS
        if not is_valid or max_num <= 0:
            return self._answer(FoundRecords())
        is_tag = kind == TAG_TYPE and not is_unique
        access = self.core.access
        reader = None if access is None else access.reader_of(command, channel, topic)
        may_read = None if reader is None else reader.may_read
        begin = max(begin_ms, 0) or None
        message_filter = MessageFilter(
            topic=topic,
            key=None if is_unique or is_tag else key,
            unique_key=None if is_tag else key,
            begin=begin,
            end=end_ms,
            tags=frozenset({key}) if is_tag else None,
        )
        look_up = LookUp(message_filter, max_num, may_read)
        search = self.core.search
        records = (search.by_tag if is_tag else search.by_key)(look_up, channel)
        if isinstance(records, FoundRecords):
            return self._answer(records)
        return self._answer_later(records)

    async def _answer_later(self, records: asyncio.Future[FoundRecords]) -> Response | None:
        return self._answer(await records)

    def _answer(self, records: FoundRecords) -> Response:
        last = self.core.store.last_appended
        if records.count and last is not None:
            fields = {
                "indexLastUpdateTimestamp": str(last.store_timestamp_ms),
                "indexLastUpdatePhyoffset": str(last.physical_offset),
            }
            if records.failures:
                fields[NOT_SEARCHED] = records.failures[0][: limits.MAX_REMARK_CHARACTERS]
            return Response(ext_fields=fields, body=records.body)
        nothing = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        if records.failures:
            failure = records.failures[0][: limits.MAX_REMARK_CHARACTERS]
            remark = f"not everything could be searched: {failure}"
            return Response(ResponseCode.SYSTEM_ERROR, nothing, remark=remark)
        return Response(ResponseCode.QUERY_NOT_FOUND, nothing, remark=NOT_FOUND)

    def view(self, command: RemotingCommand, channel: Channel) -> Pending:
        """Return the record that begins at an offset of the log."""
        (offset,) = _PICK_OFFSET(command.ext_fields)
        return view_record(self.core, offset, command, channel)


def view_record(
    core: BrokerCore, offset: int, command: RemotingCommand, channel: Channel
) -> Pending:
    """Return the record that begins at an offset of the log as the body of an answer.

    ``command`` is the request for which it is read, which access control may refuse.
    """
    content = core.store.record(offset, 0)
    if content is None:
        return _no_record(offset)
    try:
        view = RecordView(content, 0, offset)
        view.check_crc()
    except RecordError as error:
        return _no_record(offset, f": {error}" if error.reason == "crc" else "")
    record = view.record()
    if core.access is not None:
        refusal = core.access.decide_reading(command, channel, record)
        if refusal is not None:
            return refusal
    is_start = core.search.is_record_start(record, channel)
    if isinstance(is_start, bool):
        return Response(body=bytes(content)) if is_start else _no_record(offset)
    return _view_later(is_start, offset, bytes(content))


async def _view_later(
    is_start: asyncio.Future[bool], offset: int, content: bytes
) -> Response | None:
    return Response(body=content) if await is_start else _no_record(offset)


def _no_record(offset: int, why: str = "") -> Response:
    remark = f"can not find message by the offset, {offset}{why}"
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)

"""Reads messages: pulls (11 and 361), queries (12), and by offset in the log (33).

:mod:`rocketlens.broker.delivery.pull_reader` reads the messages of a pull. A pull that would get
code 19 and can wait is held: :mod:`rocketlens.broker.delivery.held_pulls`. Compiled code handles
most pulls and queries, with the same results: :mod:`rocketlens.broker.delivery.compiled_pulls` and
:mod:`rocketlens.broker.lookup.compiled`.

A query by key, unique key or tag returns only matching messages, each once. RocketMQ's brokers also
return messages whose key has the same hash, which its clients drop, and return a message twice if
it has a key twice. If no message was found and a part could not be searched, the response is an
error, never "not found". Sources: ``PullMessageProcessor``, ``QueryMessageProcessor``.
"""

from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.held_pulls import HeldPull, PullFields
from rocketlens.broker.delivery.pull_filter import PullRefused
from rocketlens.broker.delivery.pull_reader import PullResult
from rocketlens.broker.lookup.look_up import FoundRecords, LookUp
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.net.channel import Channel, Response
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import messages as commands


def pull(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response | None:
    """Return messages, and commit an offset if requested; None if the pull is held."""
    request = PullFields.of(command.ext_fields)
    try:
        core.pull_reader.check_allowed(request, channel)
        pull_filter = core.pull_reader.filter_of(request)
    except PullRefused as refusal:
        return core.pull_reader.response(request, PullResult(refusal.remark, refusal.code, 0))
    if core.access is not None:
        reader = core.access.reader_of(command, channel, request.topic)
        pull_filter = pull_filter if reader is None else pull_filter._replace(reader=reader)
    moved = core.pull_reader.take_reset(request)
    if moved is not None:
        return core.pull_reader.response(request, moved)
    found = core.pull_reader.queue_of(request)
    result = core.pull_reader.get(request, pull_filter, request.queue_offset, found)
    core.pull_reader.commit(request)
    if (
        result.code == ResponseCode.PULL_NOT_FOUND
        and request.sys_flag & commands.SUSPEND_FLAG
        and not command.is_one_way
        and _hold(core, HeldPull(command, channel, request, pull_filter))
    ):
        return None
    core.pull_reader.count(result)
    return core.pull_reader.response(request, result)


def _hold(core: BrokerCore, pull: HeldPull) -> bool:
    config, timeout_ms = core.config, pull.request.suspend_timeout_ms
    if not config.longPollingEnable:
        timeout_ms = config.shortPollingTimeMills
    return timeout_ms > 0 and core.held_pulls.hold(pull, timeout_ms / 1000)


TAG_TYPE: Final = "T"
UNIQUE_TYPE: Final = "U"
NOT_FOUND: Final = "can not find message, maybe time range not correct"
_PICK: Final = commands.QUERY_MESSAGE.request.picker(
    *("topic", "key", "max_num", "begin_timestamp_ms", "end_timestamp_ms"),
    *("is_unique_key", "index_type"),
)
_PICK_OFFSET: Final = commands.VIEW_MESSAGE_BY_ID.request.picker("physical_offset")


async def query(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    topic, key, max_num, begin_ms, end_ms, is_unique_key, kind = _PICK(command.ext_fields)
    config = core.config
    is_unique = is_unique_key or kind == UNIQUE_TYPE
    max_num = config.defaultQueryMaxNum if is_unique_key else max_num
    max_num = min(max_num, config.maxMsgsNumBatch)
    is_valid = 0 < len(key) <= limits.MAX_KEY_BYTES
    is_valid = is_valid and 0 < len(topic) <= limits.MAX_TOPIC_CHARACTERS
    if not is_valid or max_num <= 0:
        return _answer(core, FoundRecords())
    is_tag = kind == TAG_TYPE and not is_unique
    access = core.access
    reader = None if access is None else access.reader_of(command, channel, topic)
    message_filter = MessageFilter(
        topic=topic,
        key=None if is_unique or is_tag else key,
        unique_key=None if is_tag else key,
        begin=max(begin_ms, 0) or None,
        end=end_ms,
        tags=frozenset({key}) if is_tag else None,
    )
    look_up = LookUp(message_filter, max_num, None if reader is None else reader.may_read)
    search = core.search.by_tag if is_tag else core.search.by_key
    return _answer(core, await search(look_up, channel))


def _answer(core: BrokerCore, records: FoundRecords) -> Response:
    last = core.store.last_appended
    if records.count and last is not None:
        fields = {
            "indexLastUpdateTimestamp": str(last.store_timestamp_ms),
            "indexLastUpdatePhyoffset": str(last.physical_offset),
        }
        if records.failures:
            fields[commands.NOT_SEARCHED] = records.failures[0][: limits.MAX_REMARK_CHARACTERS]
        return Response(ext_fields=fields, body=records.body)
    nothing = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    if records.failures:
        failure = records.failures[0][: limits.MAX_REMARK_CHARACTERS]
        remark = f"the search is incomplete: {failure}"
        return Response(ResponseCode.SYSTEM_ERROR, nothing, remark=remark)
    return Response(ResponseCode.QUERY_NOT_FOUND, nothing, remark=NOT_FOUND)


async def view(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    (offset,) = _PICK_OFFSET(command.ext_fields)
    return await view_record(core, offset, command, channel)


async def view_record(
    core: BrokerCore, offset: int, command: RemotingCommand, channel: Channel
) -> Response:
    """Return the record at an offset of the log; ``command`` is for access control."""
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
    body = bytes(content)
    is_start = await core.search.is_record_start(record, channel)
    return Response(body=body) if is_start else _no_record(offset)


def _no_record(offset: int, why: str = "") -> Response:
    return system_error(f"can not find message by the offset, {offset}{why}")


HANDLERS: Final[Handlers] = {
    RequestCode.PULL_MESSAGE: pull,
    RequestCode.LITE_PULL_MESSAGE: pull,
    RequestCode.QUERY_MESSAGE: query,
    RequestCode.VIEW_MESSAGE_BY_ID: view,
}

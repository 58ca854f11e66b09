"""Finds the record of an offset message id without connecting to the address in the id.

The address is only compared with the brokers that the name servers list: those that have it, or had
it, are asked first. If none of them has the record, all others are asked, since brokers can move. A
record is accepted only if its store host is the id's address.
"""

from collections.abc import Collection, Mapping
from typing import Final

from rocketlens.client.connect.cluster import BrokerAnswer, ClusterCalls, broker_error
from rocketlens.client.connect.compacted_topics import queue_entries
from rocketlens.client.connect.queue_puller import tools_puller
from rocketlens.client.connect.route import Broker, MessageQueue, is_address_of
from rocketlens.client.connect.topology import Topology
from rocketlens.errors import BadInput, RecordError, RocketLensError
from rocketlens.formats.commitlog_record import Reason, Record, decode
from rocketlens.model.answer import Coverage
from rocketlens.model.message import Host, MessageExt
from rocketlens.model.message_id import NOT_IN_LOG, OffsetMessageId, pack_address
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.messages import VIEW_MESSAGE_BY_ID, ViewMessageRequest

NOT_THERE: Final = "can not find message by the offset"
"""Start of a broker's remark if there is no record at an offset; the code is generic."""


def offset_id_of(msg_id: str) -> OffsetMessageId | None:
    """Parse an offset message id; return None if it is not valid."""
    try:
        return OffsetMessageId.decode(msg_id)
    except BadInput:
        return None


async def records_of_id(
    cluster: ClusterCalls, topology: Topology, offset_id: OffsetMessageId, topic: str | None
) -> tuple[list[Record], tuple[Coverage, ...]]:
    """Return the record of an id, and the coverage.

    There are several if brokers used the same address one after the other, and gave the same id.
    """
    brokers, doubts = await topology.brokers()
    before = topology.names_at(str(offset_id.store_host))
    answers = await view_on(cluster, brokers, offset_id, topic, before, topology=topology)
    records = [record for each in answers for record in each.value or ()]
    if records:
        doubts = tuple(each for each in doubts if each.source in before)
    return records, (*(each.coverage for each in answers), *doubts)


async def view_on(
    cluster: ClusterCalls,
    brokers: Mapping[str, Broker],
    offset_id: OffsetMessageId,
    topic: str | None,
    before: Collection[str] = (),
    *,
    topology: Topology | None = None,
) -> list[BrokerAnswer[list[Record]]]:
    """Ask brokers for the record of an id; a value is a list with the record, or an empty list.

    Brokers with the id's address, or named in ``before``, are asked first. With a ``topology`` the
    record has its origin, and the position returned to its producer.
    """
    address = str(offset_id.store_host)
    likely: list[Broker] = []
    others: list[Broker] = []
    for each in brokers.values():
        is_likely = each.name in before or address in each.addresses.values()
        (likely if is_likely else others).append(each)

    async def ask(broker: Broker, address: str) -> list[Record]:
        async with cluster.turn(address):
            record = await _record_at(cluster, address, offset_id.physical_offset, topic)
            if record is None or (topic is not None and record.topic != topic):
                return []
            if not _is_stored_by(record, offset_id.store_host):
                return []
            if await _is_forged(cluster, broker, address, record):
                return []
            if topology is not None:
                record = await topology.to_logical(record, broker, address)
            return [record]

    answers = await cluster.ask_brokers(likely, ask)
    if not any(each.value for each in answers):
        answers += await cluster.ask_brokers(others, ask)
    return answers


async def broker_with(
    cluster: ClusterCalls, brokers: Mapping[str, Broker], message: MessageExt
) -> Broker | None:
    """Return the broker whose log has a message.

    If no log has it, return the broker that has the message's address now, or None.
    """
    offset_id = offset_id_of(message.offset_msg_id)
    if offset_id is not None:
        for answer in await view_on(cluster, brokers, offset_id, None):
            for record in answer.value or ():
                if record.store_timestamp_ms == message.store_timestamp_ms:
                    return answer.broker
    for broker in brokers.values():
        if any(is_address_of(each, message.store_host) for each in broker.addresses.values()):
            return broker
    return None


async def record_of_position(
    cluster: ClusterCalls, address: str, queue: MessageQueue, queue_offset: int
) -> Record | None:
    """Return the record to which a consume queue leads at an offset; None if there is none.

    :raises RecordError: if its checksum is wrong.
    """
    entry = (await queue_entries(cluster, address, queue, [queue_offset])).get(queue_offset)
    if entry is None:
        return None
    record = await _record_at(cluster, address, entry.physical_offset, queue.topic)
    position = queue.topic, queue.queue_id, queue_offset
    is_there = record and (record.topic, record.queue_id, record.queue_offset) == position
    return record if is_there else None


async def _record_at(
    cluster: ClusterCalls, address: str, physical_offset: int, topic: str | None
) -> Record | None:
    header = ViewMessageRequest(physical_offset=physical_offset, topic=topic)
    answer = await cluster.call(address, VIEW_MESSAGE_BY_ID, header)
    if answer.code != ResponseCode.SUCCESS:
        if (answer.remark or "").startswith(NOT_THERE):
            return None
        raise broker_error(address, answer)
    try:
        return decode(answer.body, physical_offset=physical_offset)
    except RecordError as error:
        if error.reason == Reason.CRC:
            raise
        # The broker takes any four bytes as a size, so no record starts there.
        return None


def _is_stored_by(record: Record, host: Host) -> bool:
    carried = record.store_host
    return (pack_address(carried.address), carried.port) == (pack_address(host.address), host.port)


async def _is_forged(cluster: ClusterCalls, broker: Broker, address: str, record: Record) -> bool:
    """Return True if the queue entry of a record leads to another record.

    A message body can contain a complete record, which a broker returns for its offset. If the
    queue cannot decide (the topic is deleted, or the record is in no queue), the record is
    accepted.
    """
    queue = MessageQueue(record.topic, broker.name, record.queue_id)
    try:
        pulled = await tools_puller(cluster).pull(address, queue, record.queue_offset, count=1)
    except RocketLensError:
        return False
    for each in pulled.records([]):
        if each.queue_offset == record.queue_offset:
            return each.physical_offset not in (record.physical_offset, NOT_IN_LOG)
    return False

"""Stores copies of stored messages: delayed ones, ends of transactions, messages given back."""

from collections.abc import Mapping
from typing import Final

from rocketlens.broker.tables.stats import BrokerStats
from rocketlens.formats.commitlog_record import Record, pack_host
from rocketlens.model import properties as props
from rocketlens.store.write.message_store import MessageStore


class CopyWriter:
    """Stores copies, and counts them as messages."""

    def __init__(self, store: MessageStore, stats: BrokerStats) -> None:
        self._store: Final = store
        self._stats: Final = stats

    def write(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        sys_flag: int | None = None,
        reconsume_times: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """Store a message in another queue, with its own values unless told otherwise.

        :raises StoreError: if the store cannot append now.
        """
        packed = record.properties
        if properties is not None:
            packed = props.format_properties(props.java_order(properties)).encode()
        self._store.append(
            topic,
            queue_id,
            record.body,
            packed,
            pack_host(record.born_host),
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            sys_flag=record.sys_flag if sys_flag is None else sys_flag,
            reconsume_times=record.reconsume_times if reconsume_times is None else reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        self._stats.put_total += 1

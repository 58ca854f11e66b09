"""Converts rows of an archive: key rows to time order, message rows to messages."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np

from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.formats.commitlog_record import Record
from rocketlens.late import pa
from rocketlens.model import properties as props
from rocketlens.model.arrow import numbers
from rocketlens.model.message import Host, MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH

_ROWS_AT_ONCE: Final = 256
_STORED_AS_SENT: Final = ~(COMPRESSED | SYS_FLAG_INNER_BATCH)
_PARSED: Final = {"born_host", "store_host", "properties"}
_OF_RECORD: Final = (
    {*Record.__struct_fields__} - _PARSED - {"total_size", "magic", "sys_flag", "origin"}
)
_OF_MESSAGE: Final = {*MessageExt.__struct_fields__} - _PARSED - {"keys", "msg_id", "offset_msg_id"}
"""The fields that have the same value in the row."""


class SortedKeyRows:
    """Merges rows of ``message_keys`` by rank, the lowest first: ``sign`` times the store time."""

    def __init__(self, sign: int) -> None:
        self._sign: Final = sign
        self._runs: Final[list[tuple[int, int, int, list[int], pa.Table, str]]] = []
        """A heap of (rank of the next row, run number, index of that row, ranks, rows, day)."""
        self._count = 0

    def add(self, rows: "pa.Table", key: str, day: str) -> None:
        """Add those of ``rows`` that have the key; others share only its hash."""
        times, keys = (rows.column(name).to_pylist() for name in ("store_timestamp_ms", "key"))
        ranked = sorted(
            (self._sign * time, number)
            for number, (time, other) in enumerate(zip(times, keys, strict=True))
            if other == key
        )
        if ranked:
            ranks = [rank for rank, _ in ranked]
            chosen = rows.take(numbers(np.array([number for _, number in ranked])))
            self._count += 1
            heappush(self._runs, (ranks[0], self._count, 0, ranks, chosen, day))

    def rows_to(self, rank: int) -> Iterator[dict[str, Any]]:
        """Yield and drop the rows up to and including a rank."""
        while self._runs and self._runs[0][0] <= rank:
            _, number, begin, ranks, rows, day = heappop(self._runs)
            least = min(rank, self._runs[0][0] if self._runs else rank)
            end = min(bisect_right(ranks, least, begin), begin + _ROWS_AT_ONCE)
            if end < len(ranks):
                heappush(self._runs, (ranks[end], number, end, ranks, rows, day))
            for row in rows.slice(begin, end - begin).to_pylist():
                yield {**row, "day": day}


def record_of(row: Mapping[str, Any]) -> Record:
    """Return a row of ``messages`` as a `Record` for filters; its body is decompressed."""
    sys_flag = row["sys_flag"]
    return Record(
        total_size=row["store_size"],
        magic=0,
        sys_flag=sys_flag if row["body_error"] else sys_flag & _STORED_AS_SENT,
        born_host=host_of(row["born_host"]),
        store_host=host_of(row["store_host"]),
        properties=props.format_properties(dict(row["properties"])).encode(),
        origin=(row["cluster"], row["broker"]),
        **{name: row[name] for name in _OF_RECORD},
    )


def message_of_row(row: Mapping[str, Any]) -> MessageExt:
    store_host = host_of(row["store_host"])
    offset_msg_id = OffsetMessageId(store_host, row["physical_offset"]).encode()
    return MessageExt(
        keys=tuple(row["keys"]),
        msg_id=row["unique_key"] or offset_msg_id,
        offset_msg_id=offset_msg_id,
        born_host=host_of(row["born_host"]),
        store_host=store_host,
        properties=dict(row["properties"]),
        **{name: row[name] for name in _OF_MESSAGE},
    )


@lru_cache(maxsize=4096)
def host_of(text: str) -> Host:
    """Parse ``10.0.0.1:10911`` or ``[::1]:10911``."""
    address, _, port = text.rpartition(":")
    return Host(address.removeprefix("[").removesuffix("]"), int(port))

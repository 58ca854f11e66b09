"""Takes over topics, groups and offsets of a broker, as a slave does.

What a broker answers is the text of its own file in ``config/``; it is written as it is, if it is
JSON, and differs from what was written before. Apart from `follower`, which knows the stream of
the log alone: tables come by requests, and a broker that refuses those is followed all the same.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.errors import BadAnswer, BrokerError
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import GET_ALL_TOPIC_CONFIG
from rocketlens.wire.commands.groups import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)
from rocketlens.wire.declare import AnyCommand, NoFields


class _Table(NamedTuple):
    command: AnyCommand
    file: str


_TABLES: Final = (
    _Table(GET_ALL_TOPIC_CONFIG, "topics.json"),
    _Table(GET_ALL_CONSUMER_OFFSET, "consumerOffset.json"),
    _Table(GET_ALL_DELAY_OFFSET, "delayOffset.json"),
    _Table(GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroup.json"),
)
_UNKNOWN: Final = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED})


class Tables:
    """The tables of one broker."""

    def __init__(self, cluster: ClusterCalls, layout: StoreLayout, disk: Disk) -> None:
        """Nothing is requested yet."""
        self._cluster: Final = cluster
        self._layout: Final = layout
        self._disk: Final = disk
        self._written: dict[str, bytes] = {}

    async def take_over(self, address: str) -> None:
        """Request all tables, and write those that changed. A broker need not have all of them.

        A table that is refused does not keep the others waiting.

        :raises BrokerError: if the broker refuses one.
        :raises RemotingError: if it does not answer, or a table is not JSON.
        :raises OSError: if a file cannot be written.
        """
        refused: BrokerError | BadAnswer | None = None
        for table in _TABLES:
            try:
                await self._take(address, table)
            except (BrokerError, BadAnswer) as error:
                if not (isinstance(error, BrokerError) and error.code in _UNKNOWN):
                    refused = refused or error
        if refused is not None:
            raise refused

    async def _take(self, address: str, table: _Table) -> None:
        command, file = table
        body = (await self._cluster.ask(address, command, NoFields())).body
        if not body or self._written.get(file) == body:
            return
        self._check(address, command, body)
        self._disk.make_directory(self._layout.config)
        self._disk.write_durably(self._layout.config / file, body)
        self._written[file] = body

    @staticmethod
    def _check(address: str, command: AnyCommand, body: bytes) -> None:
        try:
            is_table = isinstance(json.loads(body), Mapping)
        except (ValueError, RecursionError):
            # RocketMQ 4.9 writes numbers as names, which is no JSON.
            is_table = body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")
        if not is_table or len(body) > limits.MAX_JSON_BODY_BYTES:
            raise BadAnswer(address, command.code.name, "it is not a table")

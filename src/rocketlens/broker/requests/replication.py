"""Values that slaves take over besides the log: offsets, and the progress of timers.

====  ============================  ===========================================================
code  name                          body
====  ============================  ===========================================================
43    GET_ALL_CONSUMER_OFFSET       as ``config/consumerOffset.json``
45    GET_ALL_DELAY_OFFSET          as ``config/delayOffset.json``
60    GET_TIMER_CHECK_POINT         the first 56 bytes of ``config/timercheck``
61    GET_TIMER_METRICS             a table without entries: RocketLens counts no timers by topic
402   GET_ALL_MESSAGE_REQUEST_MODE  a table without entries: all consumers pull
====  ============================  ===========================================================

Topics (21) and groups (201) are what tools are answered. The last three are of RocketMQ 5.
Source: ``SlaveSynchronize``.
"""

from collections.abc import Callable, Mapping
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.tables.config_table import TableVersion
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.model.text import json_dialect
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.large_answers import Estimate
from rocketlens.net.pace import ANSWER_THREAD, Pace, in_thread
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand

_NAME_BYTES: Final = 40
_OFFSET_BYTES: Final = 24


class ReplicationProcessor:
    """Answers what slaves ask for every few seconds."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._version: Final = TableVersion(core.clock())

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timers,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
        }

    async def consumer_offsets(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the offsets of all groups that may be seen, in topics that may be seen."""
        offsets, access = self.core.offsets, self.core.access
        estimate, pace = Estimate("ask for one group at a time"), Pace()
        for name, queues in list(offsets.table.items()):
            estimate.add(_NAME_BYTES + len(name) + _OFFSET_BYTES * len(queues))
            await pace.turn()
        async with self.core.large_answers.turn(channel, estimate):
            is_shown = None if access is None else _both_seen(access.seen_by(command, channel))
            value = offsets.value()

            def encode() -> bytes:
                if is_shown is not None:
                    shown = {
                        name: of for name, of in value["offsetTable"].items() if is_shown(name)
                    }
                    value["offsetTable"] = shown
                return json_dialect.dumps(value).encode()

            return Response(body=await in_thread(encode, ANSWER_THREAD, owner=channel))

    def delay_offsets(self, _: RemotingCommand, __: Channel) -> Response:
        """Return up to where each delay level is delivered.

        What was delivered is in the log before the offset is here, but a slave may have the offset
        first. If this broker then ends, the slave lacks that message: as with RocketMQ.
        """
        return _json(self.core.delay_offsets.value())

    def timers(self, _: RemotingCommand, __: Channel) -> Response:
        """Return how far messages with a delivery time of their own are delivered."""
        return Response(body=self.core.timers.checkpoint().encode_for_slave())

    def timer_metrics(self, _: RemotingCommand, __: Channel) -> Response:
        """Return an empty table."""
        return _json({"dataVersion": self._version.encode(), "timingCount": {}})

    def request_modes(self, _: RemotingCommand, __: Channel) -> Response:
        """Return an empty table."""
        return _json({"messageRequestModeMap": {}})


def _both_seen(is_seen: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return what says of ``topic@group`` whether both may be seen."""

    def is_shown(name: str) -> bool:
        topic, _, group = name.partition("@")
        return is_seen(topic) and is_seen(RETRY_PREFIX + group)

    return is_shown


def _json(value: object) -> Response:
    return Response(body=json_dialect.dumps(value).encode())

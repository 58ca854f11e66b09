"""Pulling: codes 11 and 361.

:mod:`rocketlens.broker.delivery.pull_reader` says what a pull gets. A pull that would be answered
with 19 and allows it is held: :mod:`rocketlens.broker.delivery.held_pulls`. Most pulls
do not come here: :mod:`rocketlens.broker.delivery.compiled_pulls` answers them alike. Source:
``PullMessageProcessor``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.held_pulls import HeldPull, PullFields
from rocketlens.broker.delivery.pull_filter import PullRefused
from rocketlens.broker.delivery.pull_reader import PullResult
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import SUSPEND_FLAG


class PullProcessor:
    """Answers pull requests (codes 11 and 361)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._reader: Final = core.pull_reader

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the messages of a queue from an offset on, and commit an offset if requested.

        None if the pull is held.
        """
        request = PullFields.of(command.ext_fields)
        try:
            self._reader.check_allowed(request, channel)
            pull_filter = self._reader.filter_of(request)
        except PullRefused as refusal:
            return self._reader.response(request, PullResult(refusal.remark, refusal.code, 0))
        if self.core.access is not None:
            reader = self.core.access.reader_of(command, channel, request.topic)
            pull_filter = pull_filter if reader is None else pull_filter._replace(reader=reader)
        moved = self._reader.moved(request)
        if moved is not None:
            return self._reader.response(request, moved)
        result = self._reader.get(request, pull_filter, request.queue_offset)
        self._reader.commit(request)
        if (
            result.code == ResponseCode.PULL_NOT_FOUND
            and request.sys_flag & SUSPEND_FLAG
            and not command.is_one_way
            and self._hold(HeldPull(command, channel, request, pull_filter))
        ):
            return None
        self._reader.count(result)
        return self._reader.response(request, result)

    def _hold(self, pull: HeldPull) -> bool:
        config, timeout_ms = self.core.config, pull.request.suspend_timeout_ms
        if not config.longPollingEnable:
            timeout_ms = config.shortPollingTimeMills
        return timeout_ms > 0 and self.core.held_pulls.hold(pull, timeout_ms / 1000)

"""Detects another broker registered under this broker's name.

A name server accepts every registration: of another broker with the same ``brokerName`` by mistake,
or of any program that can reach it. From then on clients send to that address. So each name server
is asked for the route of the topic that has the broker's own name, which every broker has. A
conflict is logged, is in the runtime information (28), and in ``rocketlens/name_taken.json`` of the
store, for ``doctor``::

    {"brokerName":"broker-a","takenBy":{"10.0.0.5:9876":"10.0.0.9:10911"},"times":1,
     "lastBy":"10.0.0.9:10911","lastTimestampMs":1700000000000}

``takenBy`` is empty once all name servers lead to this broker again. The file is deleted when the
broker starts.
"""

import json
import logging
from collections.abc import Callable
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.errors import CommandBodyError
from rocketlens.wire.bodies.route import TopicRouteData
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands.namesrv import GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest
from rocketlens.wire.declare import read_body

_log: Final = logging.getLogger("rocketlens.broker")

REMINDER_MS: Final = 600_000
"""Milliseconds between two log lines about the same conflict while it lasts."""
_SHOWN: Final = 300


class NameWatch:
    """Tracks the addresses to which name servers lead under this broker's name."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self.is_changed = False
        """Whether more was noted than the file has."""
        self._path: Final = core.store.layout.name_taken
        core.disk.remove_file(self._path)

    def question(self) -> tuple[int, dict[str, str]]:
        """Return the code and the fields of the request for the route of the broker's name."""
        request = GetRouteInfoRequest(
            topic=self.core.config.brokerName, accept_standard_json_only=True
        )
        return RequestCode.GET_ROUTEINFO_BY_TOPIC, GET_ROUTEINFO_BY_TOPIC.request.encode(request)

    def note(self, name_server: str, body: bytes) -> bool:
        """Compare a route with this broker's address; return False if it leads elsewhere."""
        config, core = self.core.config, self.core
        try:
            route = read_body(TopicRouteData, body)
        except CommandBodyError:
            return True
        addresses = [
            each.broker_addrs.get(config.brokerId, core.address)
            for each in route.broker_datas
            if each.broker_name == config.brokerName
        ]
        other = next((each for each in addresses if each != core.address), None)
        if other is not None:
            self._taken(name_server, other[:_SHOWN])
        elif core.name_servers.name_taken.pop(name_server, None) is not None:
            self.is_changed = True
            words = "name server %s leads to this broker again under the name %s"
            _log.warning(words, name_server, config.brokerName)
        return other is None

    def _taken(self, name_server: str, other: str) -> None:
        core = self.core
        is_known = core.name_servers.name_taken.get(name_server) == other
        if is_known and core.clock() - core.name_servers.name_last_taken[1] < REMINDER_MS:
            return
        core.name_servers.name_taken[name_server] = other
        core.name_servers.name_taken_times += not is_known
        core.name_servers.name_last_taken = other, core.clock()
        self.is_changed = True
        _log.warning(
            "name server %s leads to %s under the name %s, not to this broker at %s: another one "
            "registered under it and is sent its messages; each broker needs a brokerName of its "
            "own",
            name_server,
            other,
            core.config.brokerName,
            core.address,
        )

    def snapshot(self) -> Callable[[], None]:
        """Take what was noted until now; what is returned writes it, in any thread.

        That raises OSError if it cannot be written.
        """
        core = self.core
        last_by, last_ms = core.name_servers.name_last_taken
        value = {
            "brokerName": core.config.brokerName,
            "takenBy": dict(core.name_servers.name_taken),
            "times": core.name_servers.name_taken_times,
            "lastBy": last_by,
            "lastTimestampMs": last_ms,
        }
        content = json.dumps(value).encode()
        return lambda: core.disk.write_durably(self._path, content)

    def save(self) -> None:
        """Write the file now.

        :raises OSError: if it cannot be written.
        """
        self.snapshot()()
        self.is_changed = False

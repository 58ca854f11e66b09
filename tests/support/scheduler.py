"""The order of :mod:`tests.support.sharing`, as pytest-xdist asks for it."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.support.sharing import scope_of

_FEWEST = 2


class SharingByCost(LoadScopeScheduling):
    """Gives each process that has no more to do the tests of the next scope.

    A test that ended its process, as one that hangs does, is not run again. xdist would: its class
    gives all that was not completed to the next process.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ended_theirs: set[str] = set()

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Take the tests of a process that ended back, but for the one that it was at."""
        pending = (
            nodeid
            for unit in self.assigned_work[node].values()
            for nodeid, is_completed in unit.items()
            if not is_completed
        )
        self._ended_theirs.update([*pending][:1])
        return super().remove_node(node)

    def _assign_work_unit(self, node: Any) -> None:
        unit = next(iter(self.workqueue.values()))
        unit.update(dict.fromkeys(self._ended_theirs & unit.keys(), True))
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        super()._reschedule(node)
        # A process keeps its last test until it has another one, or is told that there is none. A
        # new one that gets a single test would never end it, and the run neither.
        while self._pending_of(self.assigned_work[node]) < _FEWEST and not node.shutting_down:
            if self.workqueue:
                self._assign_work_unit(node)
            else:
                node.shutdown()

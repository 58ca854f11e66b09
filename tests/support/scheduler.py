"""The order of :mod:`tests.support.sharing`, as pytest-xdist asks for it."""

from xdist.scheduler import LoadScopeScheduling

from tests.support.sharing import scope_of


class SharingByCost(LoadScopeScheduling):
    """Gives each process that has no more to do the tests of the next scope."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

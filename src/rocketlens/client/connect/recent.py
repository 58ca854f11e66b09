"""Values that brokers were asked for a moment ago."""

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from rocketlens import limits

T = TypeVar("T")
K = TypeVar("K")


class Recent(Generic[K, T]):
    """Values that were asked for in the last 30 s, by key. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._values: Final[dict[K, tuple[float, T]]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        """Return a value, asked for if there is none as new; errors are those of ``ask``."""
        cached = self._values.get(key)
        if cached is None or self._clock() - cached[0] >= limits.ROUTE_REFRESH_S:
            if len(self._values) > limits.MAX_TOPOLOGY_ROUTES:
                self._values.clear()
            cached = self._clock(), await ask()
            self._values[key] = cached
        return cached[1]

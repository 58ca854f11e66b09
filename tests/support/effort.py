"""How much tests do: a short form in `make test`, all of it in `make test-all`.

Hypothesis' profile decides, so `pytest --hypothesis-profile full` runs the full form of any test.
"""

from typing import TypeVar

from hypothesis import HealthCheck, settings

SHORT = "short"
FULL = "full"

T = TypeVar("T")

# A machine that is busy with other work is slow, and no test is wrong for it.
_ON_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(SHORT, _ON_ANY_MACHINE, max_examples=20)
settings.register_profile(FULL, _ON_ANY_MACHINE, max_examples=200)


def sized(short: T, full: T) -> T:
    """Return ``full`` when tests run in full, else ``short``."""
    return full if settings.get_current_profile_name() == FULL else short

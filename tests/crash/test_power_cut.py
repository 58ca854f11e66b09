"""The power goes at any moment of any writer, and nothing acknowledged is lost.

A run is told by its writer and its seed alone; a failure names both, and how to run just that.
"""

import os

import pytest

from tests.support.power_runs import RUNS, SEED


@pytest.mark.parametrize("writer", RUNS)
def test_the_power_may_go_at_any_moment(in_memory, writer):
    seed = os.environ.get(SEED)
    if seed is not None:
        RUNS[writer](in_memory / "run", seed).run()
        return
    images, number = 0, 0
    while images < 30:
        images += RUNS[writer](in_memory / "run", str(number)).run()
        number += 1

"""The power goes at any moment of any writer, and nothing acknowledged is lost.

A run is told by its writer and its seed alone; a failure names both, and how to run just that.
"""

import os

import pytest

from tests.support.copy_runs import CopyRun
from tests.support.power_runs import RUNS, SEED

WRITERS = RUNS | {CopyRun.writer: CopyRun}

SHARES = {
    "store": 0.2,
    "odd": 0.15,
    "notes": 0.15,
    "follow": 0.15,
    "build": 0.1,
    "tables": 0.15,
    "tap": 0.1,
}
"""How the images are shared out among the writers."""


@pytest.mark.parametrize("image_count", [60, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("writer", WRITERS)
def test_the_power_may_go_at_any_moment(in_memory, writer, image_count):
    seed = os.environ.get(SEED)
    if seed is not None:
        WRITERS[writer](in_memory / "run", seed).run()
        return
    images, number = 0, 0
    while images < image_count * SHARES[writer]:
        images += WRITERS[writer](in_memory / "run", str(number)).run()
        number += 1

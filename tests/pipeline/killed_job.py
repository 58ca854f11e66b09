"""Run a dispatch that is killed with SIGKILL when it comes to a point: STORE PHASE DONE."""

import os
import signal
import sys
from pathlib import Path

from rocketlens.pipeline.dispatch import dispatch
from rocketlens.pipeline.session import start

store, phase, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def die(at: str, done: int, _total: int) -> None:
    if (at, done) == (phase, number):
        os.kill(os.getpid(), signal.SIGKILL)


spark = start("local[2]")
dispatch(spark.sparkContext, store, queues=True, slot_count=7, entry_count=500, progress=die)

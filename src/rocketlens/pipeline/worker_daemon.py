"""The process that Spark forks its Python workers from, with what every job needs loaded already.

Spark runs it as ``python -m rocketlens.pipeline.worker_daemon WORKER_MODULE`` if its setting
``spark.python.daemon.module`` names it. Its own daemon has each new worker load numpy, Arrow and
the kernels for itself, and each worker looks through all their objects for garbage after every
task, which takes longer than many tasks.
"""

import gc
import importlib
import os
import sys


def main() -> None:
    """Load modules and kernels, and fork workers until Spark closes the standard input."""
    # Ctrl-C in a terminal is for the command, which ends Spark.
    os.setpgid(0, 0)

    from pyspark import daemon

    from rocketlens.pipeline.warm import load_kernels

    importlib.import_module(sys.argv[1])
    load_kernels()
    gc.collect()
    # Workers inherit what is exempt from garbage collection.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()

"""Spark's daemon for Python workers, with the modules of all tasks loaded before it forks.

Spark runs it as ``python -m rocketlens.pipeline.worker_daemon WORKER_MODULE`` if its setting
``spark.python.daemon.module`` names it. Without it, each new worker loads numpy, Arrow and the
kernels, and collects garbage among their objects after every task, which takes longer than many
tasks.
"""

import gc
import importlib
import sys

if __name__ == "__main__":
    from pyspark import daemon

    importlib.import_module(sys.argv[1])
    for module in ("bulk.queue_build", "bulk.index_plan", "formats.compiled.rows"):
        importlib.import_module(f"rocketlens.{module}")
    gc.collect()
    # Exempts the loaded objects from garbage collection in the workers, too.
    gc.freeze()
    daemon.manager()

"""Spark's own daemon for Python workers, with what every task needs loaded once.

Spark runs it as ``python -m rocketlens.pipeline.worker_daemon WORKER_MODULE`` if its setting
``spark.python.daemon.module`` names it, and it forks the workers. Otherwise each new worker loads
numpy, Arrow and the kernels for itself, and after every task looks through all their objects for
garbage, which takes longer than many tasks.
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
    # Workers inherit what is exempt from garbage collection.
    gc.freeze()
    daemon.manager()

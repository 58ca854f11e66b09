"""What Spark's Python workers have from the process that they are forked from."""

import gc
import sys


def state_of_worker(_):
    return (
        "rocketlens.pipeline.worker_daemon" in sys.orig_argv,
        "numba" in sys.modules,
        gc.get_freeze_count(),
    )


def test_a_worker_has_the_kernels_at_once_and_never_looks_at_them_for_garbage(spark):
    state = spark.sparkContext.parallelize([0], 1).map(state_of_worker).first()
    is_ours, has_kernels, frozen = state
    assert is_ours
    assert has_kernels
    assert frozen > 100_000


def test_workers_of_a_query_are_forked_from_it_too(spark):
    rows = spark.range(1).rdd.map(state_of_worker).collect()
    assert [is_ours for is_ours, _, _ in rows] == [True]

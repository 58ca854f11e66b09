"""Registers ``spark.read.format("rocketmq")`` in every Spark session of this environment.

Spark imports each top-level module whose name starts with ``pyspark_`` and registers its class
``DefaultSource``.
"""

from rocketlens.pipeline.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]

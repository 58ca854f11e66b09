"""Makes ``spark.read.format("rocketmq")`` work in any Spark session once this is installed.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers the class
``DefaultSource`` it finds there.
"""

from rocketlens.pipeline.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""The data pipeline: runs the tasks of :mod:`rocketlens.bulk` on Spark. No other room imports
pyspark.

``session`` starts Spark, ``jobs`` runs tasks on it, ``source`` and ``stream`` are the ``rocketmq``
data source, ``dispatch`` builds index files and consume queues from the log, ``verify`` compares
the three, and ``follow`` builds index files while a broker appends.
"""
